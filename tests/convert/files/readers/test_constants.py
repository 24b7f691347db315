"""What nodes make of tensors in the file: the standard's numbers, or nothing where a node is not one that is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import torch
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.quantised import DEQUANTISED
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.onnx.constants import DERIVING, constant, derived, plain
from conv2attn.convert.files.readers.onnx.nodes import Node
from conv2attn.convert.files.readers.onnx.protobuf import Message
from conv2attn.convert.files.readers.onnx.scopes import Known

WEIGHT = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4) / 7 - 1
INTEGERS = torch.tensor([[1, -2, 3], [4, 5, -128]], dtype=torch.int8)
ROUNDED = "its weights went through QuantizeLinear, which rounds them, and DequantizeLinear"
TO_FLOAT16, TO_FLOAT32, TO_INT8, TO_FLOAT64, TO_FLOAT8, TO_COMPLEX64 = (
    10,
    1,
    3,
    11,
    17,
    14,
)  # as onnx.proto numbers them

Store = Callable[[Tensor], Known]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Writes numbers to a file of their own, and describes them."""

    def write(tensor: Tensor) -> Known:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        path.write_bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        source = Source(path)
        stored = StoredTensor.of(source.run(0, source.size), tensor.dtype, shape=list(tensor.shape))
        return Known("w", stored, "origin")

    return write


def made(operator: str, *inputs: Known | None, **attributes: Any) -> Known | None:
    """What a node makes of its inputs; one that is not known has a name all the same."""
    node = Node(operator=operator, inputs=[f"input {number}" for number in range(len(inputs))], attributes=attributes)
    return derived(node, inputs, "made")


def numbers(known: Known | None) -> Tensor:
    """The numbers of what was made."""
    assert known is not None
    assert isinstance(known.tensor, StoredTensor)
    return known.tensor.read()


def budget(known: Known) -> int:
    assert isinstance(known.tensor, StoredTensor)
    return known.tensor.storage.source.budget.memory


def test_these_operators_are_read() -> None:
    assert set(DERIVING) == {"Identity", "Cast", "Transpose", "Reshape", "QuantizeLinear", "DequantizeLinear"}


@pytest.mark.parametrize("name", ["value", "value_float", "value_floats"])
def test_a_constant_is_the_tensor_or_the_numbers_that_it_holds(name: str, store: Store) -> None:
    tensor = store(WEIGHT).tensor
    assert constant(Node(tensors={name: tensor}), "made") == Known("made", tensor, "made")
    assert constant(Node(tensors={"sparse_value": tensor, name: tensor}), "made") == Known("made", tensor, "made")


def test_a_constant_that_is_text_or_sparse_or_not_said_is_none(store: Store) -> None:
    assert constant(Node(), "made") is None
    assert constant(Node(attributes={"value_string": "a", "value_int": 1}), "made") is None
    assert constant(Node(tensors={"sparse_value": store(WEIGHT).tensor}), "made") is None


def test_a_constant_that_is_said_twice_is_none(store: Store) -> None:
    """ONNX Runtime takes what is said first."""
    tensor = store(WEIGHT).tensor
    assert isinstance(tensor, StoredTensor)
    message = Message(tensor.storage.source, 0, 0)
    assert constant(Node(tensors={"value": tensor}, messages={"value": message}), "made") is not None
    messages = {"value_int": message, "value": message}
    assert constant(Node(tensors={"value": tensor}, messages=messages), "made") is None


def test_the_numbers_of_a_tensor_are_those_in_the_file(store: Store) -> None:
    weight = store(WEIGHT)
    found = plain(weight)
    assert found is not None
    assert torch.equal(found, WEIGHT)


def odd(store: Store) -> list[Known | None]:
    """Tensors without numbers: none, one that is not plain, and one that its file is too short for."""
    weight = store(WEIGHT)
    assert isinstance(weight.tensor, StoredTensor)
    short = StoredTensor.of(weight.tensor.storage, torch.float32, shape=[25])
    return [None, weight._replace(tensor=OddTensor("sparse")), weight._replace(tensor=short)]


