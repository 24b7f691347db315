r"""How much an operation enlarges the 2-norm of a difference: |f(a) - f(c)| <= sum_i L_i |a_i - c_i| over its operands.

- A linear map without negative weights has L^2 <= (largest sum of a row) (largest sum of a column) (Schur, 1911). Where
  entries are only moved, that is how often one is repeated.
- A maximum moves by at most the 2-norm of its window's difference, and a pixel is in so many windows.
- A product a b - c d = a (b - d) + d (a - c) is summed over what either factor is repeated along.
- Softmax has the Jacobian diag(p) - p p^T, whose rows' absolute values sum to 2 p (1 - p) <= 1/2.
- The first half times the sigmoid of the second has the slopes sigmoid <= 1 and |a| / 4.
- Normalised values are c / s of centred ones c, s^2 = |c|^2 / n + eps; the Jacobian is (I - c c^T / (n s^2)) / s, of
  norm 1 / s. In a ball of radius r about c_0, s^2 is at least (|c_0| - r)^2 / n + eps.

The claim ``difference-norms`` (``proofs/claims/certificate/difference_norms.py``) derives these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ....bounds.rounding import OUTWARD
from .call import Call, intervals_in
from .interval import Interval
from .moving import MOVES
from .normalising import normalised_view
from .pointwise import ACTIVATIONS, GELU_SLOPE
from .spectral import convolution_norm, matrix_norm
from .weighted import batch_norm_factor

Rule = Callable[[Call, Sequence[float]], list[float]]


def gains(call: Call, apart: Sequence[float]) -> list[float] | None:
    """L_i for each operand that depends on the images, or None where only single entries are bounded.

    Args:
        call: The operation, on bounds of its operands.
        apart: Radius of the ball about the middle of each of them, in which both programs' values are.
    """
    rule = _RULES.get(call.name)
    return None if rule is None else [gain * OUTWARD for gain in rule(call, apart)]


def _slope(slope: float) -> Rule:
    return lambda call, apart: [slope]


def _leaky(call: Call, apart: Sequence[float]) -> list[float]:
    slope = call.constant("weight") if call.name == "prelu" else torch.tensor(float(call["negative_slope"]))
    return [1.0 if slope is None else max(1.0, float(slope.abs().max()))]


def _gated(call: Call, apart: Sequence[float]) -> list[float]:
    return [math.hypot(1, float(call.x.largest.max()) / 4)]


def _batch_norm(call: Call, apart: Sequence[float]) -> list[float]:
    return [float(batch_norm_factor(call).abs().max())]


def _convolution(call: Call, apart: Sequence[float]) -> list[float]:
    weight: Tensor = call["weight"]
    return [convolution_norm(weight, groups=call["groups"], stride=call["stride"] * 3, dilation=max(call["dilation"]))]


def _linear(call: Call, apart: Sequence[float]) -> list[float]:
    return [matrix_norm(call["weight"])]


def _sum(call: Call, apart: Sequence[float]) -> list[float]:
    factors = {"self": 1.0, "other": abs(float(call["alpha"]))}
    if call.name == "rsub":
        factors = {"self": factors["other"], "other": 1.0}
    ones = torch.ones(call.shape)
    return [_along(ones, call[name]) * factors[name] for name in factors if isinstance(call[name], Interval)]


def _product(call: Call, apart: Sequence[float]) -> list[float]:
    pairs = (call["self"], call["other"]), (call["other"], call["self"])
    return [_along(call.operand(factor).largest, x) for x, factor in pairs if isinstance(x, Interval)]


def _quotient(call: Call, apart: Sequence[float]) -> list[float]:
    return [_along(1 / call.operand(call["other"]).low, call.x)]


def _along(factors: Tensor, x: Interval) -> float:
    """The largest 2-norm of the factors that an entry of x is multiplied with."""
    shape = torch.broadcast_shapes(factors.shape, x.low.shape)
    return math.sqrt(float(factors.double().square().expand(shape).sum_to_size(x.low.shape).max()))


def _maxima(call: Call, apart: Sequence[float]) -> list[float]:
    """A pixel p is in a window for each tap m with d m = p modulo s, of which there are one in s / gcd(s, d)."""
    axes = int(call.name[-2])
    sizes, steps, dilations = (
        list(each) * (axes // len(each))
        for each in (call["kernel_size"], call["stride"] or call["kernel_size"], call["dilation"])
    )
    windows = (-(-size * math.gcd(s, d) // s) for size, s, d in zip(sizes, steps, dilations, strict=True))
    return [math.sqrt(math.prod(windows))]


def _schur(call: Call, apart: Sequence[float]) -> list[float]:
    """Largest sums of a row and of a column, for each operand in the place of the others."""
    if call.arguments.get("value"):
        return [1.0]  # padded with a constant
    return [_schur_of(call, one) for one in intervals_in(call.arguments.values())]


def _schur_of(call: Call, operand: Interval) -> float:
    with torch.enable_grad():
        ones = torch.ones_like(operand.low, requires_grad=True)
        rows = call.applied(lambda x: ones if x is operand else torch.zeros_like(x.low))
        (columns,) = torch.autograd.grad(rows.sum(), [ones])
    return math.sqrt(float(rows.detach().max()) * float(columns.max()))


def _normalised(call: Call, apart: Sequence[float]) -> list[float]:
    middle = ((call.x.low + call.x.high) / 2).reshape(normalised_view(call))
    centered = torch.linalg.vector_norm(middle - middle.mean(-1, keepdim=True), dim=-1)
    rounding = 2.0**-50 * middle.shape[-1] ** 1.5 * float(middle.abs().max())
    nearest = float(centered.min())
    least = ((nearest - apart[0]) / OUTWARD - rounding) ** 2 if nearest > apart[0] + rounding else 0.0
    weight = call.constant("weight")
    steepest = 1.0 if weight is None else float(weight.abs().max())
    return [steepest / math.sqrt(least / middle.shape[-1] + float(call["eps"]))]


_AXES = (1, 2, 3)
_MAXIMA = {f"{kind}max_pool{axes}d" for axes in _AXES for kind in ("", "adaptive_")}
_RULES: dict[str, Rule] = {
    **dict.fromkeys(set(MOVES) - _MAXIMA, _schur),
    **dict.fromkeys(("pad", "constant_pad_nd", "mean", "sum", "upsample_linear1d", "upsample_bilinear2d"), _schur),
    **{f"{kind}avg_pool{axes}d": _schur for axes in _AXES for kind in ("", "adaptive_")},
    **dict.fromkeys(("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "amax"), _slope(1.0)),
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout", "_to_copy", "to"), _slope(1.0)),
    **dict.fromkeys(("view", "_unsafe_view", "chunk", "split", "split_with_sizes", "unbind"), _slope(1.0)),
    **{name: _slope(activation.slope) for name, activation in ACTIVATIONS.items()},
    "gelu": _slope(GELU_SLOPE),
    "softmax": _slope(0.5),
    "glu": _gated,
    **dict.fromkeys(("leaky_relu", "prelu"), _leaky),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    **{f"conv{axes}d": _convolution for axes in _AXES},
    **{f"max_pool{axes}d": _maxima for axes in _AXES},
    "linear": _linear,
    "mul": _product,
    "div": _quotient,
    **dict.fromkeys(("add", "sub", "rsub"), _sum),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm"), _normalised),
}
