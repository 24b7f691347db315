"""What an operation writes into, and in which order it takes its arguments, is what PyTorch's table says."""

from __future__ import annotations

import pytest
import torch

from conv2attn.convert.files.readers import operations
from conv2attn.convert.files.readers.operations import is_out_of_place, written_arguments

ATEN = "torch.ops.aten."


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        ("mul_.Tensor", {"self"}),
        ("mul.Tensor", set()),
        ("mul.out", {"out"}),
        ("topk.values", {"values", "indices"}),
        ("copy_.default", {"self"}),
        ("__ior__.Tensor", {"self"}),
        ("detach.default", set()),
        ("relu_.default", {"self"}),
        ("batch_norm.default", {"running_mean", "running_var"}),
        ("fused_moving_avg_obs_fake_quant.default", {"running_min", "running_max", "scale", "zero_point"}),
        ("mul", None),
        ("mul.unheard_of", None),
        ("unheard_of.default", None),
    ],
)
def test_what_an_operation_writes_into_is_what_its_schema_says(operation: str, wanted: set[str] | None) -> None:
    assert written_arguments(f"{ATEN}{operation}") == wanted


def test_operations_are_looked_up_as_programs_name_them() -> None:
    found = operations._schemas.__wrapped__()
    for packet in (torch.ops.aten.relu_, torch.ops.aten.add):
        for overload in packet.overloads():
            operation = getattr(packet, overload)
            assert str(found[f"torch.ops.{operation}"]) == str(operation._schema)


def test_an_operation_of_somebody_else_may_write_into_all_that_it_takes() -> None:
    for target in ("torch.ops.own.f.default", "torch.ops.higher_order.cond", "aten.mul.Tensor", "", "_operator.add"):
        assert written_arguments(target) is None
    assert written_arguments("torch.ops.quantized_decomposed.dequantize_per_tensor.default") == frozenset()


@pytest.mark.parametrize(
    ("positional", "wanted"),
    [
        ((), False),
        (("input", "weight"), False),
        (("input", "weight", "bias", "stride"), False),
        (("weight", "bias"), False),  # PyTorch refuses it: the input has no default
        (("input", "weight", "stride"), True),
        (("input", "weight", "bias", "stride", "dilation"), True),
        (("input", "weight", "groups"), True),
        (("input", "weight", "bias", "groups"), True),
    ],
)
def test_an_argument_takes_the_place_of_one_that_is_not_there(positional: tuple[str, ...], wanted: bool) -> None:
    assert is_out_of_place(f"{ATEN}conv2d.default", positional) == wanted
    assert not is_out_of_place(f"{ATEN}unheard_of.default", positional)
    assert not is_out_of_place(f"{ATEN}convolution.default", positional)  # none has a default