def test_nothing_is_made_of_what_has_no_numbers(store: Store) -> None:
    for known in odd(store):
        assert plain(known) is None
        assert made("Identity", known) is None
    assert made("Identity") is None
    assert derived(Node(operator="Identity"), [], "made") is None


def test_each_node_is_a_step_and_sixteen_are_followed(store: Store) -> None:
    known: Known | None = store(WEIGHT)
    for step in range(16):
        known = made("Identity", known)
        assert known is not None
        assert known.steps == step + 1
    assert made("Identity", known) is None


def test_an_identity_is_its_input(store: Store) -> None:
    weight = store(WEIGHT)._replace(note="a note")
    assert made("Identity", weight) == weight._replace(steps=1)


@pytest.mark.parametrize(
    ("to", "dtype"), [(TO_FLOAT16, torch.float16), (TO_FLOAT64, torch.float64), (16, torch.bfloat16)]
)
@pytest.mark.parametrize("given", [WEIGHT, INTEGERS, INTEGERS == 4, INTEGERS.float().to(torch.float8_e5m2)])
def test_a_cast_to_floating_point_rounds_as_torch_does(
    given: Tensor, to: int, dtype: torch.dtype, store: Store
) -> None:
    known = store(given)._replace(note="a note")
    found = made("Cast", known, to=to)
    assert found is not None
    assert (found.key, found.origin, found.note, found.steps) == ("made", "origin", "a note", 1)
    assert numbers(found).dtype == dtype
    assert torch.equal(numbers(found), given.to(dtype))


def test_a_cast_is_made_once_and_paid_for(store: Store) -> None:
    known = store(WEIGHT)
    before, found = budget(known), made("Cast", known, to=TO_FLOAT16)
    assert budget(known) == before
    numbers(found)
    numbers(found)
    assert budget(known) == before - 2 * 24


@pytest.mark.parametrize(("given", "to"), [(WEIGHT, TO_FLOAT32), (INTEGERS, TO_INT8)])
def test_a_cast_to_what_a_tensor_is_anyway_is_the_tensor(given: Tensor, to: int, store: Store) -> None:
    known = store(given)
    assert made("Cast", known, to=to) == known._replace(steps=1)


def test_a_cast_to_anything_else_is_not_read(store: Store) -> None:
    weight, narrow = store(WEIGHT), store(WEIGHT.half())
    for to in (TO_INT8, TO_FLOAT8, TO_COMPLEX64, 0, 99, "FLOAT16"):
        assert made("Cast", weight, to=to) is None
        assert made("Cast", narrow, to=to) is None
    assert made("Cast", narrow) is None
    assert made("Cast", store(WEIGHT.to(torch.complex64)), to=TO_FLOAT16) is None


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0], [0, 2, 1]])
def test_a_transposed_tensor_has_its_axes_in_the_order_that_is_said_without_a_copy(
    order: list[int], store: Store
) -> None:
    weight = store(WEIGHT)._replace(note="a note")
    before, found = budget(weight), made("Transpose", weight, perm=order)
    assert found is not None
    assert (found.key, found.origin, found.note) == ("made", "origin", "a note")
    assert torch.equal(numbers(found), WEIGHT.permute(order))
    assert torch.equal(numbers(made("Transpose", found, perm=[1, 2, 0])), WEIGHT.permute(order).permute(1, 2, 0))
    assert budget(weight) == before


def test_a_transposed_tensor_begins_where_the_tensor_does(store: Store) -> None:
    weight = store(WEIGHT)
    assert isinstance(weight.tensor, StoredTensor)
    part = weight._replace(tensor=StoredTensor.of(weight.tensor.storage, torch.float32, shape=[3, 4], first=12))
    assert torch.equal(numbers(made("Transpose", part)), WEIGHT[1].T)


