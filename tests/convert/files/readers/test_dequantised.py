"""Integers in a file become the numbers that they stand for, in the precision of those who defined them."""

from __future__ import annotations

from pathlib import Path
from time import process_time
from typing import Any

import pytest
import torch
from torch import Tensor

from conv2attn.convert.files.readers.common.quantised import dequantised, fits
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.quantised_program import dequantised_weight

INTEGERS = torch.tensor([[1, -2, 3], [4, 5, -128]], dtype=torch.int8)
SCALES, POINTS = torch.tensor([0.5, 0.3], dtype=torch.float64), torch.tensor([1, -7])


def stored(folder: Path, tensor: Tensor, name: str = "w") -> StoredTensor:
    (folder / name).write_bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    source = Source(folder / name)
    return StoredTensor.of(source.run(0, source.size), tensor.dtype, shape=list(tensor.shape))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("point", [None, torch.tensor(3), torch.tensor([3])])
def test_one_scale_multiplies_in_single_precision(point: Tensor | None, dtype: torch.dtype, tmp_path: Path) -> None:
    integers, scale = stored(tmp_path, INTEGERS), torch.tensor(0.1)
    found = dequantised(integers, scale, point, dtype=dtype).read()
    assert found.dtype == dtype
    assert torch.equal(found, ((INTEGERS.float() - (0 if point is None else 3)) * scale).to(dtype))


@pytest.mark.parametrize(("axis", "count"), [(0, 2), (1, 3), (-1, 3), (-2, 2)])
@pytest.mark.parametrize("double", [False, True])
def test_each_slice_has_its_scale_and_its_zero_point(axis: int, count: int, double: bool, tmp_path: Path) -> None:
    if double and axis in (1, -1):
        return  # PyTorch keeps scales of the first axis alone in double precision
    scales = torch.linspace(0.1, 0.7, count, dtype=torch.float64 if double else torch.float32)
    points = torch.arange(count)
    found = dequantised(stored(tmp_path, INTEGERS), scales, points, axis=axis).read()
    shape = [1, 1]
    shape[axis] = count
    given = INTEGERS.double() if double else INTEGERS.float()
    assert torch.equal(found, ((given - points.view(shape)) * scales.view(shape)).float())


def test_scales_of_slices_go_with_one_zero_point_and_one_scale_with_several(tmp_path: Path) -> None:
    integers = stored(tmp_path, INTEGERS)
    for points in (torch.tensor(2), torch.tensor([2])):
        found = dequantised(integers, SCALES, points).read()
        assert torch.equal(found, ((INTEGERS.double() - 2) * SCALES.view(2, 1)).float())
    found = dequantised(integers, SCALES[:1], POINTS).read()
    assert torch.equal(found, ((INTEGERS.double() - POINTS.view(2, 1)) * 0.5).float())


