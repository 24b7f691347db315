"""Inputs of a network as the command line describes them, of any number, shape and dtype, by the arguments' names.

    pixel_values=2x3x64x96        float32
    timestep=2:int64
    mask=2x64x96:bool

Torch is not needed to read them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import OptionError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_FORM = "NAME=SHAPE or NAME=SHAPE:DTYPE, as in pixel_values=1x3x224x224 or timestep=1:int64"
_SHAPE = re.compile(r"\d{1,18}(x\d{1,18})*|scalar")
_MOST = 2**31 - 1  # numbers in one input
_KINDS = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True)
class InputSpec:
    """One input of a network.

    Attributes:
        name: The argument of the network's ``forward`` that takes it.
        shape: Its shape, the batch included.
        kind: The name of its dtype.
    """

    name: str
    shape: tuple[int, ...]
    kind: str = "float32"

    @property
    def dtype(self) -> torch.dtype:
        """Its dtype."""
        import torch

        found: torch.dtype = getattr(torch, self.kind)
        return found

    def random(self, generator: torch.Generator) -> Tensor:
        """Normal numbers; integers and truth values are 0 or 1, which indices, classes, steps and masks may all be."""
        import torch

        if self.dtype.is_floating_point:
            return torch.randn(self.shape, generator=generator, dtype=torch.float32, device="cpu").to(self.dtype)
        return torch.randint(0, 2, self.shape, generator=generator, device="cpu").to(self.dtype)


def parse_input(text: str) -> InputSpec:
    """Reads one input.

    Raises:
        OptionError: It has another form, or more numbers than a tensor may have.
    """
    name, equals, rest = text.partition("=")
    shape, colon, kind = rest.partition(":")
    if not (name.isidentifier() and equals and _SHAPE.fullmatch(shape) and (kind in _KINDS or not colon)):
        raise OptionError(f"an input is {_FORM}, with one of {', '.join(_KINDS)}; got {text!r:.200}")
    lengths = () if shape == "scalar" else tuple(map(int, shape.split("x")))
    if not 0 < math.prod(lengths) <= _MOST:
        raise OptionError(f"an input has 1 to {_MOST} numbers; got {text!r:.200}")
    return InputSpec(name, lengths, kind or "float32")


def parse_inputs(texts: Sequence[str]) -> tuple[InputSpec, ...]:
    """Reads several inputs.

    Raises:
        OptionError: One has another form, or two have one name.
    """
    specs = tuple(map(parse_input, texts))
    twice = {spec.name for spec in specs if [other.name for other in specs].count(spec.name) > 1}
    if twice:
        raise OptionError(f"two inputs are named {', '.join(sorted(twice))}")
    return specs
