"""Scores of positions that are any quadratic form of the offset, as other people's layers hold them.

    score(delta) = sum over axes i of (s_i delta_i^2 + l_i delta_i)  +  c delta_1 delta_2

The quadratic encoding is s_1 = s_2 = -alpha, l = 2 alpha Delta, c = 0. Heads of a layer that was trained elsewhere may
have any numbers: with s >= 0 they look away from the query.
"""

from __future__ import annotations

from torch import Tensor, nn

from .grid import Grid
from .positions import Positions


class Quadratic(Positions):
    """Quadratic forms of the offset.

    Args:
        squares: s, [num_heads, 2].
        linear: l, [num_heads, 2].
        cross: c, [num_heads]; None for scores that separate.

    Attributes:
        squares: As above.
        linear: As above.
        cross: As above.
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
