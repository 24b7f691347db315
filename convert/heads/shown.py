"""Positions as tensors that are only looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import ConversionError

_WRITES = ("__setitem__", "__set__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__")


class Shown(Tensor):
    """A tensor made of a layer's numbers, which to write to, or to ask for a gradient of, would change nothing.

    Raises:
        ConversionError: By whatever writes to it. What is computed of it is an ordinary tensor.
    """

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs what only reads."""
        name = getattr(func, "__name__", "")
        if name in _WRITES or (name.endswith("_") and not name.endswith("__") and isinstance(args[0], Shown)):
            raise ConversionError(
                "alpha and centers are copies of a layer's numbers, so writing to them changes nothing: "
                "layer.set_positions(alpha=..., centers=...) sets them, and melt(layer) or layer.train_positions() "
                "makes them train"
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles it as an ordinary tensor."""
        return self.as_subclass(Tensor).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Tensor:
        """Likewise."""
        return self.as_subclass(Tensor).clone()
