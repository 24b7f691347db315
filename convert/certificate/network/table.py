r"""The table of operations: for each what it makes of bounds, what it is near a point, and how often it rounds.

A value goes through ``terms`` roundings in the precision u that is computed in, at least binary32, and through
``narrowings`` in the precision v of the tensors where that is less. The result then errs by at most

    ((1 + gamma_terms(u)) (1 + v)^narrowings - 1) sum |terms|  +  underflow

whatever the order of the sum. The claim ``operation-roundings`` (``proofs/claims/certificate/operation_roundings.py``)
derives each row; ``narrowings`` is the largest number that one of torch's implementations takes, whatever the memory
format: batch norm and linear layers store more steps where memory is not contiguous, transposed convolutions what each
tap gives, averages in three axes whose windows adapt every partial sum. Linear interpolation stores products and sums
of each axis; what its places err by is added by its rule (``products.interpolate``). Attention rounds after each of its
steps (``normalised.attend``).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

from ...bounds.rounding import EXP_ULPS
from .call import Call
from .interval import Interval, UnboundedError, checked
from .moved import MADE, MOVES, cast, kept, made, maximum, move, moved, pad, padded, unchanged
from .normalised import (
    Norm,
    attend,
    attended,
    near_variance_and_mean,
    norm,
    shared,
    softmax,
    spread,
    variance_and_mean,
)
from .operation import Count, Exact, Operation, exactly
from .pointwise import (
    CURVES,
    Power,
    add,
    added,
    clamp,
    curve,
    divide,
    divided,
    elu,
    exponential,
    gated,
    glu,
    leaky,
    multiplied,
    multiply,
    negated,
    negative,
    root,
    wave,
)
from .products import (
    BatchNorm,
    average,
    averaged,
    batch_norm,
    convolution,
    interpolate,
    linear,
    matrix_product,
    multiplied_matrices,
    weight_shape,
)

ACTIVATION_ULPS = 32


def _products(call: Call) -> int:
    return math.prod(weight_shape(call)[1:]) + 1


def _transposed_products(call: Call) -> int:
    """Products of a transposed convolution: each output reads in_channels / groups channels, at most at every tap."""
    return weight_shape(call)[0] // int(call["groups"]) * _taps(call) + 1


def _taps(call: Call) -> int:
    return math.prod(weight_shape(call)[2:])


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


def _trains(call: Call) -> bool:
    """Whether batch norm takes its statistics from what it is given."""
    return bool(call.arguments.get("training", False))


def _batch_norm(call: Call) -> BatchNorm | Norm:
    return norm(call) if _trains(call) else batch_norm(call)


def _spread_count(call: Call) -> int:
    """Roundings of a norm of values, or of a variance: as of layer norm's."""
    count = math.prod(call.x.low.shape[one] for one in spread(call).dims)
    return count + 2 if call.name == "linalg_vector_norm" else 2 * count + 16


_AXES = (1, 2, 3)
_ACTIVATED = exactly(2 * ACTIVATION_ULPS)
_POOLS = tuple(f"{kind}max_pool{axes}d" for kind, axes in itertools.product(("", "adaptive_"), _AXES))

