"""Operations on constants alone: exact where they move numbers or are of whole ones, else values like any other.

A weight that the network computes (weight standardisation, weight norm, a table of sines) is rounded as it is
computed, and another program rounds it in another way. So what is computed of a constant has bounds, a center in double
precision, and steps of its own, from the first operation that may round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from ...programs.walk import operator_name
from .call import is_held
from .interval import Known
from .moved import MADE, MOVES, NEAREST

CASTS = ("to", "_to_copy")
OF_SHAPES = ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")  # read no number
NORMED = ("batch_norm", "_native_batch_norm_legit", "layer_norm", "group_norm", "instance_norm")
_FILLED = (*OF_SHAPES, *MADE, "zeros", "ones", "eye")
_ANSWERS = (*("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "argmax", "argmin"), *CASTS)
_ROUNDED_DOWN = ("linspace", "logspace")  # integers of these are computed as fractions


def exact_constant(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The result of an operation on constants, or None where it may round."""
    target: Any = node.target
    name, results = operator_name(target), [one for one in tree_leaves(node.meta["val"]) if isinstance(one, Tensor)]
    given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    is_real = any(one.is_floating_point() for one in given)
    if not results or (name in MOVES and name not in NEAREST):
        return target(*args, **kwargs)
    if not any(one.is_floating_point() for one in results):
        is_exact = name in _ANSWERS if is_real else name not in _ROUNDED_DOWN
        return target(*args, **kwargs) if is_exact else None
    if name in CASTS:
        found = target(*args, **kwargs)
        return found if torch.equal(found.double(), given[0].double()) else None
    if name in _FILLED:
        found = target(*args, **kwargs)
        return found if torch.equal(found.double(), _in_double(target, args, kwargs)) else None
    return None


def without_values(node: fx.Node, args: Any) -> Any:
    """The arguments of an operation of ``OF_SHAPES``, with zeros in place of what it takes the shape of."""
    first: Any = node.args[0]
    like = first.meta["val"]
    return (torch.zeros(like.shape, dtype=like.dtype, device="cpu"), *args[1:])


def _in_double(target: Any, args: Any, kwargs: Any) -> Tensor:
    found: Tensor = target(*args, **{**kwargs, "dtype": torch.float64})
    return found


def started(node: fx.Node, args: Any, kwargs: Any, constant: Callable[[Tensor], Known]) -> tuple[Any, Any]:
    """The arguments of an operation on constants, with bounds in place of the first that is a number of them."""
    target: Any = node.target
    if operator_name(target) in MADE:
        return (constant(_in_double(target, args, kwargs)),), {}
    dtype = next(one.dtype for one in tree_leaves(node.meta["val"]) if isinstance(one, Tensor))
    tensors = [place for place, one in enumerate(args) if isinstance(one, Tensor)]
    real = [place for place in tensors if args[place].is_floating_point()]
    first = next(iter(real or tensors), None)
    if first is None or not dtype.is_floating_point or not is_held(args[first], dtype):
        return args, kwargs
    return (*args[:first], constant(args[first].detach().cpu().double()), *args[first + 1 :]), kwargs
