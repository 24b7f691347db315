"""What PyTorch's own operations write into, and in which order they take their arguments, by PyTorch's own table.

A program names its operations by texts. They are looked up in a table of all that PyTorch has, and none is called.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from itertools import pairwise

import torch

_PREFIX = "torch.ops.aten."
_PURE = "torch.ops.quantized_decomposed."  # rounding to integers and back
_STATISTICS = ("running_mean", "running_var")  # which normalisation changes, and its schemas do not say so


def written_arguments(target: str) -> frozenset[str] | None:
    """Names of the arguments that an operation may write into, or None if these may be all."""
    if target.startswith(_PURE):
        return frozenset()
    schema = _schemas().get(target)
    if schema is None:
        return None
    return frozenset(
        argument.name
        for argument in schema.arguments
        if argument.name in _STATISTICS or (argument.alias_info is not None and argument.alias_info.is_write)
    )


def is_out_of_place(target: str, positional: Collection[str]) -> bool:
    """Whether an argument that is given by its place comes behind one that is not given so, and takes its place.

    Args:
        target: The operation.
        positional: Names of the arguments that are given by their places.
    """
    schema = _schemas().get(target)
    places = [] if schema is None else [argument for argument in schema.arguments if argument.has_default_value()]
    given = [argument.name in positional for argument in places]
    return any(behind and not before for before, behind in pairwise(given))


@cache
def _schemas() -> dict[str, torch._C.FunctionSchema]:
    """All operations of PyTorch, as programs name them."""
    found = torch._C._jit_get_all_schemas()
    return {
        f"{_PREFIX}{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}": schema
        for schema in found
        if schema.name.startswith("aten::")
    }
