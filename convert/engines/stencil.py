"""Softmax along one axis as a stencil: the same weights for every query, rescaled near the border.

A quadratic score depends only on where the key lies relative to the query. So does its exponential, and only the sum
that normalises it notices where the image ends:

    softmax_k(-alpha (k - q - c)^2) = g(k - q) scale(q),      g(d) = exp(-alpha (d - c)^2) / Z,
    scale(q) = Z / sum_k exp(-alpha (k - q - c)^2),           Z = sum_d exp(-alpha (d - c)^2)

Far keys are left out, as many as weigh no more than u together (``bounds.rounding.left_out``, which the certificate
counts), and a few taps remain: a convolution along the axis, channel by channel. On a CPU torch computes it fast for
binary32 images. Elsewhere tables of all probabilities are used: ``axes.py``. ``joint.py`` takes two axes at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..bounds.rounding import left_out
from .axes import without_far_keys
from .convolution import Geometry, convolve
from .processor import CONVOLVING, MOVING, WIDEST_PADDING

_LARGEST_SCALE = 2.0**20  # beyond, the keys are so far from the target that g underflows where they are


@dataclass(frozen=True)
class Stencil:
    """Attention along one axis of images whose memory format is ``torch.channels_last``.

    Attributes:
        weights: g at consecutive offsets, [taps].
        scale: scale(q), [num_queries].
        stride: Pixels between queries.
        padding: Zeros that the convolution with ``weights`` adds at both ends of the axis.
    """

    weights: Tensor
    scale: Tensor
    stride: int
    padding: int

    @classmethod
    def of(
        cls, alpha: float, center: float, *, keys: int, queries: int, stride: int, zeros: int, dtype: torch.dtype
    ) -> Stencil | None:
        """The stencil of a head, or None if its target is too far from the image for one.

        Args:
            alpha: Locality strength.
            center: Target of the first query.
            keys: Pixels of the padded axis, over which the softmax goes.
            queries: Number of queries; their targets are center, center + stride, ...
            stride: Pixels between queries.
            zeros: Pixels of zero padding at the start of the axis that the images lack.
            dtype: Precision of the probabilities; they are computed in float64.
        """
        first, last = -stride * (queries - 1), keys - 1  # all offsets of a key from a query
        exponents = _exponents(alpha, center, first, last)
        bell = (exponents - exponents.max()).exp()
        scale = bell.sum() / bell.unfold(0, keys, stride).sum(-1).flip(0)
        if not bool((scale <= _LARGEST_SCALE).all()):
            return None
        shares = without_far_keys((bell / bell.sum() * scale.max()).unsqueeze(0), dtype)
        used = (first + shares[0].nonzero()).flatten().tolist()
        first, last, padding = _window(used[0], used[-1], keys=keys, queries=queries, stride=stride, zeros=zeros)
        weights = (_exponents(alpha, center, first, last) - exponents.max()).exp() / bell.sum()
        return cls(weights.to(dtype), scale.to(dtype), stride, padding)

    @property
    def nbytes(self) -> int:
        """Bytes of the weights and the scale."""
        return self.weights.nbytes + self.scale.nbytes

    def cost(self, vectors: int) -> int:
        """Cost of applying the stencil to ``vectors`` lines of pixels, in multiply-adds of a large matrix product."""
        return len(self.scale) * (len(self.weights) + MOVING) * vectors + CONVOLVING

    def is_slow(self, *, along_columns: bool) -> bool:
        """Whether torch takes a slow way through contiguous images, as it does where taps see only zeros."""
        return self.padding >= len(self.weights) or (along_columns and self.padding > WIDEST_PADDING)

    def rows_of(self, x: Tensor) -> Tensor:
        """Applies the stencil to the rows: [batch, channels, rows, columns] -> [batch, channels, queries, columns]."""
        kernel = self.weights.view(1, 1, -1, 1).expand(x.shape[1], 1, -1, 1)
        attended = convolve(x, kernel, None, Geometry((self.stride, 1), (self.padding, 0), (1, 1), x.shape[1]))
        return attended.mul_(self.scale.unsqueeze(1))

    def columns_of(self, x: Tensor) -> Tensor:
        """Applies the stencil to the columns: [batch, channels, rows, columns] -> [batch, channels, rows, queries]."""
        kernel = self.weights.view(1, 1, 1, -1).expand(x.shape[1], 1, 1, -1)
        attended = convolve(x, kernel, None, Geometry((1, self.stride), (0, self.padding), (1, 1), x.shape[1]))
        return attended.mul_(self.scale)


def keys_read(alpha: float, keys: int, dtype: torch.dtype) -> int:
    """About how many keys along one axis a query reads, in a precision: all but those that weigh next to nothing."""
    if alpha <= 0:
        return keys
    return min(2 * math.floor(math.sqrt(-math.log(left_out(dtype)) / alpha)) + 1, keys)


def _exponents(alpha: float, center: float, first: int, last: int) -> Tensor:
    """-alpha (d - c)^2 for d = first, ..., last, in float64."""
    return -alpha * (torch.arange(first, last + 1, dtype=torch.float64, device="cpu") - center).square()


def _window(first: int, last: int, *, keys: int, queries: int, stride: int, zeros: int) -> tuple[int, int, int]:
    """The fewest taps around first, ..., last with which a convolution computes exactly these queries.

    The convolution pads both ends alike. It starts at offset zeros - padding, so that is the first tap. It must
    reach the last query, and must not compute one more.

    Returns:
        The first tap, the last tap, and the padding.
    """
    pixels = keys - 2 * zeros
    padding = max(zeros - first, stride * (queries - 1) - zeros + last - pixels + 1, 0)
    return zeros - padding, max(last, pixels + padding + zeros - stride * queries), padding
