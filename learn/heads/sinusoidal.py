"""Sinusoidal encodings (Vaswani et al.), of relative and of absolute positions: the draft's empty section 3.3.

The angles of a number x are w_f x, with the frequencies w_f = L^(-f / F), f = 0, ..., F - 1. L is 10000 for texts; in
an image of a few pixels most of these frequencies tell no pixel from another, and twice its width is enough.

* Relative (Dai et al.): r_delta holds the sines and cosines of delta_1 and of delta_2, and a head compares it with a
  vector of its own. The score is a sum of a row's and a column's. With w_0 = 1 alone, A cos(delta - Delta) is largest
  at delta = Delta and nowhere else, since no whole number but 0 is a multiple of 2 pi; the other frequencies widen the
  gap to far pixels (``proofs/claims/other_encodings/sinusoidal.py``; ``sinusoidal_alpha.py`` there has the alpha that
  this takes).
* Absolute: U_p holds the same of the pixel p, and the score is term (d) of eq. 5, U_q^T W_q^T W_k U_k. It can do what
  the relative one does, because cos(w (k - q)) = cos(w k) cos(w q) + sin(w k) sin(w q), but nothing makes it: the score
  may depend on q and k, not only on k - q, and the row of a query may matter for the column of a key. It does not
  separate.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .positions import Grid, Positions, SeparablePositions

FREQUENCIES = 8  # along an axis
LONGEST = 10_000.0


def sines_and_cosines(x: Tensor, frequencies: int, longest: float = LONGEST) -> Tensor:
    """Sines, then cosines, of the angles of numbers [...]: [..., 2 * frequencies]."""
    powers = torch.arange(frequencies, dtype=x.dtype, device=x.device) / frequencies
    angles = x.unsqueeze(-1) * longest**-powers
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class SinusoidalRelative(SeparablePositions):
    """v_h . r_delta for the sines and cosines of the relative position; ``sharpness`` is the deviation of the first v.

    Attributes:
        amplitudes: v_h, for the rows and for the columns, [2, num_heads, 2 * frequencies].
    """

    def __init__(
        self, num_heads: int, *, frequencies: int = FREQUENCIES, longest: float = LONGEST, sharpness: float = 1.0
    ) -> None:
        super().__init__(num_heads)
        self.frequencies, self.longest = frequencies, longest
        self.amplitudes = nn.Parameter(torch.randn(2, num_heads, 2 * frequencies) * sharpness)

    def along_axes(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The sums of sines and cosines along the rows and along the columns."""
        offsets = (grid.offsets_along(axis, self.amplitudes) for axis in (0, 1))
        waves = (sines_and_cosines(along, self.frequencies, self.longest) for along in offsets)
        rows, columns = (torch.einsum("qkf,hf->hqk", *pair) for pair in zip(waves, self.amplitudes, strict=True))
        return rows, columns


class SinusoidalAbsolute(Positions):
    """U_q^T W_q^T W_k U_k for the sines and cosines of the pixels' positions; ``sharpness`` is about their deviation.

    Attributes:
        query_weight: W_q, [num_heads, key_dim, 4 * frequencies].
        key_weight: W_k, [num_heads, key_dim, 4 * frequencies].
    """

    def __init__(
        self,
        num_heads: int,
        *,
        frequencies: int = FREQUENCIES,
        longest: float = LONGEST,
        key_dim: int = 16,
        sharpness: float = 1.0,
    ) -> None:
        super().__init__(num_heads)
        self.frequencies, self.longest = frequencies, longest
        shape, std = (num_heads, key_dim, 4 * frequencies), (2 * frequencies) ** -0.5  # |U|^2 = 2 F
        self.query_weight = nn.Parameter(torch.randn(shape) * std * sharpness)
        self.key_weight = nn.Parameter(torch.randn(shape) * std)

    def scores(self, grid: Grid) -> Tensor:
        """The dot products of the vectors."""
        queries, keys = self.vectors(grid)
        return queries @ keys.T

    def vectors(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """W_k^T W_q U_q / sqrt(D_k) and U_k."""
        queries, keys = (
            sines_and_cosines(pixels, self.frequencies, self.longest).flatten(1)
            for pixels in (grid.queries(self.query_weight), grid.keys(self.query_weight))
        )
        projected = torch.einsum("hdu,qu->hqd", self.query_weight, queries) * self.query_weight.shape[1] ** -0.5
        return torch.einsum("hdu,hqd->hqu", self.key_weight, projected), keys