def test_the_axes_are_turned_round_where_no_order_is_said(store: Store) -> None:
    assert torch.equal(numbers(made("Transpose", store(WEIGHT))), WEIGHT.permute(2, 1, 0))
    assert torch.equal(numbers(made("Transpose", store(WEIGHT[0, 0, 0]))), WEIGHT[0, 0, 0])


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 2, 3], [1, 2, 3], [-1, 0, 1], [], 0, "012"])
def test_an_order_that_is_not_one_of_the_axes_is_not_read(order: Any, store: Store) -> None:
    assert made("Transpose", store(WEIGHT), perm=order) is None


@pytest.mark.parametrize(
    ("wanted", "shape"),
    [
        ([24], (24,)),
        ([4, 6], (4, 6)),
        ([0, -1], (2, 12)),
        ([0, 0, 4], (2, 3, 4)),
        ([-1, 0, 2], (4, 3, 2)),
        ([-1], (24,)),
        ([24, -1], (24, 1)),
        ([1] * 63 + [24], (1,) * 63 + (24,)),
        ([2, 3, 4, 1], (2, 3, 4, 1)),
    ],
)
def test_a_reshaped_tensor_has_the_sizes_that_are_said_or_copied_or_left_over(
    wanted: list[int], shape: tuple[int, ...], store: Store
) -> None:
    weight = store(WEIGHT)._replace(note="a note")
    before, found = budget(weight), made("Reshape", weight, store(torch.tensor(wanted)))
    assert found is not None
    assert (found.key, found.origin, found.note) == ("made", "origin", "a note")
    assert torch.equal(numbers(found), WEIGHT.reshape(shape))
    assert budget(weight) == before


@pytest.mark.parametrize(
    "wanted",
    [
        [],
        [23],
        [25],
        [-1, -1],
        [0, 0, 0, 0],
        [5, -1],
        [-2, -12],
        [-24],
        [2, 3, 4, 1, 0],
        [2, 3, 4, 0],
        [0, -1, 7],
        [-2, -1],
        [-1] * 3,
    ],
)
def test_a_shape_of_another_number_of_numbers_is_not_read(wanted: list[int], store: Store) -> None:
    assert made("Reshape", store(WEIGHT), store(torch.tensor(wanted, dtype=torch.int64))) is None


def test_one_number_takes_a_shape_without_axes_and_back(store: Store) -> None:
    one = store(torch.ones(1))
    assert numbers(made("Reshape", one, store(torch.tensor([], dtype=torch.int64)))).shape == ()
    scalar = store(torch.ones(()))
    assert numbers(made("Reshape", scalar, store(torch.tensor([1, -1])))).shape == (1, 1)
    assert made("Reshape", scalar, store(torch.tensor([0]))) is None
    for known in (one, scalar):
        assert made("Reshape", known, store(torch.tensor([-1, -1]))) is None


def test_a_size_below_minus_one_is_not_left_over(store: Store) -> None:
    assert made("Reshape", store(WEIGHT[0, :2]), store(torch.tensor([-1, -2, -2]))) is None
    assert numbers(made("Reshape", store(WEIGHT[0, :2]), store(torch.tensor([-1, 2, 2])))).shape == (2, 2, 2)


def test_a_zero_is_a_size_where_allowzero_says_so(store: Store) -> None:
    empty = store(torch.zeros(0, 3))
    assert numbers(made("Reshape", empty, store(torch.tensor([3, 0])), allowzero=1)).shape == (3, 0)
    assert numbers(made("Reshape", empty, store(torch.tensor([3, 7, 0])), allowzero=1)).shape == (3, 7, 0)
    assert made("Reshape", empty, store(torch.tensor([3, 0])), allowzero=0) is None
    assert made("Reshape", empty, store(torch.tensor([3, 0]))) is None
    assert numbers(made("Reshape", empty, store(torch.tensor([0, 5])))).shape == (0, 5)
    assert made("Reshape", store(WEIGHT), store(torch.tensor([0, -1])), allowzero=1) is None


def test_what_is_left_over_beside_no_numbers_is_not_read(store: Store) -> None:
    empty = store(torch.zeros(0, 3))
    assert made("Reshape", empty, store(torch.tensor([0, -1]))) is None
    assert numbers(made("Reshape", empty, store(torch.tensor([-1, 3])))).shape == (0, 3)


