"""Small integers: no sum of their products is rounded, so equality of results is bitwise."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def integers(*shape: int, largest: int = 3, dtype: torch.dtype = torch.float32) -> Tensor:
    """Integers from -largest to largest."""
    return torch.randint(-largest, largest + 1, shape).to(dtype)


def with_integers(module: Module, *, largest: int = 3) -> Module:
    """Replaces the values of every parameter of a module, which is returned."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(integers(*parameter.shape, largest=largest))
    return module
