"""Weights in few bits, as tensors of a class of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from conv2attn.convert.errors import ConversionError
from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness.dequantised import dequantised, stored_in_few_bits
from conv2attn.convert.sameness.same import same
from tests.language_models import Language, language_model, some_ids


class Bytes(Tensor):
    """Rows of integers of 8 bits, each with a scale; products multiply by the scale at the end, as torchao's do."""

    def __new__(cls, numbers: Tensor, scale: Tensor) -> Bytes:
        return Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype)

    def __init__(self, numbers: Tensor, scale: Tensor) -> None:
        self.numbers, self.scale = numbers, scale

    @classmethod
    def of(cls, weight: Tensor) -> Bytes:
        scale = weight.detach().abs().amax(1) / 127
        return cls((weight.detach() / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale)

    def dequantize(self) -> Tensor:
        return self.numbers.to(self.scale.dtype) * self.scale[:, None]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear:
            x, weight, *rest = args
            found = functional.linear(x, weight.numbers.to(x.dtype)) * weight.scale
            return found if not rest or rest[0] is None else found + rest[0]
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return cls(args[0].numbers.clone(), args[0].scale.clone())
        raise NotImplementedError(str(func))

    def __deepcopy__(self, memo: Any) -> Bytes:
        return nn.Parameter(Bytes(self.numbers.clone(), self.scale.clone()), requires_grad=False)  # type: ignore[return-value]


def stored(model: Language, change: Callable[[Bytes], None] = lambda _: None) -> tuple[Language, Language]:
    """The model with the weights of its products in 8 bits, of which one may be changed, and its dequantised copy."""
    few = copy.deepcopy(model)
    for module in few.modules():
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(Bytes.of(module.weight), requires_grad=False)
    right = dequantised(few, stored_in_few_bits(few))
    change(few.layers[1].mlp[1].weight)  # type: ignore[index,union-attr]
    return few, right  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_in_few_bits_differ_by_rounding_from_their_dequantised_ones(dtype: torch.dtype) -> None:
    few, right = stored(language_model().to(dtype))
    for one, other in ((right, few), (few, right)):
        found = same(one, other, some_ids())
        assert found.verdict == "rounding"
        assert any("13 weights as Bytes" in note for note in found.notes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_in_few_bits_are_others_than_those_that_they_were_made_of(dtype: torch.dtype) -> None:
    model = language_model().to(dtype)
    found = same(model, stored(model)[0], some_ids())
    assert found.verdict == "not rounding"
    assert all("of weight differ" in one.why for one in found.where)


def wrong_scale(weight: Bytes) -> None:
    weight.scale[3] *= 1.25


def swapped_block(weight: Bytes) -> None:
    weight.numbers[4:6, :8] = weight.numbers[[5, 4], :8].clone()


@pytest.mark.fault
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("change", [wrong_scale, swapped_block])
def test_a_wrong_scale_and_a_swapped_block_are_named(change: Callable[[Bytes], None], dtype: torch.dtype) -> None:
    few, right = stored(language_model().to(dtype), change)
    found = same(right, few, some_ids())
    assert (found.verdict, found.where[0].name) == ("not rounding", "layers.1.mlp.1")


@pytest.mark.fault
def test_what_an_engine_makes_of_right_weights_is_compared_too() -> None:
    class Kernel(Bytes):
        """Right numbers, and a product that is not theirs."""

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = super().__torch_function__(func, types, args, kwargs)
            return found * 1.01 if func is functional.linear else found

    few, right = stored(language_model())
    own: Any = few.layers[1].mlp[1]  # type: ignore[index]
    own.weight = nn.Parameter(Kernel(own.weight.numbers, own.weight.scale), requires_grad=False)
    found = same(right, few, some_ids())
    assert (found.verdict, found.where[0].name) == ("not rounding", "layers.1.mlp.1")
    assert "not what A makes" in found.where[0].why


def test_tied_weights_stay_tied_and_what_has_no_real_numbers_is_refused() -> None:
    few, _ = stored(language_model())
    linear: Any = few.layers[0].mlp[1]  # type: ignore[index]
    few.layers[1].mlp[1].weight = linear.weight  # type: ignore[index,union-attr]
    plain: Any = dequantised(few, stored_in_few_bits(few))
    assert plain.layers[0].mlp[1].weight is plain.layers[1].mlp[1].weight

    class Sealed(Bytes):
        def dequantize(self) -> Tensor:
            raise RuntimeError("no")

    linear.weight = nn.Parameter(Sealed(linear.weight.numbers, linear.weight.scale), requires_grad=False)
    with pytest.raises(
        ConversionError, match=r"layers\.0\.mlp\.1\.weight, a Sealed, cannot be dequantised: RuntimeError"
    ):
        same(few, few, some_ids())


def test_an_operator_in_python_that_refuses_doubles_is_named() -> None:
    @torch.library.custom_op("tests_dequantised::single", mutates_args=())
    def single(x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise ValueError("row statistics must be float32")
        return x * 2

    program = Program.of_run(lambda x: single(x) + 1, (torch.rand(3),))
    with pytest.raises(ConversionError, match=r"single.* does not run in float64"):
        Lifted(program).outputs((torch.rand(3),), {})
