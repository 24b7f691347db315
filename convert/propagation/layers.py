"""What modules make of a span: attention layers, convolutions, linear layers, normalisation, pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.convert.attention import SelfAttention2d
from conv2attn.convert.certificate import Certificate, certify, padded_range
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.propagation import moves
from conv2attn.convert.propagation.activations import BY_MODULE
from conv2attn.convert.propagation.span import Arithmetic, Span, UnboundedError, affine, checked
from conv2attn.convert.spec import ConvSpec

Rule = Callable[[Any, Span, torch.Size, torch.Size, Arithmetic], Span]

_NORM_ROUNDINGS = 8  # the square root, the quotient, the products and the sums of a normalisation, in any form


def bound_module(module: nn.Module, x: Span, before: torch.Size, after: torch.Size, arithmetic: Arithmetic) -> Span:
    """Bounds on a module's output.

    Args:
        module: The module; an attention layer has ``bound_attention``.
        x: Bounds on its input.
        before: The input's shape.
        after: The output's shape.
        arithmetic: How it rounds.

    Raises:
        UnboundedError: Nothing is known of what the module does.
    """
    if module._forward_hooks or module._forward_pre_hooks:
        raise UnboundedError("it has hooks, which may compute something else")
    if type(module) in BY_MODULE:
        return BY_MODULE[type(module)](module)(x, arithmetic)
    if type(module) not in RULES:
        raise UnboundedError(f"no bound is known for {type(module).__name__}")
    return RULES[type(module)](module, x, before, after, arithmetic)


def bound_attention(layer: SelfAttention2d, x: Span) -> tuple[Span, Certificate, float]:
    """Bounds on an attention layer and its convolution: the output, the layer's own certificate, what it inherits.

    Raises:
        UnboundedError: The input's values are not bounded, or no finite certificate is known.
    """
    if layer._forward_hooks or layer._forward_pre_hooks:
        raise UnboundedError("it has hooks, which may compute something else")
    spec = layer.spec
    x = x.expanded(spec.in_channels)
    if not bool(x.largest.isfinite().all()):
        raise UnboundedError("the values of its input are not bounded")
    try:
        own = certify(layer, input_range=(x.low, x.high))
    except ConversionError as refusal:
        raise UnboundedError(str(refusal)) from refusal
    if not math.isfinite(own.bound):
        raise UnboundedError("no finite certificate is known for values this large")
    low, high = padded_range(spec, (x.low, x.high))
    exact, _ = affine(Span(low, high, x.error), layer.weight.detach().flatten(2), layer.bias, groups=spec.groups)
    rounding = max(own.rounding_attention, own.rounding_convolution)
    error = exact.error + torch.tensor(own.per_channel, dtype=torch.float64, device="cpu")
    output = checked(Span(exact.low - rounding, exact.high + rounding, error))
    return output, own, float(exact.error.max())


def _convolution(conv: nn.Conv2d, x: Span, _: torch.Size, __: torch.Size, arithmetic: Arithmetic) -> Span:
    spec = ConvSpec.from_conv(conv)
    weight, inputs = conv.weight.detach().flatten(2), x.expanded(spec.in_channels)
    if spec.padding_mode == "zeros" and any(spec.pads):
        inputs = inputs.with_zero()
    exact, scale = affine(inputs, weight, conv.bias, groups=spec.groups)
    return arithmetic.rounded(exact, scale, weight[0].numel() + 1, same=x.is_equal)


def _linear(linear: nn.Linear, x: Span, before: torch.Size, _: torch.Size, arithmetic: Arithmetic) -> Span:
    inputs = (x if len(before) == 2 else x.merged()).expanded(linear.in_features)
    exact, scale = affine(inputs, linear.weight.detach().unsqueeze(-1), linear.bias)
    output = arithmetic.rounded(exact, scale, linear.in_features + 1, same=x.is_equal)
    return output if len(before) == 2 else output.merged()


def _batch_norm(norm: Any, x: Span, before: torch.Size, __: torch.Size, arithmetic: Arithmetic) -> Span:
    if norm.training or norm.running_mean is None or norm.running_var is None:
        raise UnboundedError("batch norm takes its statistics from the batch")
    mean, variance = (statistic.double().cpu() for statistic in (norm.running_mean, norm.running_var))
    ones = torch.ones_like(mean)
    weight = ones if norm.weight is None else norm.weight.detach().double().cpu()
    bias = 0 * ones if norm.bias is None else norm.bias.detach().double().cpu()
    factor = weight / (variance + norm.eps).sqrt()
    inputs = x.expanded(before[1])
    exact, _ = affine(inputs, factor.view(-1, 1, 1), bias - mean * factor, groups=len(mean))
    scale = factor.abs() * (inputs.largest + mean.abs()) + bias.abs()
    return arithmetic.rounded(exact, scale, _NORM_ROUNDINGS, same=x.is_equal)


def _identity(module: nn.Module, x: Span, _: torch.Size, __: torch.Size, ___: Arithmetic) -> Span:
    if module.training and not isinstance(module, nn.Identity):
        raise UnboundedError("dropout draws random numbers while it trains")
    return x


def _max_pool(pool: nn.MaxPool2d, x: Span, _: torch.Size, __: torch.Size, ___: Arithmetic) -> Span:
    return x


def _average_pool(pool: nn.AvgPool2d, x: Span, _: torch.Size, __: torch.Size, arithmetic: Arithmetic) -> Span:
    if pool.divisor_override is not None:
        raise UnboundedError("an average with divisor_override is no average")
    rows, columns = (pool.kernel_size,) * 2 if isinstance(pool.kernel_size, int) else pool.kernel_size
    padded = pool.padding if isinstance(pool.padding, int) else max(pool.padding)
    return moves.averaged(x.with_zero() if padded else x, rows * columns, arithmetic)


def _adaptive_average(_: nn.Module, x: Span, before: torch.Size, __: torch.Size, arithmetic: Arithmetic) -> Span:
    return moves.averaged(x, math.prod(before[-2:]), arithmetic)


def _flatten(_: nn.Module, x: Span, before: torch.Size, after: torch.Size, __: Arithmetic) -> Span:
    return moves.reshaped(x, before, after)


def _shuffle(shuffle: Any, x: Span, before: torch.Size, _: torch.Size, __: Arithmetic) -> Span:
    def shuffled(bound: Tensor) -> Tensor:
        return bound.view(shuffle.groups, -1).T.reshape(-1)

    own = x.expanded(before[1])
    return Span(shuffled(own.low), shuffled(own.high), shuffled(own.error))


def _upsample(module: nn.Upsample, x: Span, _: torch.Size, __: torch.Size, arithmetic: Arithmetic) -> Span:
    return moves.interpolated(x, str(module.mode), arithmetic)


RULES: dict[type[nn.Module], Rule] = {
    nn.Conv2d: _convolution,
    nn.Linear: _linear,
    nn.BatchNorm1d: _batch_norm,
    nn.BatchNorm2d: _batch_norm,
    nn.Identity: _identity,
    nn.Dropout: _identity,
    nn.Dropout2d: _identity,
    nn.MaxPool2d: _max_pool,
    nn.AdaptiveMaxPool2d: _max_pool,
    nn.AvgPool2d: _average_pool,
    nn.AdaptiveAvgPool2d: _adaptive_average,
    nn.Flatten: _flatten,
    nn.Unflatten: _flatten,
    nn.ChannelShuffle: _shuffle,
    nn.Upsample: _upsample,
}
