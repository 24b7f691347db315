"""Nodes that take the place of one convolution node, in the order in which they compute.

Every name begins with that of the node's output, which no other tensor of the file has, so none is taken. A constant is
a node, not an initializer: files of the standard's first versions list each initializer as an input of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...files.readers.onnx import onnx_package

if TYPE_CHECKING:
    from onnx import NodeProto

FLOAT, DOUBLE = 1, 11  # ONNX's types
COMPUTED = {torch.float64: DOUBLE, torch.float32: FLOAT}
"""ONNX's types of the precisions that attention is computed in."""
STORED = {**COMPUTED, torch.float16: 10, torch.bfloat16: 16}
"""ONNX's types of the precisions that a convolution's weights may have."""


class Nodes:
    """Nodes that are added one by one.

    Args:
        prefix: Beginning of the names of nodes and tensors.

    Attributes:
        written: The nodes.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._taken: dict[str, int] = {}
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], str] = {}
        self.written: list[NodeProto] = []
        self._onnx = onnx_package("writing ONNX files")

    def add(
        self,
        operator: str,
        *inputs: str,
        name: str = "",
        output: str = "",
        description: str = "",
        **attributes: int | float | list[int],
    ) -> str:
        """Adds a node of an operator with its inputs and attributes, and gives the name of its output.

        That is the prefix with ``name``, which is the operator's by default, or ``output`` where it is given whole.
        """
        own = self._new(name or operator)
        self.written.append(
            self._onnx.helper.make_node(
                operator, inputs, [output or own], own, doc_string=description or None, **attributes
            )
        )
        return output or own

    def constant(self, values: object, dtype: str = "int64", *, name: str = "", description: str = "") -> str:
        """Adds a constant, once for all that have the same numbers, and gives its name."""
        array = np.asarray(values, dtype)
        key = array.dtype.name, array.tobytes(), array.shape
        if key not in self._constants:
            own = self._constants[key] = self._new(name or "constant")
            value = self._onnx.numpy_helper.from_array(array)
            self.written.append(
                self._onnx.helper.make_node("Constant", [], [own], own, doc_string=description or None, value=value)
            )
        return self._constants[key]

    def numbers(self, values: Sequence[float], shape: tuple[int, ...], *, name: str) -> str:
        """Adds a constant of double precision in a shape."""
        return self.constant(np.reshape(values, shape), "float64", name=name)

    def cast(self, value: str, code: int, *, name: str = "") -> str:
        """Adds a Cast to one of ONNX's types."""
        return self.add("Cast", value, name=name, to=code)

    def reshaped(self, value: str, *sizes: int | str, name: str = "") -> str:
        """Adds a Reshape to sizes that are numbers (-1 for what is left) or tensors of shape [] or [any]."""
        return self.add("Reshape", value, self.joined(*sizes), name=name)

    def joined(self, *sizes: int | str) -> str:
        """One tensor of integers, [n], of numbers and tensors."""
        if all(isinstance(size, int) for size in sizes):
            return self.constant(list(sizes))
        parts: list[str] = []
        for kind, group in groupby(sizes, type):  # numbers that follow each other are one constant
            run = list(group)
            parts += [self.constant(run)] if kind is int else map(str, run)
        return self.add("Concat", *parts, axis=0)

    def _new(self, name: str) -> str:
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return f"{self._prefix}/{name}" + (f"_{count}" if count > 1 else "")
