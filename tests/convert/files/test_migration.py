"""Positions of earlier versions are counted anew, each by itself, and only where they are what a layer has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.migration import query_under_middle_tap
from conv2attn.convert.spec import ConvSpec

SPEC = ConvSpec(2, 2, kernel_size=(3, 4), dilation=(1, 2))  # the middle tap lies 1 and 2 pixels after the first
FIRST = torch.tensor([[i, 2 * j] for i in range(3) for j in range(4)])
TAPS = FIRST - torch.tensor([1, 2])


def migrated(name: str = "a", /, **state: Tensor) -> dict[str, Tensor]:
    found = {f"{name}.{key}".removeprefix("."): tensor for key, tensor in state.items()}
    query_under_middle_tap(name, SPEC, found)
    return {key.removeprefix(f"{name}."): tensor for key, tensor in found.items()}


@pytest.mark.parametrize("name", ["", "a", "a.b"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_centres_at_taps_are_exactly_there_and_positions_at_least_in_single_precision(
    dtype: torch.dtype, name: str
) -> None:
    alpha = torch.full((12,), 0.1).to(dtype)
    found = migrated(name, centers=FIRST.to(dtype), alpha=alpha, weight=alpha)
    precise = torch.float64 if dtype == torch.float64 else torch.float32
    assert [found[key].dtype for key in ("centers", "alpha", "weight")] == [precise, precise, dtype]
    assert torch.equal(found["centers"], TAPS.to(precise))
    assert torch.equal(found["alpha"], alpha.to(precise))


def test_a_centre_is_at_its_own_tap_only_with_both_coordinates() -> None:
    """The others are moved by what the middle tap lies after the first."""
    centers = FIRST.double()
    centers[3, 0] += 0.25
    centers[5, 1] -= 0.5
    centers[7] = centers[6]
    moved = centers - torch.tensor([1.0, 2.0])
    assert torch.equal(migrated(centers=centers)["centers"], moved)
    narrow = (FIRST * 1.0).to(torch.bfloat16)
    narrow[3, 0] = 0.1
    found = migrated(centers=narrow)["centers"]
    assert torch.equal(found[3], narrow[3].float() - torch.tensor([1.0, 2.0]))
    assert torch.equal(found[4], TAPS[4].float())


def test_taps_that_a_narrow_precision_rounded_are_where_they_were_meant() -> None:
    wide = ConvSpec(1, 1, kernel_size=(1, 400))
    first = torch.tensor([[0, j] for j in range(400)])
    state = {"centers": first.to(torch.bfloat16)}
    assert not torch.equal(state["centers"].long(), first)
    query_under_middle_tap("", wide, state)
    assert torch.equal(state["centers"], torch.tensor(wide.tap_offsets, dtype=torch.float32))


def test_an_entry_of_a_table_is_found_as_many_offsets_earlier() -> None:
    rows, columns = torch.arange(10.0).view(2, 5), torch.arange(14.0).view(2, 7)
    found = migrated(**{"axis_scores.rows": rows, "axis_scores.columns": columns})
    assert found["axis_scores.rows"].tolist() == [[1, 2, 3, 4, 0], [6, 7, 8, 9, 0]]
    assert found["axis_scores.columns"].tolist() == [[2, 3, 4, 5, 6, 0, 0], [9, 10, 11, 12, 13, 0, 0]]
    short = migrated(**{"axis_scores.columns": torch.ones(2, 1)})
    assert short["axis_scores.columns"].tolist() == [[0], [0]]


@pytest.mark.parametrize("shape", [(), (12,), (12, 3), (11, 2), (13, 2), (12, 1), (1, 12, 2)])
def test_what_has_another_shape_is_left_to_be_refused(shape: tuple[int, ...]) -> None:
    state = {"centers": torch.ones(shape)}
    if len(shape) != 2:
        state |= {"axis_scores.rows": torch.ones(shape), "axis_scores.columns": torch.ones(shape)}
    found = migrated(**state)
    assert all(found[key] is tensor for key, tensor in state.items())


def test_a_layer_that_reads_the_image_at_its_query_is_refused_and_one_that_does_not_is_read() -> None:
    weight = torch.zeros(2, 3)
    assert migrated(**{"content.query_weight": weight})["content.query_weight"] is weight
    weight[1, 2] = 1e-30
    with pytest.raises(CheckpointError, match=r"^layer 'a' was trained with content terms by an earlier version, in"):
        migrated(**{"content.query_weight": weight})