@pytest.mark.parametrize("shape", [(), (6,), (1, 2, 3)])
def test_scales_in_a_file_are_read_when_they_are_needed_for_tensors_of_any_axes(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    values = INTEGERS.view(-1)[:1] if shape == () else INTEGERS
    integers = stored(tmp_path, values.reshape(shape))
    scale, point = stored(tmp_path, torch.tensor(0.5), "s"), stored(tmp_path, torch.tensor(2), "z")
    assert torch.equal(dequantised(integers, scale, point).read(), (values.reshape(shape).float() - 2) * 0.5)


@pytest.mark.parametrize(
    ("dtype", "scale", "most"),
    [
        (torch.float32, torch.tensor(0.5), 24),
        (torch.float16, torch.tensor(0.5), 12 + 24),
        (torch.float32, SCALES, 24 + 8 * 6),
        (torch.float16, SCALES, 12 + 24 + 8 * 6),
    ],
)
def test_what_is_made_and_what_that_takes_is_paid_for(
    dtype: torch.dtype, scale: Tensor, most: int, tmp_path: Path
) -> None:
    integers = stored(tmp_path, INTEGERS)
    budget = integers.storage.source.budget
    found = dequantised(integers, scale, None, dtype=dtype)
    budget.memory = most - 1
    with pytest.raises(ValueError, match="more memory"):
        found.read()
    budget.memory = most
    found.read()
    assert budget.memory == most - 6 * dtype.itemsize


@pytest.mark.parametrize("shape", [(1, 6), (0, 6)])
def test_a_slice_in_double_precision_is_paid_for_where_there_is_one_or_none(
    shape: tuple[int, int], tmp_path: Path
) -> None:
    integers = stored(tmp_path, INTEGERS.view(1, 6)[: shape[0]])
    budget = integers.storage.source.budget
    budget.memory = most = (4 + 8) * integers.numel
    found = dequantised(integers, SCALES[:1], None)
    assert torch.equal(found.read(), (INTEGERS.double() * 0.5).float().view(1, 6)[: shape[0]])
    assert budget.memory == most - 4 * integers.numel
    if most:
        budget.memory = most - 1
        with pytest.raises(ValueError, match="more memory"):
            dequantised(integers, SCALES[:1], None).read()


@pytest.mark.parametrize(("row", "at_once"), [(2**15, 2), (2**15 + 1, 1), (2**16, 1), (2**16 + 1, 1), (2**14, 3)])
def test_slices_of_up_to_65536_numbers_are_in_double_precision_at_once(row: int, at_once: int, tmp_path: Path) -> None:
    integers = torch.arange(3 * row, dtype=torch.int32).to(torch.int8).view(3, row)
    given = stored(tmp_path, integers)
    budget = given.storage.source.budget
    scales, points = torch.tensor([0.1, 0.7, 0.3], dtype=torch.float64), torch.tensor([1, -7, 0])
    budget.memory = 4 * 3 * row + 8 * at_once * row - 1
    with pytest.raises(ValueError, match="more memory"):
        dequantised(given, scales, points).read()
    budget.memory = 4 * 3 * row + 8 * at_once * row
    found = dequantised(given, scales, points).read()
    assert torch.equal(found, ((integers.double() - points.view(3, 1)) * scales.view(3, 1)).float())


def test_slices_of_one_number_are_in_double_precision_by_65536_and_those_of_none_are_empty(tmp_path: Path) -> None:
    given = stored(tmp_path, torch.ones(2**17, dtype=torch.int8))
    given.storage.source.budget.memory = (4 * 2 + 8) * 2**16 - 1
    with pytest.raises(ValueError, match="more memory"):
        dequantised(given, SCALES[:1], None).read()
    given = stored(tmp_path, torch.ones(2, 0, dtype=torch.int8))
    assert dequantised(given, SCALES, POINTS).read().shape == (2, 0)


@pytest.mark.parametrize("count", [1, 2**18])
def test_as_many_slices_as_a_file_has_room_for_are_dequantised_in_a_second(count: int, tmp_path: Path) -> None:
    integers = stored(tmp_path, torch.ones(2**18, 1, 1, dtype=torch.int8))
    found = dequantised(integers, torch.full((count,), 0.5, dtype=torch.float64), None)
    before = process_time()
    assert found.read().sum() == 2**17
    assert process_time() - before < 1


def test_scales_fit_if_they_are_one_or_one_for_each_slice() -> None:
    for axis in (-3, 0, 7):
        assert fits((), (2, 3), axis)
        assert fits((1,), (2, 3), axis)
    assert [fits((2,), (2, 3), axis) for axis in range(-3, 3)] == [False, True, False, True, False, False]
    assert [fits((3,), (2, 3), axis) for axis in range(-3, 3)] == [False, False, True, False, True, False]
    assert not fits((2, 1), (2, 3), 0)
    assert not fits((3,), (2, 3), 7)


ALL, SLICES = (f"torch.ops.quantized_decomposed.dequantize_per_{each}.default" for each in ("tensor", "channel"))
KEYS = {"p_w": "weight", "p_s": "scales", "p_z": "points"}


def maker(target: str, **given: Any) -> dict[str, object]:
    """A node as JSON has it."""

    def argument(value: Any) -> dict[str, object]:
        if isinstance(value, str):
            return {"as_tensor": {"name": value}}
        return {"as_float" if isinstance(value, float) else "as_int": value}

    return {"target": target, "inputs": [{"name": name, "arg": argument(value)} for name, value in given.items()]}


PER_TENSOR: dict[str, Any] = {"input": "p_w", "scale": 0.5, "zero_point": 3}
PER_CHANNEL: dict[str, Any] = {"input": "p_w", "scales": "p_s", "zero_points": "p_z", "axis": 0}


def tensors(folder: Path, **others: Any) -> dict[str, object]:
    held = {"weight": INTEGERS, "scales": SCALES.float(), "points": POINTS, **others}
    return {name: stored(folder, one, name) if isinstance(one, Tensor) else one for name, one in held.items()}


@pytest.mark.parametrize("point", [3, 0, 1 - 2**31, 2**31 - 1])
def test_a_program_s_weight_of_one_scale_is_what_torch_makes_of_it(point: int, tmp_path: Path) -> None:
    found = dequantised_weight(maker(ALL, **{**PER_TENSOR, "zero_point": point}), KEYS, tensors(tmp_path))
    assert found is not None
    key, weight = found
    assert key == "weight"
    assert torch.equal(weight.read(), (INTEGERS.float() - torch.tensor(point).float()) * 0.5)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("points", [torch.int64, torch.int32, torch.int8])
def test_a_program_s_weight_of_many_scales_is_what_torch_makes_of_it(
    dtype: torch.dtype, points: torch.dtype, tmp_path: Path
) -> None:
    integers = INTEGERS.abs().clamp(max=100).to(dtype)
    held = tensors(tmp_path, weight=integers, points=POINTS.to(points))
    found = dequantised_weight(maker(SLICES, **PER_CHANNEL), KEYS, held)
    assert found is not None
    assert torch.equal(found[1].read(), (integers.float() - POINTS.view(2, 1)) * SCALES.float().view(2, 1))
    found = dequantised_weight(maker(SLICES, **{**PER_CHANNEL, "axis": -2}), KEYS, held)
    assert found is not None


@pytest.mark.parametrize(
    ("node", "others"),
    [
        (None, {}),
        (maker("torch.ops.aten.mul.Tensor", **PER_TENSOR), {}),
        (maker(ALL, **PER_TENSOR, out_dtype=1), {}),
        (maker(SLICES, **PER_CHANNEL, out_dtype=1), {}),
        (maker(ALL, **{**PER_TENSOR, "input": "other"}), {}),
        (maker(ALL, scale=0.5, zero_point=3), {}),
        (maker(ALL, **PER_TENSOR), {"weight": INTEGERS.float()}),
        (maker(ALL, **PER_TENSOR), {"weight": OddTensor("sparse")}),
        (maker(ALL, **PER_TENSOR), {"weight": "cut"}),
        (maker(ALL, **{**PER_TENSOR, "scale": 1}), {}),
        (maker(ALL, input="p_w", zero_point=3), {}),
        (maker(ALL, input="p_w", scale=0.5), {}),
        (maker(ALL, **{**PER_TENSOR, "zero_point": 3.0}), {}),
        (maker(ALL, **{**PER_TENSOR, "zero_point": 2**31}), {}),
        (maker(ALL, **{**PER_TENSOR, "zero_point": -(2**31)}), {}),
        (maker(ALL, **{**PER_TENSOR, "zero_point": 2**31 + 5}), {}),
        (maker(SLICES, **{**PER_CHANNEL, "axis": 1}), {}),
        (maker(SLICES, **{**PER_CHANNEL, "axis": 2}), {}),
        (maker(SLICES, input="p_w", scales="p_s", zero_points="p_z"), {}),
        (maker(SLICES, input="p_w", scales="p_s", axis=0), {}),
        (maker(SLICES, input="p_w", zero_points="p_z", axis=0), {}),
        (maker(SLICES, **PER_CHANNEL), {"scales": SCALES}),
        (maker(SLICES, **PER_CHANNEL), {"scales": torch.ones(3)}),
        (maker(SLICES, **PER_CHANNEL), {"points": POINTS.float()}),
        (maker(SLICES, **PER_CHANNEL), {"points": torch.arange(3)}),
        (maker(SLICES, **PER_CHANNEL), {"scales": "cut"}),
        (maker(SLICES, **PER_CHANNEL), {"points": "cut"}),
    ],
)
def test_what_is_not_known_of_a_program_s_weight_leaves_it_out(
    node: dict[str, object] | None, others: dict[str, Any], tmp_path: Path
) -> None:
    held = tensors(tmp_path, **{name: one for name, one in others.items() if not isinstance(one, str)})
    for name, one in others.items():
        if one == "cut":  # it would need more numbers than there are
            whole = held[name]
            assert isinstance(whole, StoredTensor)
            held[name] = StoredTensor.of(whole.storage, whole.dtype, shape=list(whole.shape), first=5)
    assert dequantised_weight(node, KEYS, held) is None
