"""Numbers that are made when they are first wanted are paid for once, and parts of them are read as of any storage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.made import made
from conv2attn.convert.files.readers.common.stored import Source, StoredTensor


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "w").touch()
    return Source(tmp_path / "w")


def test_a_tensor_is_made_once_and_paid_for_when_it_is_first_read(source: Source) -> None:
    before, left = source.budget.memory, []

    def make() -> Tensor:
        left.append(source.budget.memory)
        return torch.arange(6, dtype=torch.int16).view(3, 2)

    tensor = made(source, torch.int16, (2, 3), make, spare=100)
    assert (tensor.flaw(), source.budget.memory, left) == (None, before, [])
    for _ in range(2):
        assert tensor.read().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert left == [before - 12 - 100]
    assert source.budget.memory == before - 12


def test_a_part_of_what_is_made_is_read_in_any_dtype(source: Source) -> None:
    storage = made(source, torch.float32, (5,), lambda: torch.arange(5.0)).storage
    assert StoredTensor.of(storage, torch.float32, shape=[2], first=3).read().tolist() == [3, 4]
    assert StoredTensor.of(storage, torch.int32, shape=[1], first=1).read().item() == torch.tensor(1.0).view(
        torch.int32
    )
    assert StoredTensor.of(storage, torch.float32, shape=[3], first=3).flaw() == "reaches beyond the end of its storage"
    assert StoredTensor.of(storage, torch.float32, shape=[6]).flaw() is not None


def test_what_is_larger_than_the_budget_is_not_made(source: Source) -> None:
    def make() -> Tensor:
        raise AssertionError("it was made")

    left = source.budget.memory
    for count, spare in ((left + 1, 0), (left, 1)):
        source.budget.memory = left
        with pytest.raises(CheckpointError, match="more memory"):
            made(source, torch.uint8, (count,), make, spare=spare).read()


def test_the_last_of_the_budget_is_enough(source: Source) -> None:
    def make() -> Tensor:
        assert source.budget.memory == 0
        return torch.zeros(6, dtype=torch.uint8)

    source.budget.memory = 6
    assert made(source, torch.uint8, (6,), make).read().tolist() == [0] * 6


def test_what_is_made_is_told_apart_by_itself_and_needs_no_place_in_the_file(source: Source) -> None:
    first, second = (made(source, torch.uint8, (1,), torch.empty).storage for _ in range(2))
    assert len({first, second}) == 2
    assert first.is_in_file is True
    assert not hasattr(first, "__dict__")  # there may be very many