TABLE: dict[str, Operation] = {
    **dict.fromkeys(MOVES, Operation(move, moved)),
    **dict.fromkeys((*_POOLS, "amax"), Operation(move, maximum)),
    **dict.fromkeys(("clone", "contiguous", "alias", "detach", "lift_fresh_copy"), Operation(move, kept)),
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout"), Operation(unchanged, kept)),
    **dict.fromkeys(("_to_copy", "to"), Operation(cast, kept, exactly(1))),
    **dict.fromkeys(("pad", "constant_pad_nd"), Operation(pad, padded)),
    **{f"conv{axes}d": Operation.of(convolution, _products) for axes in _AXES},
    **{
        f"conv_transpose{axes}d": Operation.of(convolution, _transposed_products, lambda call: _taps(call) + 2)
        for axes in _AXES
    },
    "linear": Operation.of(linear, _products, _has("bias")),
    **dict.fromkeys(
        ("batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"),
        Operation.of(_batch_norm, lambda call: 2 * _normalised(call) + 16 if _trains(call) else 8, exactly(7)),
    ),
    **{f"avg_pool{axes}d": Operation(average, averaged, lambda call: _averaged(call) + 1) for axes in _AXES},
    **{f"adaptive_avg_pool{axes}d": Operation(average, averaged, lambda call: _averaged(call) + 2) for axes in (1, 2)},
    "adaptive_avg_pool3d": Operation(average, averaged, lambda call: _averaged(call) + 2, _adaptive_narrowings),
    "mean": Operation(average, averaged, lambda call: _averaged(call) + 1),
    "sum": Operation(average, averaged, _averaged),
    "upsample_linear1d": Operation(interpolate, averaged, exactly(8), exactly(4)),
    "upsample_bilinear2d": Operation(interpolate, averaged, exactly(16), exactly(7)),
    **dict.fromkeys(CURVES, Operation.of(curve, _ACTIVATED)),
    "abs": Operation.of(curve),
    **dict.fromkeys(("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"), Operation.of(clamp)),
    **dict.fromkeys(("leaky_relu", "prelu"), Operation.of(leaky, _ACTIVATED)),
    "elu": Operation.of(elu, _ACTIVATED),
    "glu": Operation(glu, gated, exactly(2 * ACTIVATION_ULPS + 1), exactly(2)),
    **dict.fromkeys(
        ("add", "sub", "rsub"), Operation(add, added, exactly(2), lambda call: 1 if call["alpha"] == 1 else 2)
    ),
    "mul": Operation(multiply, multiplied, exactly(1)),
    "div": Operation(divide, divided, exactly(2)),
    "neg": Operation(negative, negated),
    **dict.fromkeys(("reciprocal", "square"), Operation.of(root, exactly(1))),
    "sqrt": Operation.of(root, exactly(2)),
    "rsqrt": Operation.of(root, exactly(3), exactly(2)),
    "pow": Operation.of(Power.of, _ACTIVATED, exactly(2)),
    "exp": Operation.of(exponential, _ACTIVATED),
    **dict.fromkeys(("sin", "cos"), Operation.of(wave, _ACTIVATED)),
    **dict.fromkeys(("linalg_vector_norm", "var", "std"), Operation.of(spread, _spread_count)),
    "var_mean": Operation(variance_and_mean, near_variance_and_mean, _spread_count),
    **dict.fromkeys(MADE, Operation(made, kept, exactly(5))),
    **dict.fromkeys(
        ("layer_norm", "group_norm", "instance_norm"),
        Operation.of(norm, lambda call: 2 * _normalised(call) + 16, exactly(7)),
    ),
    "softmax": Operation(softmax, shared, lambda call: _softmaxed(call) + 4 * EXP_ULPS + 4, exactly(3)),
    **dict.fromkeys(
        ("matmul", "bmm", "mm", "mv", "dot", "vdot"), Operation(matrix_product, multiplied_matrices, _summed)
    ),
    **dict.fromkeys(
        ("addmm", "baddbmm"),
        Operation(matrix_product, multiplied_matrices, lambda call: _summed(call) + 3, exactly(3)),
    ),
    "scaled_dot_product_attention": Operation(attend, attended),
}


def row(call: Call) -> Operation:
    """An operation's row of the table.

    Raises:
        UnboundedError: It has none.
    """
    found = TABLE.get(call.name)
    if found is None:
        raise UnboundedError(f"no bound is known for {call.name}")
    return found


def bound(call: Call) -> Any:
    """Bounds on the result of an operation, or a list of them where it has several.

    Raises:
        UnboundedError: Nothing is known of it.
    """
    operation = row(call)
    terms = 0 if operation.terms is None else operation.terms(call)
    found = operation.bounds(replace(call, terms=terms))
    if isinstance(found, Exact) and operation.terms is None:
        found = checked(found.bounds)
    elif isinstance(found, Exact):
        found = found.rounded(call.arithmetic, terms, operation.narrowings(call), same=call.is_same)
    return _of_several(call, found)


def near(call: Call) -> Any:
    """An operation near a point, or a list where it has several results.

    Raises:
        UnboundedError: Nothing is known of it.
    """
    return _of_several(call, row(call).near(call))


def _of_several(call: Call, found: Any) -> Any:
    """The first of an operation's results, of whose others nothing is known."""
    several = len(call.target._schema.returns)
    return found if several == 1 or isinstance(found, list) else [found, *[None] * (several - 1)]
