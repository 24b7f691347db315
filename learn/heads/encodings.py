"""Heads that learn where to look: six encodings of positions, and content.

``positions.py`` says what an encoding is. delta = k - q is the offset of a key from the query; a score is for one head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ...convert.heads.content import AxisScores
from .positions import Grid, Positions, SeparablePositions, Shape

FIRST_SPREAD = 1.0  # pixels, of the centres around the query


class IsotropicGaussian(SeparablePositions):
    """The paper's quadratic encoding: a centre, drawn with a standard deviation of ``spread``, and a strength a head.

        score(delta) = -alpha |delta - Delta|^2,    alpha = exp(log_alpha) > 0

    Attributes:
        centers: Delta, in pixels (row, column), [num_heads, 2].
        log_alpha: Logarithm of alpha, [num_heads].
    """

    def __init__(self, num_heads: int, *, alpha: float = 1.0, spread: float = FIRST_SPREAD) -> None:
        super().__init__(num_heads)
        self.centers = nn.Parameter(torch.randn(num_heads, 2) * spread)
        self.log_alpha = nn.Parameter(torch.full((num_heads,), math.log(alpha)))

    @property
    def alpha(self) -> Tensor:
        """Sharpness of each head, positive, [num_heads]."""
        return self.log_alpha.exp()

    def along_axes(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """-alpha (delta_i - Delta_i)^2 along the rows and along the columns."""
        rows, columns = (
            -self.alpha.view(-1, 1, 1) * (grid.offsets_along(axis, self.alpha) - self.centers[:, axis, None, None]) ** 2
            for axis in (0, 1)
        )
        return rows, columns

    def shape(self, grid: Grid) -> Shape:
        """The centres, and the covariance 1 / (2 alpha) of exp(-alpha |delta - Delta|^2)."""
        return Shape(self.centers, torch.eye(2).to(self.alpha) / (2 * self.alpha.view(-1, 1, 1)))


class Gaussian(Positions):
    """Gaussians of any shape, the draft's equations 12 to 16: a centre and a precision matrix P a head.

        score(delta) = -1/2 (delta - mu)^T P (delta - mu)

    The draft writes P as the square of a symmetric matrix, which may be singular. Here P = L L^T, where L is lower
    triangular and its diagonal is exp of a parameter, so P is always positive definite; at first it is 2 alpha in every
    direction. For P = ((a, b), (b, c)) with b != 0 the score does not separate. With the target t = q + mu it is, up to
    a constant of the query,

        k^T P t - 1/2 k^T P k = (-a / 2, -c / 2, -b, (P t)_1, (P t)_2) . (k_1^2, k_2^2, k_1 k_2, k_1, k_2).

    ``proofs/claims/other_encodings/gaussian.py`` proves the draft's vectors, and that b = 0, a = c = 2 alpha is the
    isotropic head.

    Attributes:
        centers: mu, in pixels (row, column), [num_heads, 2].
        log_diagonal: Logarithms of the diagonal of L, [num_heads, 2].
        below: The entry of L below the diagonal, [num_heads].
    """

    def __init__(self, num_heads: int, *, alpha: float = 1.0, spread: float = FIRST_SPREAD) -> None:
        super().__init__(num_heads)
        self.centers = nn.Parameter(torch.randn(num_heads, 2) * spread)
        self.log_diagonal = nn.Parameter(torch.full((num_heads, 2), math.log(2 * alpha) / 2))
        self.below = nn.Parameter(torch.zeros(num_heads))

    def precision(self) -> Tensor:
        """P = L L^T, positive definite, [num_heads, 2, 2]."""
        first, second = self.log_diagonal.exp().unbind(-1)
        a, b, c = first.square(), first * self.below, self.below.square() + second.square()
        return torch.unflatten(torch.stack([a, b, b, c], dim=-1), -1, (2, 2))

    def scores(self, grid: Grid) -> Tensor:
        """As eq. 16 writes them."""
        away = grid.offsets(self.centers) - self.centers[:, None, None]
        return -0.5 * torch.einsum("hqki,hij,hqkj->hqk", away, self.precision(), away)

    def vectors(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The five components of the class's text; positions are counted from the middle of the grid."""
        precision = self.precision()
        middle = self.centers.new_tensor([grid.key_rows - 1, grid.key_columns - 1]) / 2
        targets = grid.queries(self.centers) - middle + self.centers.unsqueeze(1)
        pulled = torch.einsum("hij,hqj->hqi", precision, targets)
        a, b, c = precision[:, 0, 0], precision[:, 0, 1], precision[:, 1, 1]
        squares = torch.stack([-a / 2, -c / 2, -b], dim=-1).unsqueeze(1).expand(-1, pulled.shape[1], -1)
        keys = grid.keys(self.centers) - middle
        encoding = torch.cat([keys.square(), keys.prod(-1, keepdim=True), keys], dim=-1)
        return torch.cat([squares, pulled], dim=-1), encoding

    def shape(self, grid: Grid) -> Shape:
        """The centres, and Sigma = P^-1."""
        return Shape(self.centers, torch.linalg.inv(self.precision()))


