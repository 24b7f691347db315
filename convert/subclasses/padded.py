"""Convolutions with a padding that PyTorch's classes do not have: uneven, or dependent on the input's size.

Files of other frameworks have them. Each is a ``ConvSpec``; here is the class that computes it, so that there is a
convolution to convert and to give back. A transposed convolution's padding is what it crops of its result: an uneven
one crops the ends of an axis differently.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from ..spec import CONVOLUTIONS, Convolution, ConvSpec


class _Uneven(nn.modules.conv._ConvNd):
    """A convolution of PyTorch's without padding, which its ``spec`` says.

    Args:
        spec: The geometry, with zeros as padding.
        options: ``device`` and ``dtype``.
    """

    def __init__(self, spec: ConvSpec, **options: Any) -> None:
        super().__init__(**(spec.arguments() | {"padding": 0}), **options)
        self.spec = spec

    def extra_repr(self) -> str:
        """The geometry."""
        return str(self.spec)


class _Padded(_Uneven):
    """Pads its input with zeros, and then calls PyTorch's own."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim == self.spec.axes + 1:
            return self(input.unsqueeze(0)).squeeze(0)  # type: ignore[no-any-return]
        return super().forward(self.spec.pad(input))  # type: ignore[no-any-return]


class _Cropped(_Uneven):
    """Calls PyTorch's own transposed convolution, and crops its result."""

    def forward(self, input: Tensor) -> Tensor:
        return self.spec.crop(super().forward(input))


class PaddedConv1d(_Padded, nn.Conv1d):
    """``nn.Conv1d`` with any padding by zeros."""


class PaddedConv2d(_Padded, nn.Conv2d):
    """``nn.Conv2d`` with any padding by zeros."""


class PaddedConv3d(_Padded, nn.Conv3d):
    """``nn.Conv3d`` with any padding by zeros."""


class CroppedConvTranspose1d(_Cropped, nn.ConvTranspose1d):  # type: ignore[misc]  # takes no output_size
    """``nn.ConvTranspose1d`` with any padding."""


class CroppedConvTranspose2d(_Cropped, nn.ConvTranspose2d):  # type: ignore[misc]  # takes no output_size
    """``nn.ConvTranspose2d`` with any padding."""


class CroppedConvTranspose3d(_Cropped, nn.ConvTranspose3d):  # type: ignore[misc]  # takes no output_size
    """``nn.ConvTranspose3d`` with any padding."""


PADDED: dict[tuple[int, bool], type[nn.Module]] = {
    (1, False): PaddedConv1d,
    (2, False): PaddedConv2d,
    (3, False): PaddedConv3d,
    (1, True): CroppedConvTranspose1d,
    (2, True): CroppedConvTranspose2d,
    (3, True): CroppedConvTranspose3d,
}
"""The classes by the number of their axes and whether they are transposed."""


def has_class(spec: ConvSpec) -> bool:
    """Whether there is a class that computes a geometry."""
    return not spec.is_uneven or spec.padding_mode == "zeros"


def convolution(spec: ConvSpec, **options: Any) -> Convolution:
    """A new convolution with a geometry.

    Args:
        spec: One that ``has_class``.
        options: ``device`` and ``dtype`` of its parameters.
    """
    if spec.is_uneven:
        padded: Any = PADDED[spec.axes, spec.transposed](spec, **options)
        return cast(Convolution, padded)
    return CONVOLUTIONS[spec.axes, spec.transposed](**spec.arguments(), **options)


def spec_of(conv: Convolution) -> ConvSpec:
    """The geometry of a convolution of one of these classes, or of one of PyTorch's."""
    return conv.spec if isinstance(conv, _Uneven) else ConvSpec.from_conv(conv)
