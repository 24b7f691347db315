"""Convolutions with a padding that PyTorch's classes do not have: uneven, or dependent on the input's size.

Files of other frameworks have them. Each is a ``ConvSpec``; here is the class that computes it, so that there is a
convolution to convert and to give back.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from .spec import CONVOLUTIONS, Convolution, ConvSpec


class _Padded(nn.modules.conv._ConvNd):
    """A convolution that pads its input with zeros as its ``spec`` says, and then calls PyTorch's own.

    Args:
        spec: The geometry, with zeros as padding, not transposed.
        options: ``device`` and ``dtype``.
    """

    def __init__(self, spec: ConvSpec, **options: Any) -> None:
        super().__init__(**(spec.arguments() | {"padding": 0}), **options)
        self.spec = spec

    def forward(self, input: Tensor) -> Tensor:
        """As the class of PyTorch, on the padded input, [batch, in_channels, *size] or without the batch."""
        if input.ndim == self.spec.axes + 1:
            return self(input.unsqueeze(0)).squeeze(0)  # type: ignore[no-any-return]
        return super().forward(self.spec.pad(input))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The geometry."""
        return str(self.spec)


class PaddedConv1d(_Padded, nn.Conv1d):
    """``nn.Conv1d`` with any padding by zeros."""


class PaddedConv2d(_Padded, nn.Conv2d):
    """``nn.Conv2d`` with any padding by zeros."""


class PaddedConv3d(_Padded, nn.Conv3d):
    """``nn.Conv3d`` with any padding by zeros."""


PADDED: dict[int, type[nn.Module]] = {1: PaddedConv1d, 2: PaddedConv2d, 3: PaddedConv3d}


def has_class(spec: ConvSpec) -> bool:
    """Whether there is a class that computes a geometry."""
    return not spec.is_uneven or (spec.padding_mode == "zeros" and not spec.transposed)


def convolution(spec: ConvSpec, **options: Any) -> Convolution:
    """A new convolution with a geometry.

    Args:
        spec: One that ``has_class``.
        options: ``device`` and ``dtype`` of its parameters.
    """
    if spec.is_uneven:
        padded: Any = PADDED[spec.axes](spec, **options)
        return cast(Convolution, padded)
    return CONVOLUTIONS[spec.axes, spec.transposed](**spec.arguments(), **options)


def spec_of(conv: Convolution) -> ConvSpec:
    """The geometry of a convolution of one of these classes, or of one of PyTorch's."""
    return conv.spec if isinstance(conv, _Padded) else ConvSpec.from_conv(conv)