class Learned(SeparablePositions):
    """score(delta) = rows[delta_1] + columns[delta_2], a number for each offset (the article's Figure 4).

    Bello et al. and Ramachandran et al. learn vectors of the offsets, and one vector a head to compare them with.
    Without content a table holds all that these products can be. The first scores have a standard deviation of
    ``sharpness``.

    Attributes:
        table: The scores, [num_heads, 2 reach - 1] for each axis, of which ``reach`` is the most keys along one.
    """

    def __init__(self, num_heads: int, *, reach: int, sharpness: float = 1.0) -> None:
        super().__init__(num_heads)
        self.table = AxisScores(*(torch.randn(num_heads, 2 * reach - 1) * sharpness for _ in range(2)))

    def along_axes(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The tables' entries at the offsets.

        Raises:
            GeometryError: The grid is larger than the tables.
        """
        return _along(self.table, grid, self.table.tables[0].dtype)


class Content(nn.Module):
    """The terms (a), (b) and (c) of the draft's equation 7, for at most ``reach`` keys along an axis.

        sqrt(D_k) score = (W_q x_q) . (W_k x_k)                           (a) content of the query and of the key
                        + (W_q x_q) . (rows[delta_1] + columns[delta_2])  (b) content of the query, relative position
                        + u . (W_k x_k)                                   (c) content of the key

    The offsets' vectors are learned and shared by all heads (Bello et al.). If the key's vector is W_k x_k, a one at
    its row and a one at its column, the sum is one dot product: the whole attention is one call of
    ``F.scaled_dot_product_attention`` without a bias for every pair. Position scores (d) that separate are added to the
    numbers that meet these ones. With (a) and (c) a head chooses pixels by what they show; with (b) the pixel under the
    query chooses where the head looks. (d) alone is a convolution (``proofs/claims/theorem/position_alone.py``).

    Attributes:
        query_weight: W_q, [num_heads, key_dim, in_channels].
        key_weight: W_k, [num_heads, key_dim, in_channels].
        key_bias: u, [num_heads, key_dim].
        offsets: Vectors of the row offsets and of the column offsets, [key_dim, 2 reach - 1] each.
    """

    def __init__(self, num_heads: int, in_channels: int, *, key_dim: int, reach: int) -> None:
        super().__init__()
        shape = (num_heads, key_dim, in_channels)
        self.query_weight = nn.Parameter(torch.randn(shape) * in_channels**-0.5)
        self.key_weight = nn.Parameter(torch.randn(shape) * in_channels**-0.5)
        self.key_bias = nn.Parameter(torch.zeros(num_heads, key_dim))
        self.offsets = AxisScores(*(torch.randn(key_dim, 2 * reach - 1) for _ in range(2)))

    def vectors(self, queries: Tensor, keys: Tensor, grid: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """Vectors whose dot products are terms (a) and (c), and the scores of term (b).

        Args:
            queries: The image's pixels, [batch, num_queries, in_channels].
            keys: The keys' pixels, [batch, num_keys, in_channels].
            grid: Where they are.

        Returns:
            [batch, num_heads, num_queries, D_k], the same of the keys, and each query's scores of every row and every
            column, [batch, num_heads, num_queries, key_rows + key_columns].
        """
        asked = torch.einsum("bqc,hdc->bhqd", queries, self.query_weight) * self.key_bias.shape[-1] ** -0.5
        shown = torch.einsum("bkc,hdc->bhkd", keys, self.key_weight)
        bias = self.key_bias.unsqueeze(1) * self.key_bias.shape[-1] ** -0.5
        rows, columns = _along(self.offsets, grid, asked.dtype)
        on_grid = asked.unflatten(2, (grid.rows, grid.columns))
        both = torch.einsum("bhpqd,dpk->bhpqk", on_grid, rows), torch.einsum("bhpqd,dqk->bhpqk", on_grid, columns)
        return asked + bias, shown, torch.cat(both, dim=-1).flatten(2, 3)


def _along(scores: AxisScores, grid: Grid, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Entries of tables at a grid's offsets, along the rows and along the columns: [entries, queries, keys] each."""
    rows, columns = (
        scores.along(axis, torch.arange(queries, device=scores.tables[axis].device) + grid.padding, keys).to(dtype)
        for axis, (queries, keys) in enumerate(((grid.rows, grid.key_rows), (grid.columns, grid.key_columns)))
    )
    return rows, columns


FREQUENCIES = 8  # along an axis
LONGEST = 10_000.0


def sines_and_cosines(x: Tensor, frequencies: int, longest: float = LONGEST) -> Tensor:
    """Sines, then cosines, of the angles w_f x of numbers [...]: [..., 2 * frequencies] (Vaswani et al.).

    w_f = L^(-f / F), f = 0, ..., F - 1. L is 10000 for texts; for an image, twice its width is enough, since lower
    frequencies do not tell its pixels apart.
    """
    powers = torch.arange(frequencies, dtype=x.dtype, device=x.device) / frequencies
    angles = x.unsqueeze(-1) * longest**-powers
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class SinusoidalRelative(SeparablePositions):
    """v_h . r_delta for the sines and cosines of the relative position; ``sharpness`` is the deviation of the first v.

    With w_0 = 1 alone, A cos(delta - Delta) is largest at delta = Delta and nowhere else, since 0 is the only multiple
    of 2 pi among whole numbers; the other frequencies widen the gap to far pixels
    (``proofs/claims/other_encodings/sinusoidal.py``, with the alpha that this takes).

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

    It can be every relative score, because cos(w (k - q)) = cos(w k) cos(w q) + sin(w k) sin(w q), but training may let
    it depend on q and k in other ways. It does not separate.

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
