"""Theorem 1: from a convolution to the attention parameters that express it, and back.

    head of tap (m, n):  at Delta = (d_1 (m - m_0), d_2 (n - n_0)), with W_val = W_Delta = weight[:, :, m, n]
    query (i, j):        at (s_1 i + d_1 m_0, s_2 j + d_2 n_0) of the padded input, under the middle tap
    output bias:         the convolution's bias

and likewise along one or three axes. A transposed convolution is one with stride 1 over its stuffed input
(``spec.py``).

Every target q + Delta lies inside the padded input, so with alpha -> infinity head h reads exactly the pixel
that tap (m, n) reads. With the default alpha this holds in floating point already: ``regime.py`` says why.
``proofs/claims/theorem/assembly.py`` proves that the heads add up to the convolution, ``claims/theorem/one_hot.py`` and
``proofs/claims/certificate/tail.py`` the limit; ``proofs/formal/Theorem1.v`` proves both in Coq.
"""

from __future__ import annotations

import copy
from typing import TypeVar, overload

import torch
from torch import nn

from ..arguments import as_tolerance
from ..bounds.tail import tail_per_unit
from ..engines import AUTO
from ..errors import NotAConvolutionError, Problem, UnsupportedLayerError
from ..spec import Convolution
from ..subclasses.computed import COMPUTABLE, carry, class_of, detached, is_computed, stand_in, uncomputable
from ..subclasses.padded import convolution, has_class, spec_of
from ..subclasses.readers import reader_of
from .checked import checked_layer, checked_model
from .layer import LAYERS, SelfAttention, SelfAttention1d, SelfAttention2d, SelfAttention3d
from .of_subclass import OF_SUBCLASS, OfSubclass
from .spare import TRAINED_SPARE
from .supported import unsupported_reason


@overload
def attention_from_conv(
    conv: nn.Conv1d | nn.ConvTranspose1d, *, alpha: float | None = None, engine: str = AUTO
) -> SelfAttention1d: ...
@overload
def attention_from_conv(
    conv: nn.Conv2d | nn.ConvTranspose2d, *, alpha: float | None = None, engine: str = AUTO
) -> SelfAttention2d: ...
@overload
def attention_from_conv(
    conv: nn.Conv3d | nn.ConvTranspose3d, *, alpha: float | None = None, engine: str = AUTO
) -> SelfAttention3d: ...
@overload
def attention_from_conv(conv: Convolution, *, alpha: float | None = None, engine: str = AUTO) -> SelfAttention: ...
@torch.inference_mode(False)
def attention_from_conv(conv: Convolution, *, alpha: float | None = None, engine: str = AUTO) -> SelfAttention:
    """Constructs the self-attention layer that computes the same function as a convolution.

    Args:
        conv: The convolution: ``nn.Conv1d``, ``nn.Conv2d``, ``nn.Conv3d``, one of their transposed forms, or of a
            subclass that has a reader (``register_reader``). Its weights are copied.
        alpha: Sharpness. None takes one so large that attention is exactly one-hot in floating point
            (128 in single, 1024 in double precision); a smaller one gives soft attention, whose distance from
            the convolution ``certify`` bounds.
        engine: How the layer computes, see ``SelfAttention``.

    Returns:
        A ``SelfAttention1d``, ``SelfAttention2d`` or ``SelfAttention3d`` with a head for each kernel tap, in the
        convolution's mode, dtype and device.

    Raises:
        UnsupportedLayerError: The module is not one of these itself; the message says what stands in the way.
        ConversionError: alpha is not positive and finite, there is no such engine, or ``conv`` is no module.

    Examples:
        >>> conv, x = torch.nn.Conv2d(3, 8, kernel_size=3, padding=1), torch.rand(2, 3, 6, 6)
        >>> attention = c2a.attention_from_conv(conv)
        >>> torch.equal(attention(x), conv(x))
        True
    """
    reason = unsupported_reason(checked_model(conv, "conv"))
    if reason is not None:
        is_network = any(unsupported_reason(each) is None for each in conv.modules() if each is not conv)
        hint = "; convert_model converts those that it holds" if is_network else ""
        raise UnsupportedLayerError(f"the layer cannot be converted: {reason}{hint}", [Problem("", reason)])
    if is_computed(conv):
        return attention_with(copy.deepcopy(conv, detached(conv)), alpha=alpha, engine=engine)
    return _with_copies(attention_with(conv, alpha=alpha, engine=engine))


