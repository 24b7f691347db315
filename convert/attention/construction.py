"""Theorem 1: from a convolution to the attention parameters that express it, and back.

    head of tap (m, n):  at Delta = (d_1 (m - m_0), d_2 (n - n_0)), with W_val = W_Delta = weight[:, :, m, n]
    query (i, j):        at (s_1 i + d_1 m_0, s_2 j + d_2 n_0) of the padded input, under the middle tap
    output bias:         the convolution's bias

Every target q + Delta lies inside the padded input, so with alpha -> infinity head h reads exactly the pixel
that tap (m, n) reads. With the default alpha this holds in floating point already: ``regime.py`` says why.
``proofs/claims/theorem/assembly.py`` proves that the heads add up to the convolution, ``claims/theorem/one_hot.py`` and
``proofs/claims/certificate/tail.py`` the limit; ``proofs/formal/Theorem1.v`` proves both in Coq.
"""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from ..arguments import as_tolerance
from ..bounds.tail import tail_per_unit
from ..engines import AUTO
from ..errors import NotAConvolutionError, Problem, UnsupportedLayerError
from ..spec import ConvSpec
from .checked import checked_layer, checked_model
from .layer import SelfAttention2d
from .supported import unsupported_reason


def attention_from_conv(conv: nn.Conv2d, *, alpha: float | None = None, engine: str = AUTO) -> SelfAttention2d:
    """Constructs the self-attention layer that computes the same function as a convolution.

    Args:
        conv: The convolution; its weights are copied.
        alpha: Locality strength. None takes one so large that attention is exactly one-hot in floating point
            (128 in single, 1024 in double precision); a smaller one gives soft attention, whose distance from
            the convolution ``certify`` bounds.
        engine: How the layer computes, see ``SelfAttention2d``.

    Returns:
        A layer with kernel rows * kernel columns heads, in the convolution's mode, dtype and device.

    Raises:
        UnsupportedLayerError: The module is not a plain ``nn.Conv2d``; the message says what stands in the way.
        ConversionError: alpha is not positive and finite, there is no such engine, or ``conv`` is no module.
    """
    reason = unsupported_reason(checked_model(conv, "conv"))
    if reason is not None:
        raise UnsupportedLayerError(f"the layer cannot be converted: {reason}", [Problem("", reason)])
    return _with_copies(attention_with(conv, alpha=alpha, engine=engine))


def attention_with(conv: nn.Conv2d, *, alpha: float | None = None, engine: str = AUTO) -> SelfAttention2d:
    """As ``attention_from_conv``, for a convolution known to be supported, sharing its parameters."""
    layer = SelfAttention2d(
        ConvSpec.from_conv(conv),
        weight=conv.get_parameter("weight"),
        bias=None if conv.bias is None else conv.get_parameter("bias"),
        alpha=alpha,
        engine=engine,
    )
    return layer.train(conv.training)


def conv_from_attention(layer: SelfAttention2d, *, tolerance: float | None = None) -> nn.Conv2d:
    """Gives back the convolution that a layer computes: same constructor arguments, same weights, bit for bit.

    Args:
        layer: The attention layer; its weights are copied.
        tolerance: Accept soft attention if, on inputs whose channels vary by at most 1 (padding included), it
            differs from the convolution by at most this, in exact arithmetic. None accepts none.

    Raises:
        NotAConvolutionError: No convolution computes what the layer computes; the message says why.
    """
    checked_layer(layer)
    reason = not_a_convolution(layer, tolerance=as_tolerance(tolerance))
    if reason is not None:
        raise NotAConvolutionError(f"the layer is not a convolution: {reason}")
    return _with_copies(conv_with(layer))


def conv_with(layer: SelfAttention2d) -> nn.Conv2d:
    """As ``conv_from_attention``, for a layer known to be a convolution, sharing its parameters."""
    conv = nn.Conv2d(**vars(layer.spec), device="meta")
    conv.register_parameter("weight", layer.weight)
    conv.register_parameter("bias", layer.bias)
    return conv.train(layer.training)


def not_a_convolution(layer: SelfAttention2d, *, tolerance: float | None = None) -> str | None:
    """Why no convolution computes what a layer computes, or None if one does."""
    for name in ("weight", "bias"):
        if name not in layer._parameters:
            return f"its {name} is not a plain parameter; remove the parametrisation first"
    if type(layer) is not SelfAttention2d or "forward" in vars(layer):
        return "its forward method is not that of SelfAttention2d"
    regime = layer.regime
    if not regime.is_read:
        return "its alpha and centers have no values, as on the meta device"
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
    difference = tail_per_unit(layer)
    if not difference <= tolerance:
        return (
            f"its attention is soft (alpha {lowest:g}) and differs from the convolution by up to {difference:.3g} "
            f"on inputs that vary by 1, more than tolerance={tolerance:g}"
        )
    return None


_Layer = TypeVar("_Layer", SelfAttention2d, nn.Conv2d)


def _with_copies(layer: _Layer) -> _Layer:
    """Gives a new layer its own weight and bias in place of the shared ones."""
    for name in ("weight", "bias"):
        shared = getattr(layer, name)
        if shared is not None:
            copied = nn.Parameter(shared.detach().clone(), requires_grad=shared.requires_grad)
            layer.register_parameter(name, copied)
    return layer
