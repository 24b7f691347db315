"""A tensor is read where it lies in its file, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.limits import MAX_MEMORY, Budget
from conv2attn.convert.files.readers.common.stored import DTYPES, Source, Storage, StoredTensor

NUMBERS = torch.arange(24, dtype=torch.float32)
CONTENT = NUMBERS.numpy().tobytes()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A file of 24 numbers, and three bytes before and one after the same again."""
    path = tmp_path_factory.mktemp("stored") / "w"
    path.write_bytes(CONTENT + b"abc" + CONTENT + b"d")
    return Source(path)


def test_a_source_gives_bytes_to_its_last_and_none_beyond(source: Source) -> None:
    size = 2 * len(CONTENT) + 4
    assert source.size == size
    assert source.bytes(0, size) == source.path.read_bytes()
    assert source.bytes(size - 1, 1) == b"d"
    assert source.bytes(size, 0) == source.bytes(0, 0) == b""
    for start, length in ((0, size + 1), (size, 1), (-1, 1), (1, -1), (size + 1, 0)):
        with pytest.raises(CheckpointError, match="is damaged or incomplete: it ends before what it declares"):
            source.bytes(start, length)


def test_an_empty_file_is_a_source_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "w").touch()
    empty = Source(tmp_path / "w")
    assert (empty.size, empty.bytes(0, 0), empty.budget.memory) == (0, b"", MAX_MEMORY)


def test_files_of_one_checkpoint_have_one_budget(source: Source) -> None:
    budget = Budget()
    Source(source.path, budget)
    assert Source(source.path, budget).budget is budget
    assert budget.size == 2 * source.size
    assert Source(source.path).budget.size == source.size


def test_a_place_that_is_given_twice_is_one_storage(source: Source) -> None:
    assert source.run(4, 8) is source.run(4, 8)
    assert source.run(4, 8) is not source.run(8, 4)
    assert (source.run(4, 8).start, source.run(4, 8).nbytes) == (4, 8)


@given(st.data())
def test_a_view_of_a_storage_has_the_numbers_that_torch_gives_it(source: Source, data: st.DataObject) -> None:
    """Aligned or not; views that leave the storage are refused, and only these."""
    shape = tuple(data.draw(st.lists(st.integers(0, 4), max_size=4)))
    stride = tuple(data.draw(st.lists(st.integers(0, 7), min_size=len(shape), max_size=len(shape))))
    first = data.draw(st.integers(0, 25))
    start = data.draw(st.sampled_from([0, len(CONTENT) + 3]))
    storage = Storage(source, len(CONTENT), start)
    tensor = StoredTensor.of(storage, torch.float32, shape=shape, stride=stride, first=first)
    last = first + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if torch.Size(shape).numel() > 24 or (torch.Size(shape).numel() and last > 23):
        assert tensor.flaw() is not None
        with pytest.raises(CheckpointError, match=r"a tensor (has|reaches)"):
            tensor.read()
    else:
        assert tensor.flaw() is None
        expected = NUMBERS.as_strided(shape, stride, first) if torch.Size(shape).numel() else torch.empty(shape)
        assert torch.equal(tensor.read(), expected)
        assert tensor.numel == expected.numel()


@pytest.mark.parametrize("start", [0, len(CONTENT) + 3])
def test_a_tensor_without_strides_has_the_numbers_in_a_row(source: Source, start: int) -> None:
    storage = Storage(source, len(CONTENT), start)
    assert torch.equal(StoredTensor.of(storage, torch.float32, shape=[4, 6]).read(), NUMBERS.view(4, 6))
    assert torch.equal(StoredTensor.of(storage, torch.float32, shape=(3, 5), first=9).read(), NUMBERS[9:].view(3, 5))
    too_far = StoredTensor.of(storage, torch.float32, shape=(3, 5), first=10)
    assert too_far.flaw() == "reaches beyond the end of its storage"
    too_many = StoredTensor.of(storage, torch.float32, shape=(5, 5))
    assert too_many.flaw() == "has 25 numbers, but its storage has only 96 bytes"


def test_numbers_that_are_aligned_are_mapped_and_others_copied_and_charged_once(source: Source) -> None:
    budget = source.budget
    before = budget.memory
    aligned = Storage(source, len(CONTENT), 0)
    StoredTensor.of(aligned, torch.float32, shape=(24,)).read()
    assert (aligned.copy, budget.memory) == (None, before)
    unaligned = Storage(source, len(CONTENT), len(CONTENT) + 3)
    one, other = (StoredTensor.of(unaligned, torch.float32, shape=(2,), first=first).read() for first in (0, 1))
    assert before - budget.memory == len(CONTENT)
    assert one[1:].data_ptr() == other.data_ptr()
    whole = StoredTensor.of(Storage(source, 3, len(CONTENT)), torch.uint8, shape=(3,))
    assert bytes(whole.read().tolist()) == b"abc"
    assert before - budget.memory == len(CONTENT)


def test_a_storage_must_end_in_its_file(source: Source) -> None:
    for start, flaw in ((source.size - 4, None), (source.size - 3, "lies beyond the end of the file")):
        assert StoredTensor.of(Storage(source, 4, start), torch.uint8, shape=(4,)).flaw() == flaw
    unplaced = StoredTensor.of(Storage(source, 4), torch.uint8, shape=(4,))
    assert unplaced.flaw() == "lies beyond the end of the file"
    with pytest.raises(CheckpointError, match="lies beyond the end of the file"):
        unplaced.read()


def test_shapes_that_no_memory_holds_are_refused_also_without_numbers(source: Source) -> None:
    storage = Storage(source, 0, 0)
    for shape, flaw in (
        ((0, 2**60), None),
        ((0, 2**61), "has a shape that no memory holds"),
        ((2**62, 0, 1), "has a shape that no memory holds"),
    ):
        tensor = StoredTensor.of(storage, torch.float32, shape=shape)
        assert tensor.flaw() == flaw
        if flaw is None:
            assert tensor.read().shape == shape


def test_shapes_strides_and_offsets_are_short_lists_of_plain_integers(source: Source) -> None:
    storage = Storage(source, len(CONTENT), 0)
    for good in ([1] * 64, (0,), (), [2**63 - 1]):
        assert StoredTensor.of(storage, torch.float32, shape=good).shape == tuple(good)
    with pytest.raises(CheckpointError, match="a tensor has 65 dimensions; at most 64 are read"):
        StoredTensor.of(storage, torch.float32, shape=[1] * 65)
    for bad in (None, 4, "4", {4}, [True], [1.0], [-1], [2**63], ["1"], [None]):
        with pytest.raises(CheckpointError, match="a shape, stride or offset is not a list of non-negative integers"):
            StoredTensor.of(storage, torch.float32, shape=bad)
        if bad is not None:
            with pytest.raises(CheckpointError, match="is not a list of non-negative integers"):
                StoredTensor.of(storage, torch.float32, shape=(1,), stride=bad)
    for first in (-1, True, None, "0", 2**63):
        with pytest.raises(CheckpointError, match="is not a list of non-negative integers"):
            StoredTensor.of(storage, torch.float32, shape=(1,), first=first)
    for stride in ((), (1, 1)):
        with pytest.raises(CheckpointError, match="a tensor has another number of strides than of sizes"):
            StoredTensor.of(storage, torch.float32, shape=(1,), stride=stride)


def test_every_dtype_is_named_as_torch_names_it() -> None:
    assert all(getattr(torch, name) is dtype for name, dtype in DTYPES.items())
    assert len(DTYPES) == 19
