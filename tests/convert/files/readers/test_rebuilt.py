"""A tensor is rebuilt of the arguments that torch gives, and of nothing that lacks one or says something else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import read_checkpoint
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, Storage, StoredTensor
from conv2attn.convert.files.readers.pickle_machine import OTHER, Name, StandIn
from conv2attn.convert.files.readers.rebuilt import Typed, check_notes, plain_tensor, quantised_tensor

ALL, SLICES = Name("torch.per_tensor_affine"), Name("torch.per_channel_affine")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    (tmp_path / "w").write_bytes(bytes(range(100)))
    return Source(tmp_path / "w").run(0, 96)


def numbers(found: StoredTensor | OddTensor) -> torch.Tensor:
    assert isinstance(found, StoredTensor)
    return found.read()


def kind(found: StoredTensor | OddTensor) -> str:
    assert isinstance(found, OddTensor)
    return found.kind


def test_a_plain_tensor_needs_a_storage_a_place_a_shape_and_strides(storage: Storage) -> None:
    typed = Typed(storage, torch.uint8, is_quantised=False)
    arguments = (typed, 4, (2, 3), (1, 2))
    assert numbers(plain_tensor("_rebuild_tensor", arguments)).tolist() == [[4, 6, 8], [5, 7, 9]]
    with pytest.raises(CheckpointError, match="describes a tensor by too little"):
        plain_tensor("_rebuild_tensor", arguments[:3])
    with pytest.raises(CheckpointError, match="describes a tensor without a storage"):
        plain_tensor("_rebuild_tensor", ("0", *arguments[1:]))
    odd = OddTensor("unheard of")
    assert plain_tensor("_rebuild_tensor", (odd, *arguments[1:])) is odd
    quantised = typed._replace(is_quantised=True)
    assert "without its scale" in kind(plain_tensor("_rebuild_tensor", (quantised, *arguments[1:])))


@pytest.mark.parametrize(
    ("name", "before"),
    [("_rebuild_tensor_v2", (False, {})), ("_rebuild_tensor_v3", (False, {}, Name("torch.uint8")))],
)
def test_a_tensor_that_is_to_be_conjugated_or_negated_is_odd(
    name: str, before: tuple[object, ...], storage: Storage
) -> None:
    given: tuple[object, ...] = (Typed(storage, torch.uint8, is_quantised=False), 0, (3,), (1,), *before)
    none: list[tuple[object, ...]] = [(), (None,), ({},), (None, {"more": True})]
    some: list[tuple[object, ...]] = [({"conj": True},), ({"neg": True}, None)]
    for metadata in none:
        assert numbers(plain_tensor(name, (*given, *metadata))).tolist() == [0, 1, 2]
    for metadata in some:
        assert kind(plain_tensor(name, (*given, *metadata))) == "conjugated or negated"


def test_the_third_form_says_its_dtype(storage: Storage) -> None:
    given: tuple[object, ...] = (Typed(storage, torch.uint8, is_quantised=False), 1, (2,), (1,), False, {})
    found = numbers(plain_tensor("_rebuild_tensor_v3", (*given, Name("torch.uint16"))))
    assert (found.dtype, found.tolist()) == (torch.uint16, [0x0302, 0x0504])
    for lacking in (given, given[:5], given[:4]):
        assert kind(plain_tensor("_rebuild_tensor_v3", lacking)) == "packed or unknown (no dtype)"
    for other in ("torch.uint16", 7):
        assert kind(plain_tensor("_rebuild_tensor_v3", (*given, other))) == "packed or unknown (no dtype)"
    unknown = plain_tensor("_rebuild_tensor_v3", (*given, Name("torch.float4_e2m1fn_x2")))
    assert kind(unknown) == "packed or unknown (torch.float4_e2m1fn_x2)"


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e5m2, torch.float8_e4m3fn])
def test_the_third_form_is_what_torch_writes(dtype: torch.dtype, tmp_path: Path) -> None:
    saved = torch.arange(6).to(dtype).reshape(2, 3).T
    torch.save({"w": saved}, tmp_path / "w")
    found = read_checkpoint(tmp_path / "w").state_dict["w"]
    assert found.dtype == dtype
    assert found.float().tolist() == saved.float().tolist()


def quantised(storage: Storage, quantiser: object, *, shape: tuple[int, ...] = (2, 3)) -> StoredTensor | OddTensor:
    typed = Typed(storage, torch.uint8, is_quantised=True)
    return quantised_tensor((typed, 6, shape, (3, 1), quantiser, False, {}))


def test_a_quantised_tensor_has_one_scale_or_one_for_each_slice(storage: Storage, tmp_path: Path) -> None:
    integers = torch.arange(6, 12).reshape(2, 3).double()
    assert torch.equal(numbers(quantised(storage, (ALL, 0.5, 3))), (integers.float() - 3) * 0.5)
    assert torch.equal(numbers(quantised(storage, (ALL, 0.5, -3))), (integers.float() + 3) * 0.5)
    given = (Typed(storage, torch.uint8, is_quantised=True), 6, (2, 3), (3, 1), (ALL, 0.5, 3))
    assert numbers(quantised_tensor(given)).shape == (2, 3)
    with pytest.raises(CheckpointError, match="describes a tensor by too little"):
        quantised_tensor(given[:4])
    for axis, length in ((0, 2), (1, 3)):
        scales, points = (torch.arange(1, length + 1).to(dtype) for dtype in (torch.float64, torch.int64))
        found = quantised(storage, (SLICES, *(in_file(tmp_path, each) for each in (scales, points)), axis))
        along = [-1 if place == axis else 1 for place in range(2)]
        assert torch.equal(numbers(found), ((integers - points.view(along)) * scales.view(along)).float())


def in_file(folder: Path, values: torch.Tensor) -> StoredTensor:
    path = folder / f"{values.dtype}{len(values)}"
    path.write_bytes(values.numpy().tobytes())
    source = Source(path)
    return StoredTensor.of(source.run(0, source.size), values.dtype, shape=tuple(values.shape))


def test_scales_along_an_axis_that_is_not_there_or_of_another_number_are_refused(
    storage: Storage, tmp_path: Path
) -> None:
    scales, points = (in_file(tmp_path, torch.ones(2, dtype=dtype)) for dtype in (torch.float64, torch.int64))
    for axis in (-1, -2, 2, 3):
        with pytest.raises(CheckpointError, match="scales along an axis that it lacks"):
            quantised(storage, (SLICES, scales, points, axis))
    with pytest.raises(CheckpointError, match="another number of scales than of slices"):
        quantised(storage, (SLICES, scales, points, 1))
    three = in_file(tmp_path, torch.ones(3, dtype=torch.int64))
    with pytest.raises(CheckpointError, match="another number of scales than of slices"):
        quantised(storage, (SLICES, scales, three, 0))


def test_a_scale_that_is_not_numbers_is_odd(storage: Storage, tmp_path: Path) -> None:
    scales, points = (in_file(tmp_path, torch.ones(2, dtype=dtype)) for dtype in (torch.float64, torch.int64))
    for quantiser in (
        *(
            (),
            [ALL, 0.5, 3],
            ("torch.per_tensor_affine", 0.5, 3),
            *((Name(name), 0.5, 3) for name in ("torch.a", "torch.z")),
        ),
        *(
            (ALL, 0.5),
            (ALL, 0.5, 3, 0),
            (ALL, 1, 3),
            (ALL, 0.5, 3.0),
            (ALL, 0.5, 2**31),
            (ALL, 0.5, -(2**31)),
            (ALL, 0.5, 2**31 + 1),
        ),
        *((SLICES, scales, points), (SLICES, scales, points, 0, 0), (SLICES, scales, points, True)),
        *((Name(name), scales, points, 0) for name in ("torch.a", "torch.z")),
        *((SLICES, 1.0, points, 0), (SLICES, scales, 0, 0), (SLICES, points, points, 0), (SLICES, scales, scales, 0)),
    ):
        assert "its scale is not one number" in kind(quantised(storage, quantiser)), quantiser
    assert numbers(quantised(storage, (ALL, 0.5, 2**31 - 1))).shape == (2, 3)
    typed = Typed(storage, torch.uint8, is_quantised=False)
    for given in (typed, "0"):
        assert "not of integers" in kind(quantised_tensor((given, 6, (2, 3), (3, 1), (ALL, 0.5, 3))))


NOTES: list[object] = [None, {}, {"note": 1, "mean": 2}, (None, {"note": 1}), ({"note": 1}, None), {OTHER: None}]


@pytest.mark.parametrize("state", NOTES)
def test_what_is_noted_on_a_tensor_does_not_change_it(state: object) -> None:
    check_notes((state,))
    check_notes(())


@pytest.mark.parametrize("name", ["data", "grad", "real", "imag", "requires_grad", "__class__", "__dict__"])
def test_what_is_set_in_a_tensor_itself_is_no_note(name: str) -> None:
    for state in ({name: 1}, {"note": 1, name: 1}, (None, {name: 1}), ({name: 1}, None)):
        with pytest.raises(CheckpointError, match="gives a tensor attributes that change it after it was made"):
            check_notes((state,))


@pytest.mark.parametrize("state", [StandIn("collections.Counter"), [], 3, "data", (None, [])])
def test_notes_that_cannot_be_looked_at_are_refused(state: object) -> None:
    with pytest.raises(CheckpointError, match="gives a tensor attributes that change it"):
        check_notes((state,))
