"""Scores of positions, each against another way to write them; on dyadic numbers nothing is rounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from conv2attn.convert.errors import GeometryError
from conv2attn.learn.heads.encodings import (
    Gaussian,
    IsotropicGaussian,
    Learned,
    SinusoidalAbsolute,
    SinusoidalRelative,
)
from conv2attn.learn.heads.positions import Grid, SeparablePositions, moments

HEADS = 4


def eighths(*shape: int) -> Tensor:
    """Multiples of 1/8 between -2 and 2."""
    return torch.randint(-16, 17, shape).double() / 8


def dyadic_gaussian() -> Gaussian:
    """exp(0) = 1 on the diagonal of L, and multiples of 1/8 elsewhere."""
    gaussian = Gaussian(HEADS, alpha=0.5).double()
    with torch.no_grad():
        gaussian.centers.copy_(eighths(HEADS, 2))
        gaussian.below.copy_(eighths(HEADS))
    return gaussian


def without_constant(scores: Tensor) -> Tensor:
    """Scores relative to those of the first key: all that the softmax sees."""
    return scores - scores[..., :1]


@pytest.mark.parametrize("grid", [Grid(3, 5), Grid(4, 2, padding=1)])
def test_the_vectors_of_a_gaussian_have_the_scores_of_eq_16(grid: Grid) -> None:
    gaussian = dyadic_gaussian()
    queries, keys = gaussian.vectors(grid)
    assert queries.shape[-1] == 5
    assert torch.equal(without_constant(queries @ keys.T), without_constant(gaussian.scores(grid)))


@pytest.mark.parametrize("kind", [IsotropicGaussian, partial(Learned, reach=9), SinusoidalRelative])
def test_the_vectors_of_separable_scores_are_their_row_and_column(kind: Callable[[int], SeparablePositions]) -> None:
    positions, grid = kind(HEADS).double(), Grid(4, 2, padding=1)
    queries, keys = positions.vectors(grid)
    assert torch.equal((queries.unsqueeze(2) * keys).sum(-1), positions.scores(grid))  # two terms are not zero


def test_the_waves_of_sinusoids_are_longer_by_equal_factors() -> None:
    waves = SinusoidalRelative(2, frequencies=2, longest=100.0).double()
    with torch.no_grad():
        waves.amplitudes.copy_(torch.tensor([[0.0, 1, 0, 0], [0, 0, 0, 1]]))  # sines, then cosines
        rows, _ = waves.along_axes(Grid(2, 3))
    sine, cosine = math.sin(0.1), math.cos(0.1)
    wanted = torch.tensor([[[0.0, sine], [-sine, 0.0]], [[1.0, cosine], [cosine, 1.0]]], dtype=torch.float64)
    torch.testing.assert_close(
        rows, wanted, rtol=2.0**-50, atol=0
    )  # of two sines, each off by a unit in the last place


def test_absolute_scores_depend_on_more_than_the_offset() -> None:
    at_home = SinusoidalAbsolute(HEADS, frequencies=3, key_dim=4).scores(Grid(4, 5)).diagonal(dim1=1, dim2=2)
    assert (at_home.amax(1) - at_home.amin(1) > 0.01).all()


def test_learned_scores_are_the_table_s_entries_as_far_as_it_reaches() -> None:
    grid = Grid(2, 3, padding=1)
    learned = Learned(HEADS, reach=5)
    rows, columns = (table.detach() for table in learned.table.tables)
    delta = grid.offsets(rows)[4, 17].long()  # query (1, 1) of the image, key (3, 2) of the padded image
    assert delta.tolist() == [1, 0]
    assert torch.equal(learned.scores(grid)[:, 4, 17].detach(), rows[:, 4 + 1] + columns[:, 4 + 0])
    with pytest.raises(GeometryError, match="the tables reach 4"):
        Learned(HEADS, reach=4).scores(Grid(3, 3, padding=1))


def test_the_ellipse_of_a_gaussian_head_is_its_own() -> None:
    gaussian = dyadic_gaussian()
    centers, covariances = gaussian.shape(Grid(4, 4))
    assert centers is gaussian.centers
    identity = torch.eye(2, dtype=torch.float64).expand(HEADS, 2, 2)
    largest = (covariances.abs() @ gaussian.precision().abs()).max()
    assert ((covariances @ gaussian.precision() - identity).abs() <= 32 * largest**2 * 2**-53).all()

    isotropic = IsotropicGaussian(HEADS, alpha=1.0)
    assert torch.equal(isotropic.shape(Grid(3, 3)).covariances, torch.eye(2).expand(HEADS, 2, 2) / 2)


def test_the_ellipse_of_other_heads_is_that_of_what_they_attend_to() -> None:
    centers, covariances = moments(torch.tensor([[0.5, 0.5, 0.0]]), torch.tensor([[0.0, -1.0], [0.0, 3.0], [9.0, 9.0]]))
    assert centers.tolist() == [[0.0, 1.0]]
    assert covariances.tolist() == [[[0.0, 0.0], [0.0, 4.0]]]
