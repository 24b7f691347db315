"""Which scale the integers that a ConvInteger gives are multiplied by, somewhere behind it.

Dynamic quantisation writes  Cast(ConvInteger(x, w) + bias) * (scale of x * scale of w),  with the scale of x computed
and that of w in the file. So the output of a ConvInteger is followed through Add and Cast to a Mul, and a computed
number is remembered by the one factor of it that is in the file.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..common.stored import StoredTensor
from .nodes import Node
from .scopes import Known, Unknown

FOLLOWED = ("Add", "Cast", "Mul")
"""Operators that integers are followed through."""


class Scales:
    """The one factor that integers were multiplied by, or None, by the number of the node that gave them."""

    def __init__(self) -> None:
        self._found: dict[int, Known | None] = {}

    def follow(self, node: Node, inputs: Sequence[Known | Unknown | None]) -> Unknown:
        """What a node of one of the ``FOLLOWED`` operators gives.

        Args:
            node: The node.
            inputs: Its inputs, as far as they are known.
        """
        unknown = [each for each in inputs if isinstance(each, Unknown)]
        known = [each for each in inputs if isinstance(each, Known)]
        sums = [each.integers for each in unknown if each.integers is not None]
        plain = Unknown(f"computed by {node.operator}")
        if node.operator != "Mul":
            return plain._replace(integers=sums.pop()) if len(sums) == 1 else plain
        factors = known + [each.factor for each in unknown if each.factor is not None]
        if len(inputs) != 2 or len(factors) != 1:
            return plain
        if not sums:
            return plain._replace(factor=factors.pop())
        number = sums.pop()
        self._found[number] = None if number in self._found else factors.pop()
        return plain

    def of(self, number: int) -> Known | None:
        """The factor that a node's integers are multiplied by, or None if there is none, or more than one."""
        return self._found.get(number)


def for_channels(scale: Known | None, channels: int) -> StoredTensor | None:
    """A scale as one number, or one for each output channel, if it is that: [channels, 1, 1], or with 1 before it."""
    tensor = None if scale is None else scale.tensor
    if not isinstance(tensor, StoredTensor) or tensor.flaw() is not None or tensor.stride is not None:
        return None
    if tensor.numel == 1:
        return StoredTensor.of(tensor.storage, tensor.dtype, shape=[], first=tensor.first)
    shape = list(tensor.shape)
    while shape[0] == 1:
        shape.pop(0)
    if shape != [channels, *[1] * (len(shape) - 1)] or len(shape) < 3:
        return None
    return StoredTensor.of(tensor.storage, tensor.dtype, shape=[channels], first=tensor.first)