def test_a_transposed_tensor_is_copied_to_be_reshaped(store: Store) -> None:
    weight = store(WEIGHT)
    turned = made("Transpose", weight)
    before, found = budget(weight), made("Reshape", turned, store(torch.tensor([6, -1])))
    assert torch.equal(numbers(found), WEIGHT.permute(2, 1, 0).reshape(6, 4))
    assert budget(weight) == before - 4 * 24


def test_a_part_of_a_storage_is_reshaped_where_it_begins(store: Store) -> None:
    weight = store(WEIGHT)
    assert isinstance(weight.tensor, StoredTensor)
    part = weight._replace(tensor=StoredTensor.of(weight.tensor.storage, torch.float32, shape=[3, 4], first=12))
    assert torch.equal(numbers(made("Reshape", part, store(torch.tensor([12])))), WEIGHT[1].reshape(12))


def test_a_shape_that_is_not_a_list_of_at_most_64_integers_is_not_read(store: Store) -> None:
    weight = store(WEIGHT)
    assert made("Reshape", weight) is None
    for known in odd(store):
        assert made("Reshape", weight, known) is None
    for wanted in (torch.tensor([24], dtype=torch.int32), torch.tensor([24.0]), torch.tensor([[24]]), torch.tensor(24)):
        assert made("Reshape", weight, store(wanted)) is None
    assert made("Reshape", weight, store(torch.tensor([1] * 64 + [24]))) is None


# https://onnx.ai/onnx/operators/onnx__DequantizeLinear.html: y = (x - zero point) * scale, along axis 1 by default


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32])
def test_integers_are_dequantised_by_one_scale_and_zero_point(dtype: torch.dtype, store: Store) -> None:
    integers = torch.tensor([[1, 2, 3], [4, 5, 100]], dtype=dtype)
    for shape in ((), (1,)):
        scale, point = torch.full(shape, 0.1), torch.full(shape, 7, dtype=dtype)
        found = made("DequantizeLinear", store(integers), store(scale), store(point))
        assert found is not None
        assert (found.key, found.origin, found.note, found.steps) == ("made", "origin", DEQUANTISED, 1)
        assert torch.equal(numbers(found), (integers.float() - 7) * 0.1)


