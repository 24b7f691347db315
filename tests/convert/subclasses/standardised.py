"""The arithmetic of libraries' convolutions, which the tests of readers share: none is a copy of other code."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def padded_same(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """TensorFlow's SAME."""
    pads: list[int] = []
    for axis in (1, 0):
        length, stride = x.shape[2 + axis], conv.stride[axis]
        reach = conv.dilation[axis] * (conv.kernel_size[axis] - 1)
        added = max((-(-length // stride) - 1) * stride + reach + 1 - length, 0)
        pads += [added // 2, added - added // 2]
    return F.pad(x, pads)


def convolved(x: Tensor, weight: Tensor, conv: nn.Conv2d) -> Tensor:
    """A convolution with another weight."""
    return F.conv2d(x, weight, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups)


def normalised(conv: nn.Conv2d, eps: float, gain: Tensor | None = None) -> Tensor:
    """The weight, standardised by a batch normalisation, perhaps with a gain for each output channel."""
    flat = conv.weight.reshape(1, conv.out_channels, -1)
    return F.batch_norm(flat, None, None, weight=gain, training=True, momentum=0.0, eps=eps).reshape_as(conv.weight)
