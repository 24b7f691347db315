"""Rules that carry bounds through each operation.

interval.py     bounds on values and differences; rounding
call.py         one operation of a program
roundings.py    how often each rounds: the table from which the others are made
moving.py       entries that are moved, and maxima
weighted.py     linear maps
pointwise.py    activations, sums, products, quotients
normalising.py  normalisations, softmax, attention
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import moving, normalising, pointwise, weighted
from .call import Call
from .interval import Interval, UnboundedError

_AXES = (1, 2, 3)


def _unchanged(call: Call) -> Interval:
    if call.arguments.get("train", False):
        raise UnboundedError("dropout draws random numbers while it trains")
    return call.x


RULES: dict[str, Callable[[Call], Any]] = {
    **dict.fromkeys(moving.MOVES, moving.move),
    **dict.fromkeys(("pad", "constant_pad_nd"), moving.pad),
    **dict.fromkeys(("dropout", "feature_dropout", "native_dropout"), _unchanged),
    **{f"conv{axes}d": weighted.convolution for axes in _AXES},
    **{f"conv_transpose{axes}d": weighted.convolution for axes in _AXES},
    "linear": weighted.linear,
    **dict.fromkeys(("batch_norm", "_native_batch_norm_legit_no_training"), weighted.batch_norm),
    **{f"{kind}avg_pool{axes}d": weighted.average for axes in _AXES for kind in ("", "adaptive_")},
    **dict.fromkeys(("mean", "sum"), weighted.average),
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d"), weighted.interpolate),
    **dict.fromkeys(("matmul", "bmm", "mm", "addmm", "baddbmm"), weighted.matrix_product),
    **pointwise.ACTIVATIONS,
    "gelu": pointwise.gelu,
    "elu": pointwise.elu,
    **dict.fromkeys(("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"), pointwise.clamp),
    **dict.fromkeys(("leaky_relu", "prelu"), pointwise.leaky),
    "glu": pointwise.glu,
    **dict.fromkeys(("add", "sub", "rsub"), pointwise.add),
    "mul": pointwise.multiply,
    "div": pointwise.divide,
    **dict.fromkeys(("_to_copy", "to"), pointwise.cast),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm"), normalising.normalise),
    "softmax": normalising.softmax,
    "scaled_dot_product_attention": normalising.attend,
}


def bound(call: Call) -> Any:
    """Bounds on the result of an operation, or a list of them where it has several.

    Raises:
        UnboundedError: Nothing is known of it.
    """
    rule = RULES.get(call.name)
    if rule is None:
        raise UnboundedError(f"no bound is known for {call.name}")
    return rule(call)