@pytest.mark.parametrize(("axes", "axis"), [({}, 1), ({"axis": 1}, 1), ({"axis": -1}, 1), ({"axis": 0}, 0)])
def test_each_slice_has_its_own_scale_and_zero_point(axes: dict[str, int], axis: int, store: Store) -> None:
    count = INTEGERS.shape[axis]
    scale, point = torch.linspace(0.1, 0.7, count), torch.arange(count, dtype=torch.int8)
    shape = [-1, 1] if axis == 0 else [1, -1]
    found = made("DequantizeLinear", store(INTEGERS), store(scale), store(point), **axes)
    assert torch.equal(numbers(found), (INTEGERS.float() - point.view(shape)) * scale.view(shape))
    assert torch.equal(
        numbers(made("DequantizeLinear", store(INTEGERS), store(scale), block_size=0, **axes)),
        INTEGERS.float() * scale.view(shape),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dequantised_numbers_have_the_precision_of_their_scale(dtype: torch.dtype, store: Store) -> None:
    found = numbers(made("DequantizeLinear", store(INTEGERS), store(torch.tensor(0.3, dtype=dtype))))
    assert found.dtype == dtype
    assert torch.equal(found, (INTEGERS.float() * torch.tensor(0.3, dtype=dtype).float()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.int32])
@pytest.mark.parametrize("integers", [INTEGERS, INTEGERS[0, 0]])
def test_a_scale_of_a_type_that_the_standard_does_not_let_it_have_is_not_read(
    integers: Tensor, dtype: torch.dtype, store: Store
) -> None:
    assert made("DequantizeLinear", store(integers), store(torch.tensor(2.0).to(dtype))) is None


def test_a_single_integer_is_dequantised(store: Store) -> None:
    assert numbers(made("DequantizeLinear", store(INTEGERS[0, 2]), store(torch.tensor(0.5)))) == 1.5


def test_what_a_tensor_came_through_before_is_not_forgotten(store: Store) -> None:
    found = made("DequantizeLinear", store(INTEGERS)._replace(note="a note"), store(torch.tensor(0.5)))
    assert found is not None
    assert found.note == "a note"


def test_scales_and_zero_points_that_do_not_fit_are_not_read(store: Store) -> None:
    integers, one, point = store(INTEGERS), store(torch.tensor(0.5)), store(torch.tensor(1, dtype=torch.int8))
    three = store(torch.ones(3))
    assert made("DequantizeLinear", integers) is None
    for known in odd(store):
        assert made("DequantizeLinear", integers, known) is None
        assert made("DequantizeLinear", integers, one, known) is None
    for scale in (torch.ones(2), torch.ones(4), torch.ones(1, 3), torch.ones(0)):
        assert made("DequantizeLinear", integers, store(scale)) is None
    assert made("DequantizeLinear", integers, three, axis=0) is None
    assert made("DequantizeLinear", integers, three, axis=2) is None
    assert made("DequantizeLinear", integers, three, point) is None
    assert made("DequantizeLinear", integers, one, store(torch.ones(3, dtype=torch.int8))) is None
    assert made("DequantizeLinear", integers, one, store(torch.tensor(1, dtype=torch.uint8))) is None
    assert made("DequantizeLinear", integers, one, point) is not None


def test_blocks_and_axes_and_precisions_that_are_not_plain_are_not_read(store: Store) -> None:
    integers, one = store(INTEGERS), store(torch.tensor(0.5))
    blocks: list[dict[str, Any]] = [{"block_size": size} for size in (1, 2, -1, "2")]
    for attributes in [*blocks, {"axis": "1"}, {"axis": [1]}, {"output_dtype": 1}, {"output_dtype": 0}]:
        assert made("DequantizeLinear", integers, one, **attributes) is None


def test_a_zero_point_whose_name_is_empty_is_left_out(store: Store) -> None:
    inputs = [store(INTEGERS), store(torch.tensor(0.5)), None]
    node = Node(operator="DequantizeLinear", inputs=["w", "s", ""])
    assert torch.equal(numbers(derived(node, inputs, "made")), INTEGERS.float() * 0.5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bool])
def test_only_integers_of_at_most_32_bits_are_dequantised(dtype: torch.dtype, store: Store) -> None:
    assert made("DequantizeLinear", store(INTEGERS.to(dtype)), store(torch.tensor(0.5))) is None


# https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html: y = saturate(round half to even (x / scale) + zero point)

VALUES = torch.tensor([[0.25, 0.75, 1.25, -0.75], [1000.0, -1000.0, 0.4, 63.5]])


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("axis", [0, 1, 9])
def test_numbers_are_rounded_half_to_even_and_saturate(
    dtype: torch.dtype, shape: tuple[int, ...], axis: int, store: Store
) -> None:
    scale, point = torch.full(shape, 0.5), torch.full(shape, 3, dtype=dtype)
    found = made("QuantizeLinear", store(VALUES), store(scale), store(point), axis=axis)
    assert found is not None
    assert (found.key, found.origin, found.note, found.steps) == ("made", "origin", ROUNDED, 1)
    least, most = (-128, 127) if dtype == torch.int8 else (0, 255)
    exact = torch.tensor([[0 + 3, 2 + 3, 2 + 3, -2 + 3], [most, least, 1 + 3, min(127 + 3, most)]])
    assert numbers(found).dtype == dtype
    assert torch.equal(numbers(found), exact.to(dtype))


def test_a_zero_point_that_is_left_out_is_0_of_eight_bits_without_a_sign(store: Store) -> None:
    found = numbers(made("QuantizeLinear", store(VALUES), store(torch.tensor(0.5))))
    assert torch.equal(found, torch.tensor([[0, 2, 2, 0], [255, 0, 1, 127]], dtype=torch.uint8))


