"""Convolutions that pad by their input's size, of PyTorch alone: what ``freeze`` makes of a layer that does so."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn


class SameConv(nn.modules.conv._ConvNd):
    """Pads with zeros, so that a kernel of ``span`` pixels has an output for every stride pixels, and convolves.

    Args:
        span: Along each axis; the convolution's own kernel is larger by twice its own padding.
        odd_first: Whether an odd pixel comes before the axis.
        options: As for the class of PyTorch.
    """

    def __init__(self, *, span: tuple[int, ...], odd_first: bool, **options: Any) -> None:
        super().__init__(**options)
        self.span, self.odd_first = span, odd_first

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of the padded input, [batch, in_channels, *size]."""
        pads: list[int] = []
        for length, stride, span in zip(input.shape[2:], self.stride, self.span, strict=True):
            added = max((-(-length // stride) - 1) * stride + span - length, 0)
            before = (added + self.odd_first) // 2
            pads = [before, added - before, *pads]
        return super().forward(F.pad(input, pads))  # type: ignore[no-any-return]


class SameConv1d(SameConv, nn.Conv1d):
    """Convolution of sequences, padded so."""


class SameConv2d(SameConv, nn.Conv2d):
    """Convolution of images, padded so."""


class SameConv3d(SameConv, nn.Conv3d):
    """Convolution of volumes, padded so."""


SAME: dict[int, type[nn.Module]] = {1: SameConv1d, 2: SameConv2d, 3: SameConv3d}
"""The classes by the number of their axes."""
