"""Heads whose scores are quadratic forms of the offset: isotropic, Gaussian (draft, eq. 12 to 16), and any.

Isotropic, the paper's quadratic encoding, with alpha = exp(log_alpha) > 0:

    score(delta) = -alpha |delta - Delta|^2,        a sum of a row's and a column's.

Any Gaussian (eq. 16), with the precision P = Sigma^-1:

    score(delta) = -1/2 (delta - mu)^T P (delta - mu)

The draft writes P as a square of a symmetric matrix, which may be singular. Here P = L L^T with a lower triangular L
whose diagonal is exp of a parameter, so P is positive definite whatever the parameters are. With b != 0 the score does
not separate. For the key at k and the target t = q + mu it is, up to a constant of the query,

    k^T P t - 1/2 k^T P k = (-a / 2, -c / 2, -b, (P t)_1, (P t)_2) . (k_1^2, k_2^2, k_1 k_2, k_1, k_2)

for P = ((a, b), (b, c)). ``proofs/claims/other_encodings/gaussian.py`` proves the draft's vectors, and
``proofs/claims/other_encodings/gaussian_reduction.py`` that b = 0, a = c = 2 alpha is the isotropic head.

Any quadratic form, as other people's layers hold them:

    score(delta) = sum over axes i of (s_i delta_i^2 + l_i delta_i)  +  c delta_1 delta_2

The quadratic encoding is s_1 = s_2 = -alpha, l = 2 alpha Delta, c = 0. Heads of a layer that was trained elsewhere may
have any numbers: with s >= 0 they look away from the query.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .positions import Grid, Positions, SeparablePositions, Shape

FIRST_SPREAD = 1.0  # pixels, of the centres around the query


class IsotropicGaussian(SeparablePositions):
    """The quadratic encoding: a centre and a locality strength a head, drawn with a standard deviation of ``spread``.

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
        """Locality strengths, positive, [num_heads]."""
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
    """Gaussians of any shape: a centre and a precision matrix a head, 2 alpha in every direction at first.

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
        """The five components of the module's text; positions are counted from the middle of the grid."""
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


class Quadratic(Positions):
    """Quadratic forms of the offset.

    Args:
        squares: s, [num_heads, 2], an attribute as well, like the others.
        linear: l, [num_heads, 2].
        cross: c, [num_heads]; None for scores that separate.
    """

    cross: nn.Parameter | None

    def __init__(self, squares: Tensor, linear: Tensor, cross: Tensor | None = None) -> None:
        super().__init__(len(squares))
        self.squares, self.linear = nn.Parameter(squares.detach().clone()), nn.Parameter(linear.detach().clone())
        self.register_parameter("cross", None if cross is None else nn.Parameter(cross.detach().clone()))

    def along_axes(self, grid: Grid) -> tuple[Tensor, Tensor] | None:
        """s_i delta_i^2 + l_i delta_i along the rows and along the columns; None with a cross term."""
        if self.cross is not None:
            return None
        rows, columns = (
            self.squares[:, axis, None, None] * delta.square() + self.linear[:, axis, None, None] * delta
            for axis, delta in enumerate(grid.offsets_along(axis, self.squares) for axis in (0, 1))
        )
        return rows, columns

    def scores(self, grid: Grid) -> Tensor:
        """The forms, term by term."""
        delta = grid.offsets(self.squares)
        along = self.squares[:, None, None] * delta.square() + self.linear[:, None, None] * delta
        scores = along.sum(-1)
        return scores if self.cross is None else scores + self.cross[:, None, None] * delta.prod(-1)
