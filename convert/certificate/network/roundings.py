r"""Number of roundings of each operation: the table from which the rules are made.

A value goes through ``terms`` roundings in the precision u that is computed in, at least binary32, and through
``narrowings`` in the precision v of the tensors where that is less. The result then errs by at most

    ((1 + gamma_terms(u)) (1 + v)^narrowings - 1) sum |terms|  +  underflow

whatever the order of the sum. The claim ``operation-roundings`` (``proofs/claims/certificate/operation_roundings.py``)
derives each row; ``narrowings`` is the largest number that one of torch's implementations takes, whatever the memory
format: batch norm and linear layers store more steps where memory is not contiguous, transposed convolutions what each
tap gives, averages in three axes whose windows adapt every partial sum. Linear interpolation stores products and sums
of each axis; what its places err by is added by its rule (``weighted.interpolate``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...bounds.rounding import EXP_ULPS
from .call import Call
from .interval import Interval

ACTIVATION_ULPS = 32

Count = Callable[[Call], int]


@dataclass(frozen=True)
class Rounding:
    """Roundings of an operation, as numbers or as functions of its call.

    Attributes:
        terms: In the precision that is computed in.
        narrowings: To the precision of the tensors.
    """

    terms: Count
    narrowings: Count = lambda call: 1


def rounded(call: Call, exact: Interval, scale: Tensor, **options: Any) -> Interval:
    """Bounds on an operation's computed result: ``Arithmetic.rounded`` with the table's numbers of roundings."""
    counted = ROUNDINGS[call.name]
    terms, narrowings = counted.terms(call), counted.narrowings(call)
    return call.arithmetic.rounded(exact, scale, terms, same=call.is_same, narrowings=narrowings, **options)


def _exactly(count: int) -> Count:
    return lambda call: count


def _products(call: Call) -> int:
    weight: Tensor = call["weight"]
    return weight[0].numel() + 1


def _transposed_products(call: Call) -> int:
    """Products of a transposed convolution: each output reads in_channels / groups channels, at most at every tap."""
    weight: Tensor = call["weight"]
    return len(weight) // int(call["groups"]) * weight[0, 0].numel() + 1


def _taps(call: Call) -> int:
    weight: Tensor = call["weight"]
    return weight[0, 0].numel()


def _averaged(call: Call) -> int:
    """Values of an average: all that are reduced, or those of a window."""
    sizes = call.arguments.get("kernel_size")
    if sizes is not None:
        axes = int(call.name.removesuffix("d")[-1])
        return math.prod(list(sizes) * axes if len(sizes) == 1 else sizes)
    before, after = call.x.low.shape, call.shape
    if call.name.startswith("adaptive"):
        axes = int(call.name.removesuffix("d")[-1])
        return math.prod(map(_largest_window, before[-axes:], after[-axes:]))
    return math.prod(before) // max(1, math.prod(after))


def _largest_window(size: int, windows: int) -> int:
    """The most pixels of an axis in one of so many windows: the i-th is from floor(i s / n) to ceil((i + 1) s / n)."""
    return max((-(-(i + 1) * size // windows) - i * size // windows for i in range(windows)), default=1)


def _adaptive_narrowings(call: Call) -> int:
    return _averaged(call) + 3 if math.prod(call.shape[-3:]) > 1 else 1


def _normalised(call: Call) -> int:
    """Values that are normalised together: of a shape, or of a group of channels and all pixels."""
    x = call.x.low
    shape: list[int] = call["normalized_shape"] if call.name == "layer_norm" else list(x.shape[1:])
    groups: int = call["num_groups"] if call.name == "group_norm" else x.shape[1]
    return math.prod(shape) // (1 if call.name == "layer_norm" else groups)


def _softmaxed(call: Call) -> int:
    return int(call.x.low.shape[call["dim"]])


def _summed(call: Call) -> int:
    """Products of a matrix product: the length of the first factor's last dimension."""
    factor = call.matrices[-2]
    return int((factor.low if isinstance(factor, Interval) else factor).shape[-1])


def _has(name: str) -> Count:
    """2 where an operand is added behind the products, which are narrowed before."""
    return lambda call: 1 if call.arguments.get(name) is None else 2


_AXES = (1, 2, 3)
_ONE, _ACTIVATION = Rounding(_exactly(1)), Rounding(_exactly(2 * ACTIVATION_ULPS))

ROUNDINGS: dict[str, Rounding] = {
    **{f"conv{axes}d": Rounding(_products) for axes in _AXES},
    **{f"conv_transpose{axes}d": Rounding(_transposed_products, lambda call: _taps(call) + 2) for axes in _AXES},
    "linear": Rounding(_products, _has("bias")),
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), Rounding(_exactly(8), _exactly(7))),
    **{f"avg_pool{axes}d": Rounding(lambda call: _averaged(call) + 1) for axes in _AXES},
    **{f"adaptive_avg_pool{axes}d": Rounding(lambda call: _averaged(call) + 2) for axes in (1, 2)},
    "adaptive_avg_pool3d": Rounding(lambda call: _averaged(call) + 2, _adaptive_narrowings),
    "mean": Rounding(lambda call: _averaged(call) + 1),
    "sum": Rounding(lambda call: _averaged(call)),
    "upsample_linear1d": Rounding(_exactly(8), _exactly(4)),
    "upsample_bilinear2d": Rounding(_exactly(16), _exactly(7)),
    **dict.fromkeys(("sigmoid", "tanh", "hardsigmoid", "silu", "gelu", "hardswish", "elu"), _ACTIVATION),
    **dict.fromkeys(("leaky_relu", "prelu"), _ACTIVATION),
    **dict.fromkeys(("add", "sub", "rsub"), Rounding(_exactly(2), lambda call: 1 if call["alpha"] == 1 else 2)),
    "mul": _ONE,
    "div": Rounding(_exactly(2)),
    "glu": Rounding(_exactly(2 * ACTIVATION_ULPS + 1), _exactly(2)),
    **dict.fromkeys(
        ("layer_norm", "group_norm", "instance_norm"), Rounding(lambda call: 2 * _normalised(call) + 16, _exactly(7))
    ),
    "softmax": Rounding(lambda call: _softmaxed(call) + 4 * EXP_ULPS + 4, _exactly(3)),
    **dict.fromkeys(("matmul", "bmm", "mm"), Rounding(_summed)),
    **dict.fromkeys(("addmm", "baddbmm"), Rounding(lambda call: _summed(call) + 3, _exactly(3))),
    **dict.fromkeys(("_to_copy", "to"), _ONE),
}