@pytest.mark.parametrize(
    ("axes", "axis"), [({}, 1), ({"axis": 0}, 0), ({"axis": 2}, 2), ({"axis": -3}, 0), ({"axis": -1}, 2)]
)
@pytest.mark.parametrize("pointed", [True, False])
def test_each_slice_is_rounded_by_its_own_scale(axes: dict[str, int], axis: int, pointed: bool, store: Store) -> None:
    count, shape = WEIGHT.shape[axis], [1, 1, 1]
    shape[axis] = -1
    scale, point = torch.linspace(0.02, 0.3, count), torch.arange(5, 5 + count, dtype=torch.uint8)
    given = [store(WEIGHT), store(scale), *([store(point)] if pointed else [])]
    shift = point.view(shape) if pointed else 0
    exact = ((WEIGHT / scale.view(shape)).round() + shift).clamp(0, 255).to(torch.uint8)
    found = made("QuantizeLinear", *given, **axes)
    assert torch.equal(numbers(found), exact)
    assert exact.float().std() > 1


def test_rounding_takes_the_numbers_in_single_precision_besides_the_result(store: Store) -> None:
    known = store(WEIGHT)
    found = made("QuantizeLinear", known, store(torch.tensor(0.5)))
    assert isinstance(known.tensor, StoredTensor)
    spent = known.tensor.storage.source.budget
    spent.memory = 24 + 4 * 24
    numbers(found)
    assert spent.memory == 4 * 24
    found = made("QuantizeLinear", known, store(torch.tensor(0.5)))
    spent.memory = 24 + 4 * 24 - 1
    with pytest.raises(CheckpointError, match="takes more memory"):
        numbers(found)


def test_as_many_channels_as_a_file_has_room_for_are_rounded_in_a_second(store: Store) -> None:
    found = made("QuantizeLinear", store(torch.ones(2**18, 1, 1)), store(torch.tensor(0.5)))
    before = process_time()
    assert int(numbers(found).sum()) == 2 * 2**18
    assert process_time() - before < 1


def test_a_single_number_is_quantised(store: Store) -> None:
    found = numbers(made("QuantizeLinear", store(VALUES[0, 1]), store(torch.tensor([0.5]))))
    assert (found.shape, found.item()) == ((), 2)


def test_an_empty_tensor_is_quantised_to_an_empty_one(store: Store) -> None:
    found = numbers(made("QuantizeLinear", store(torch.zeros(0, 3)), store(torch.tensor(0.5))))
    assert (found.shape, found.dtype) == ((0, 3), torch.uint8)


def test_quantised_and_dequantised_weights_are_said_to_be_rounded(store: Store) -> None:
    scale, point = store(torch.tensor(0.25)), store(torch.tensor(2, dtype=torch.int8))
    found = made("DequantizeLinear", made("QuantizeLinear", store(WEIGHT), scale, point), scale, point)
    assert found is not None
    assert (found.note, found.steps) == (ROUNDED, 2)
    assert torch.equal(numbers(found), (WEIGHT / 0.25).round() * 0.25)


def test_what_is_not_quantised_to_eight_bits_from_single_precision_is_not_read(store: Store) -> None:
    weight, one = store(WEIGHT), store(torch.tensor(0.5))
    assert made("QuantizeLinear", weight) is None
    assert made("QuantizeLinear", weight, one) is not None
    for tensor in (WEIGHT.half(), WEIGHT.double(), WEIGHT.to(torch.int32)):
        assert made("QuantizeLinear", store(tensor), one) is None
    for scale in (torch.tensor(0.5).half(), torch.tensor(0.5).double(), torch.ones(4)):
        assert made("QuantizeLinear", weight, store(scale)) is None
    for dtype in (torch.int16, torch.uint16, torch.int32, torch.float8_e4m3fn):
        assert made("QuantizeLinear", weight, one, store(torch.tensor(1.0).to(dtype))) is None
    for attributes in ({"output_dtype": 3}, {"precision": 1}, {"block_size": 2}):
        assert made("QuantizeLinear", weight, one, **attributes) is None
