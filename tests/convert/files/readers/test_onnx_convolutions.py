"""What a node over floating-point numbers, or over integers, convolves with, or why that is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from conv2attn.convert.files.readers.common.quantised import DEQUANTISED, ROUNDING
from conv2attn.convert.files.readers.common.stored import OddTensor, StoredTensor
from conv2attn.convert.files.readers.onnx.convolutions import CONVOLUTIONS, convolution
from conv2attn.convert.files.readers.onnx.nodes import Node
from conv2attn.convert.files.readers.onnx.scopes import Known, Scope, Unknown

Put = Callable[..., Known]

NO_SCALE = "its weights are the node's integers less their zero point; nodes behind it apply the scale"
SCALED = f"{DEQUANTISED}; nodes beside it round its input, and may add a bias"
WEIGHT = torch.arange(24, dtype=torch.float32).view(2, 3, 2, 2)
INTEGERS = torch.arange(-12, 12, dtype=torch.int8).view(2, 3, 1, 4)


def node(operator: str, *inputs: str, **attributes: Any) -> Node:
    return Node(operator, name="n", inputs=list(inputs), outputs=["y"], attributes=attributes)


def numbers(known: Known) -> Tensor:
    assert isinstance(known.tensor, StoredTensor)
    return known.tensor.read()


def problem(found: tuple[StoredConvolution, list[Known]]) -> str | None:
    stored = found[0]
    assert (stored.problem is None) == (stored.spec is not None)
    return stored.problem


@pytest.mark.parametrize("operator", CONVOLUTIONS)
def test_operators_of_others_are_told_and_so_are_those_that_are_no_plain_convolutions(
    operator: str, scope: Scope
) -> None:
    theirs = Node(operator, domain="d" * 101)
    assert convolution(theirs, scope, None) == (
        StoredConvolution.refused(f"it is an operator of {'d' * 100!r}, not of ONNX"),
        [],
    )
    if operator not in ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"):
        assert convolution(node(operator), scope, None) == (
            StoredConvolution.refused(f"{operator} is not a plain convolution"),
            [],
        )


@pytest.mark.parametrize("has_bias", [False, True])
def test_a_convolution_takes_its_weight_and_its_bias_from_its_second_and_third_input(
    has_bias: bool, scope: Scope, put: Put
) -> None:
    weight, bias = put("w", WEIGHT, "noted"), put("b", [1.0, 2.0])
    stored, used = convolution(node("Conv", "x", "w", *["b"] * has_bias, group=1, strides=[2, 1]), scope, None)
    assert used == [weight, bias][: 1 + has_bias]
    assert (stored.weight, stored.bias, stored.note) == ("key of w", "key of b" if has_bias else None, "noted")
    assert stored.spec is not None
    spec = stored.spec
    assert (spec.in_channels, spec.out_channels, spec.kernel_size, spec.stride) == (3, 2, (2, 2), (2, 1))
    assert (spec.bias, spec.transposed) == (has_bias, False)


def test_a_transposed_convolution_takes_them_too_and_has_its_own_channels(scope: Scope, put: Put) -> None:
    put("w", WEIGHT)
    stored, _ = convolution(node("ConvTranspose", "x", "w", "", output_padding=[1, 0], strides=[2, 2]), scope, None)
    assert stored.spec is not None
    assert stored.note is None
    assert (stored.spec.in_channels, stored.spec.out_channels) == (2, 3)
    assert (stored.spec.transposed, stored.spec.output_padding) == (True, (1, 0))


def test_the_kernel_that_a_node_names_is_its_weight_s(scope: Scope, put: Put) -> None:
    put("w", WEIGHT)
    assert problem(convolution(node("Conv", "x", "w", kernel_shape=[2, 2]), scope, None)) is None
    for wrong in ([2], [2, 3], [3, 2, 2], []):
        told = problem(convolution(node("Conv", "x", "w", kernel_shape=wrong), scope, None))
        assert told == "its weight does not have the shape of its kernel"


def test_what_is_not_in_the_file_is_told(scope: Scope, put: Put) -> None:
    put("w", WEIGHT)
    put("r", Unknown("r" * 201))
    put("odd", OddTensor("sparse"))
    for inputs, told in (
        (("x",), "its weight is computed or not in the file"),
        (("x", "other"), "its weight is computed or not in the file"),
        (("x", "r"), f"its weight is {'r' * 200}"),
        (("x", "w", "other"), "its bias is computed or not in the file"),
        (("x", "w", "r"), f"its bias is {'r' * 200}"),
        (("x", "r", "other"), f"its weight is {'r' * 200}"),
        (("x", "odd"), "its weight is computed or not a plain tensor"),
        (("x", "w", "odd"), "its bias is computed or not one number a channel"),
    ):
        assert problem(convolution(node("Conv", *inputs), scope, None)) == told
    uneven = convolution(node("Conv", "x", "w", pads=[0, 0, 1, 2]), scope, None)[0].spec
    assert uneven is not None
    assert uneven.padding == ((0, 1), (0, 2))
    told = "its dilations are not one number for each axis"
    assert problem(convolution(node("Conv", "x", "w", dilations=[1]), scope, None)) == told


# Over integers


def test_integers_without_a_known_scale_are_taken_less_their_zero_point(scope: Scope, put: Put) -> None:
    put("w", INTEGERS, "noted")
    put("z", torch.tensor(3, dtype=torch.int8))
    double = Known("s", put("double", torch.tensor(0.5).double()).tensor, "s")
    odd = Known("s", put("odd", [1.0, 2.0, 3.0]).tensor, "s")
    for scale in (None, double, odd):
        stored, used = convolution(node("ConvInteger", "x", "w", "", "z"), scope, scale)
        assert stored.spec is not None
        assert (stored.weight, stored.bias) == ("key of w (ConvInteger y)", None)
        assert stored.note == f"noted; {NO_SCALE}"
        assert numbers(used[0]).tolist() == (INTEGERS.float() - 3).tolist()
        assert (used[0].key, used[0].origin) == (stored.weight, "w")


@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 1), (1, 2, 1, 1)])
def test_integers_with_a_known_scale_are_multiplied_by_it(shape: tuple[int, ...], scope: Scope, put: Put) -> None:
    put("w", INTEGERS)
    values = torch.tensor([0.5, 0.25][: 2 if 2 in shape else 1]).view(shape)
    stored, used = convolution(node("ConvInteger", "x", "w", "zx"), scope, put("s", values))
    assert stored.note == SCALED
    assert numbers(used[0]).tolist() == (INTEGERS * values.reshape(-1, 1, 1, 1)).tolist()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("is_each", [False, True])
def test_a_quantised_convolution_is_one_of_what_its_integers_stand_for(
    is_each: bool, dtype: torch.dtype, scope: Scope, put: Put
) -> None:
    """X with scale and zero point, W with both, those of the result, and a bias in the unit of the sums."""
    integers = INTEGERS.abs().to(dtype)
    scales = torch.tensor([0.3, 0.7] if is_each else 0.3)
    points = torch.tensor([1, 5] if is_each else 1, dtype=dtype)
    put("w", integers)
    put("sx", torch.tensor([0.1]))
    put("s", scales)
    put("z", points)
    put("b", torch.tensor([2**24 + 1, -7], dtype=torch.int32))
    inputs = ["x", "sx", "zx", "w", "s", "z", "sy", "zy", "b"]
    stored, used = convolution(node("QLinearConv", *inputs), scope, None)
    assert stored.spec is not None
    key = "key of w (QLinearConv y)"
    assert (stored.weight, stored.bias, stored.note) == (key, f"{key} (bias)", f"{DEQUANTISED}; {ROUNDING}")
    each = scales.reshape(-1, 1, 1, 1)
    assert numbers(used[0]).tolist() == ((integers.float() - points.reshape(-1, 1, 1, 1).float()) * each).tolist()
    unit = torch.tensor(0.1).double() * scales.double()
    wanted = (torch.tensor([2**24 + 1, -7]).double() * torch.tensor(0.1).double() * scales.double()).float()
    assert numbers(used[1]).tolist() == wanted.tolist()
    assert unit.numel() == scales.numel()
    stored, used = convolution(node("QLinearConv", *inputs[:5], "", *inputs[6:8]), scope, None)
    assert (stored.bias, len(used)) == (None, 1)
    assert numbers(used[0]).tolist() == (integers.float() * each).tolist()


def test_a_bias_takes_three_numbers_in_double_precision_while_it_is_made(scope: Scope, put: Put) -> None:
    put("w", INTEGERS)
    put("s", 0.5)
    put("b", torch.tensor([1, 2], dtype=torch.int32))
    _, used = convolution(node("QLinearConv", "x", "s", "", "w", "s", "", "", "", "b"), scope, None)
    tensor = used[1].tensor
    assert isinstance(tensor, StoredTensor)
    budget = tensor.storage.source.budget
    budget.memory = 4 * 2 + 24 * 2 - 1
    with pytest.raises(CheckpointError, match="takes more memory"):
        tensor.read()
    budget.memory = 4 * 2 + 24 * 2
    assert tensor.read().tolist() == [0.25, 0.5]
    assert budget.memory == 48


def test_without_an_output_the_key_has_the_node_s_name(scope: Scope, put: Put) -> None:
    put("w", INTEGERS)
    several = node("ConvInteger", "x", "w")
    several.outputs = ["y", "z"]
    assert convolution(several, scope, None)[0].weight == "key of w (ConvInteger y)"
    nameless = node("ConvInteger", "x", "w")
    nameless.outputs = []
    assert convolution(nameless, scope, None)[0].weight == "key of w (ConvInteger n)"


PARTS: dict[str, Any] = {
    "w": INTEGERS,
    "s": torch.tensor([0.5, 0.25]),
    "sx": torch.tensor(0.5),
    "z": torch.tensor(1, dtype=torch.int8),
    "b": torch.tensor([1, 2], dtype=torch.int32),
}
WEIGHT_SCALE = "the scale of its weight is computed"
POINT = "the zero point of its weight is computed, or does not fit it"
INPUT_SCALE = "the scale of its input, which its bias is in, is computed"
BIAS = "its bias is not of int32, or not one number a channel"
CUT = OddTensor("sparse")
ODD: list[tuple[str, Any, str | None]] = [
    ("w", Unknown("computed by Add"), "its weight is computed by Add"),
    ("w", CUT, "its weight is not a plain tensor"),
    ("w", INTEGERS.short(), "its weight is of torch.int16, not of integers of 8 bits"),
    ("w", WEIGHT, "its weight is of torch.float32, not of integers of 8 bits"),
    ("s", Unknown("computed"), WEIGHT_SCALE),
    ("s", CUT, WEIGHT_SCALE),
    ("s", torch.tensor([0.5, 0.25]).double(), WEIGHT_SCALE),
    ("s", torch.tensor([0.5, 0.25, 1.0]), "the scale of its weight does not fit it"),
    ("s", torch.tensor([[0.5, 0.25]]), "the scale of its weight does not fit it"),
    ("z", Unknown("computed"), POINT),
    ("z", torch.tensor(1, dtype=torch.uint8), POINT),
    ("z", torch.tensor([1, 2, 3], dtype=torch.int8), POINT),
    ("z", torch.tensor([1, 2], dtype=torch.int8), None),
    ("b", Unknown("computed by Add"), "its bias is computed by Add"),
    ("b", CUT, "its bias is not a plain tensor"),
    ("b", torch.tensor([1, 2]), BIAS),
    ("b", torch.tensor([1, 2, 3], dtype=torch.int32), BIAS),
    ("sx", Unknown("computed"), INPUT_SCALE),
    ("sx", torch.tensor(0.5).double(), INPUT_SCALE),
    ("sx", torch.tensor([0.5, 0.25]), INPUT_SCALE),
    ("sx", torch.tensor([[0.5]]), None),
    ("sx", torch.ones(0), INPUT_SCALE),
]


@pytest.mark.parametrize(("name", "value", "told"), ODD)
def test_integers_without_what_they_stand_for_are_refused(
    name: str, value: Any, told: str | None, scope: Scope, put: Put
) -> None:
    for part, given in {**PARTS, name: value}.items():
        put(part, given)
    inputs = ["x", "sx", "zx", "w", "s", "z", "sy", "zy", "b"]
    assert problem(convolution(node("QLinearConv", *inputs), scope, None)) == told
    if name == "sx":
        assert problem(convolution(node("QLinearConv", *inputs[:8]), scope, None)) is None
    if name in ("w", "z") and told is not None:
        assert problem(convolution(node("ConvInteger", "x", "w", "zx", "z"), scope, None)) == told


def test_a_tensor_that_its_file_does_not_hold_is_not_plain(scope: Scope, put: Put) -> None:
    for part, given in PARTS.items():
        put(part, given)
    inputs = ["x", "sx", "zx", "w", "s", "z", "sy", "zy", "b"]
    for name, told in (("w", "its weight is not a plain tensor"), ("b", "its bias is not a plain tensor")):
        known = scope.find(name)
        assert isinstance(known, Known)
        assert isinstance(known.tensor, StoredTensor)
        cut = StoredTensor.of(known.tensor.storage, known.tensor.dtype, shape=[*known.tensor.shape, 2])
        scope.define(f"cut {name}", known._replace(tensor=cut))
        given = [f"cut {name}" if each == name else each for each in inputs]
        assert problem(convolution(node("QLinearConv", *given), scope, None)) == told
    assert problem(convolution(node("ConvInteger", "x", "cut w"), scope, None)) == "its weight is not a plain tensor"
    scope.define("odd", Known("k", CUT, "odd"))
    assert problem(convolution(node("ConvInteger", "x", "odd"), scope, None)) == "its weight is not a plain tensor"
