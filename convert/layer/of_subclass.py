"""The attention layer of a subclass that has a reader.

The layer has the parameters and buffers of the convolution, under their names; its ``weight`` is what the reader makes
of them, at each call. So its state dict, its optimizer and its gradients are the convolution's. What else the
convolution was is kept as its ``Origin``: its class, and its attributes, of which the very class is made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..engines import AUTO
from ..spec import Convolution
from ..subclasses.readers import Origin, Reader
from .layer import SelfAttention, SelfAttention1d, SelfAttention2d, SelfAttention3d


class OfSubclass(SelfAttention):
    """A self-attention layer whose weight is what a reader makes of its parameters.

    Args:
        conv: The convolution, whose parameters and buffers it shares.
        reader: What its class computes.
        alpha: As ``SelfAttention``'s.
        engine: As ``SelfAttention``'s.

    Attributes:
        origin: The convolution that it was.
    """

    origin: Origin

    def __init__(self, conv: Convolution, reader: Reader, *, alpha: float | None = None, engine: str = AUTO) -> None:
        weight, bias = conv.get_parameter("weight"), conv._parameters["bias"]
        super().__init__(reader.spec(conv), weight=weight, bias=bias, alpha=alpha, engine=engine)
        self.origin = Origin.of(conv, reader)
        for name, parameter in conv._parameters.items():
            if name not in self._parameters:
                self.register_parameter(name, parameter)
        for name, persistent in self.origin.buffers.items():
            self.register_buffer(name, conv._buffers[name], persistent=persistent)
        self.train(conv.training)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As ``SelfAttention``'s; the parameter ``weight`` lies behind the property."""
        if name == "weight":
            self._parameters[name] = param
        else:
            super().register_parameter(name, param)

    if not TYPE_CHECKING:  # a property in place of a parameter, as torch's own parametrisations are

        @property
        def weight(self) -> Tensor:
            """The value projections, computed anew at each access, as the class does at each call."""
            return self.origin.weight(self._parameters, self._buffers)

    def extra_repr(self) -> str:
        """As ``SelfAttention``'s, and which class the convolution was of."""
        return f"{super().extra_repr()}, of={self.origin.kind.__name__}"


class OfSubclass1d(OfSubclass, SelfAttention1d):
    """``OfSubclass`` over sequences."""


class OfSubclass2d(OfSubclass, SelfAttention2d):
    """``OfSubclass`` over images."""


class OfSubclass3d(OfSubclass, SelfAttention3d):
    """``OfSubclass`` over volumes or films."""


OF_SUBCLASS: dict[int, type[OfSubclass]] = {1: OfSubclass1d, 2: OfSubclass2d, 3: OfSubclass3d}
