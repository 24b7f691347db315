"""A function of tensors as a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Call(nn.Module):
    """A network without parameters.

    Args:
        call: The function.
        text: The call, as one would write it.
    """

    def __init__(self, call: Callable[[Tensor], Any], text: str = "") -> None:
        super().__init__()
        self.call, self.text = call, text

    def forward(self, x: Tensor) -> Any:
        """The function's result."""
        return self.call(x)

    def extra_repr(self) -> str:
        """The call."""
        return self.text
