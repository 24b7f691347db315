"""Readers: what a subclass of a convolution computes, told by someone who knows it.

A subclass may compute anything in its ``forward``. A reader says which convolution that is: its geometry, and the
kernel that it makes of its parameters at every call. What a reader says is not believed: ``trial.py`` holds it against
the class's own ``forward`` before a layer is converted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import ConversionError
from ..spec import CONVOLUTIONS, Convolution, ConvSpec
from .padded import spec_of


def own_weight(parts: Any) -> Tensor:
    """The weight as it is stored."""
    weight: Tensor = parts.weight
    return weight


@dataclass(frozen=True)
class Reader:
    """Reads the geometry and weights that instances of one class compute with.

    Attributes:
        spec: From an instance to its geometry; by default what PyTorch's class would make of its attributes.
        weight: From the instance's parameters, buffers and attributes, each under its own name (``parts.weight``,
            ``parts.eps``), to the weight that its ``forward`` convolves with, [``ConvSpec.weight_shape``], bit for bit;
            by default the parameter ``weight``. A function at the top of a module, if networks are to be pickled.
    """

    spec: Callable[[Any], ConvSpec] = ConvSpec.from_conv
    weight: Callable[[Any], Tensor] = own_weight


_READERS: dict[type[nn.Module], Reader] = {}
_BUILT_IN: dict[str, Reader] = {}


def register_reader(cls: type[Convolution], reader: Reader) -> None:
    """Makes the instances of exactly this class convertible; its subclasses stay refused.

    The reader is held against the class's own ``forward``, outputs and gradients bit for bit, for every configuration
    that is met; where they differ, the layer is refused and the message says where.

    Args:
        cls: A subclass of one of PyTorch's convolutions.
        reader: What its instances compute. One that was registered before is replaced.

    Raises:
        ConversionError: The class is not a subclass of a convolution, or the reader is no ``Reader``.
    """
    plain = tuple(CONVOLUTIONS.values())
    if not (isinstance(cls, type) and issubclass(cls, plain) and cls not in plain):
        raise ConversionError(f"cls must be a subclass of one of PyTorch's convolutions; got {cls!r:.100}")
    if not isinstance(reader, Reader):
        raise ConversionError(f"reader must be a Reader; got {type(reader).__name__}")
    _READERS[cls] = reader


def build_in(name: str, reader: Reader) -> None:
    """Adds the reader of a class in a library that may not be installed, by the class's qualified name."""
    _BUILT_IN[name] = reader


def reader_of(cls: type) -> Reader | None:
    """The reader of exactly this class, or None if it has none."""
    if cls in _READERS:
        return _READERS[cls]
    return _BUILT_IN.get(qualified_name(cls)) if issubclass(cls, nn.Module) else None


def geometry(conv: Convolution) -> ConvSpec:
    """The geometry of a convolution, as its reader says where it has one."""
    reader = reader_of(type(conv))
    return spec_of(conv) if reader is None else reader.spec(conv)


def qualified_name(cls: type) -> str:
    """Where a class is defined."""
    return f"{cls.__module__}.{cls.__qualname__}"