def attention_with(conv: Convolution, *, alpha: float | None = None, engine: str = AUTO) -> SelfAttention:
    """As ``attention_from_conv``, for a convolution known to be supported, sharing its parameters."""
    reader = reader_of(type(conv))
    if reader is not None:
        return OF_SUBCLASS[reader.spec(conv).axes](conv, reader, alpha=alpha, engine=engine)
    spec = spec_of(conv)
    layer = LAYERS[spec.axes](
        spec,
        weight=stand_in(conv, "weight"),
        bias=stand_in(conv, "bias"),
        alpha=alpha,
        engine=engine,
    )
    carry(conv, layer)
    return layer.train(conv.training)


@torch.inference_mode(False)
def conv_from_attention(layer: SelfAttention, *, tolerance: float | None = None) -> Convolution:
    """Gives back the convolution that a layer computes: same constructor arguments, same weights, bit for bit.

    Args:
        layer: The attention layer; its weights are copied.
        tolerance: Accept soft attention if, on inputs whose channels vary by at most 1 (padding included), it
            differs from the convolution by at most this, in exact arithmetic. None accepts none.

    Raises:
        NotAConvolutionError: No convolution computes what the layer computes; the message says why.

    Examples:
        >>> conv = torch.nn.Conv2d(3, 8, kernel_size=3)
        >>> torch.equal(c2a.conv_from_attention(c2a.attention_from_conv(conv)).weight, conv.weight)
        True
    """
    if isinstance(layer, SelfAttention) and not layer.spare_heads_are_off():
        raise NotAConvolutionError(f"the layer is not a convolution: {TRAINED_SPARE}")
    checked_layer(layer)
    reason = not_a_convolution(layer, tolerance=as_tolerance(tolerance))
    if reason is not None:
        raise NotAConvolutionError(f"the layer is not a convolution: {reason}")
    if is_computed(layer):
        return conv_with(copy.deepcopy(layer, detached(layer)))
    return _with_copies(conv_with(layer))


def conv_with(layer: SelfAttention) -> Convolution:
    """As ``conv_from_attention``, for a layer known to be a convolution, sharing its parameters."""
    if isinstance(layer, OfSubclass):
        return layer.origin.remade(layer._parameters, layer._buffers).train(layer.training)
    conv = convolution(layer.spec, device="meta")
    for name in COMPUTABLE:
        conv.register_parameter(name, stand_in(layer, name))
    carry(layer, conv)
    return conv.train(layer.training)


def not_a_convolution(layer: SelfAttention, *, tolerance: float | None = None) -> str | None:
    """Why no convolution computes what a layer computes, or None if one does."""
    reason = uncomputable(layer)
    if reason is not None:
        return reason
    if any(parameter.is_meta for parameter in layer.parameters()):
        return "it has no values, as on the meta device"
    if class_of(layer) not in _OWN or "forward" in vars(layer):
        return "its forward method is not that of SelfAttention"
    if not has_class(layer.spec) and not isinstance(layer, OfSubclass):
        return "its padding is one that no class of convolutions has"
    regime = layer.regime
    if not layer.spare_heads_are_off():
        return TRAINED_SPARE
    if layer.content is not None and not layer.content.is_off():
        return "its content terms are on, so it looks at the image to decide where to look"
    if layer.axis_scores is not None:
        return "its positional scores are learned tables"
    if not regime.at_taps:
        head, center, tap = next(
            (head, center, tap)
            for head, (center, tap) in enumerate(zip(regime.centers, layer.spec.tap_offsets, strict=True))
            if center != tap
        )
        return f"the centre of head {head} is at {center}, not at its kernel tap {tap}"
    if regime.is_exact:
        return None
    lowest = min(regime.alpha)
    if tolerance is None:
        return f"its attention is soft (alpha {lowest:g}); tolerance= says how much of a difference is accepted"
    difference = tail_per_unit(layer.values())
    if not difference <= tolerance:
        return (
            f"its attention is soft (alpha {lowest:g}) and differs from the convolution by up to {difference:.3g} "
            f"on inputs that vary by 1, more than tolerance={tolerance:g}"
        )
    return None


_OWN = (SelfAttention, *LAYERS.values(), *OF_SUBCLASS.values())  # classes whose forward is known
_Layer = TypeVar("_Layer", bound=nn.Module)


def _with_copies(layer: _Layer) -> _Layer:
    """Gives a new layer its own parameters and buffers in place of the shared ones."""
    for name, shared in layer._parameters.items():
        if shared is not None:
            copied = nn.Parameter(shared.detach().clone(), requires_grad=shared.requires_grad)
            layer.register_parameter(name, copied)
    for name, buffer in layer._buffers.items():
        layer._buffers[name] = None if buffer is None else buffer.detach().clone()
    return layer
