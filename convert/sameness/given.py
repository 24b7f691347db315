"""Inputs of a comparison, as arguments of a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ..errors import OptionError
from ..inputs import other_than_inputs, tensor_of


@dataclass
class Inputs:
    """Arguments of a call, by place and by name."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, inputs: Any) -> Inputs:
        """Inputs as users give them: a tensor or an array, several in a tuple or list, or a mapping by name.

        Raises:
            OptionError: There is no tensor among them.
        """
        if isinstance(inputs, Inputs):
            return inputs
        found = cls((), dict(inputs)) if isinstance(inputs, Mapping) else cls(_placed(inputs))
        found = cls(tree_map(tensor_of, found.args), tree_map(tensor_of, found.kwargs))
        parts = tree_leaves((found.args, found.kwargs))
        if not any(isinstance(one, Tensor) for one in parts):
            got = other_than_inputs(inputs, parts)
            raise OptionError(f"inputs must be a tensor, or several in a sequence or by name; got {got}")
        return found

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors among them."""
        return [one for one in tree_leaves((self.args, self.kwargs)) if isinstance(one, Tensor)]

    def clone(self, dtype: torch.dtype | None = None) -> Inputs:
        """Copies, floating-point tensors in this dtype where one is given."""

        def copied(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return (
                value.detach().clone()
                if dtype is None or not value.is_floating_point()
                else value.detach().to(dtype, copy=True)
            )

        return Inputs(tree_map(copied, self.args), tree_map(copied, self.kwargs))


def _placed(inputs: Any) -> tuple[Any, ...]:
    return tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
