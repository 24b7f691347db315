"""Which unit explains a difference: engines that round factors are emulated; faults do not average out."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.noise import Precision
from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness.given import Inputs
from conv2attn.convert.sameness.units import ALL, Unit, averaged, ratios
from conv2attn.convert.sameness.verdict import THRESHOLD
from tests.convert.sameness.emulated import RoundedFactors, X, network


def call(own: nn.Module, digits: int, given: Inputs) -> Mapping[str, Tensor]:
    with torch.no_grad(), RoundedFactors(digits):
        return {"": own(*given.args)}


def unit(name: str) -> Unit:
    return next(one for one in ALL if one.name == name)


@pytest.mark.parametrize(("digits", "name"), [(11, "TF32 or float16 products"), (8, "bfloat16 products")])
def test_an_engine_s_own_unit_explains_its_difference_and_it_averages_out(digits: int, name: str) -> None:
    own, given = network(), Inputs.of(X)
    program = Program.of_run(own, (X,))
    truth, found = Lifted(program).outputs((X,), {}), call(own, digits, given)
    assert ratios(program, given, truth, found, Precision()) > 30 * THRESHOLD
    assert 0.1 < ratios(program, given, truth, found, unit(name).precision) < 1.5
    assert averaged(program, lambda moved: call(own, digits, moved), given, unit(name)).is_noise


@pytest.mark.parametrize(("digits", "eps"), [(24, 3e-3), (11, 3e-4), (8, 1e-2)])
def test_a_wrong_eps_does_not_average_out_though_a_coarse_unit_is_as_large(digits: int, eps: float) -> None:
    own, wrong, given = network(), network(eps), Inputs.of(X)
    program = Program.of_run(own, (X,))
    tried = unit("TF32 or float16 products" if digits == 11 else "bfloat16 products")
    found = averaged(program, lambda moved: call(wrong, digits, moved), given, tried)
    assert found.is_function
    assert found.expected == pytest.approx(0.25, abs=0.05)


def test_weights_are_rounded_as_the_unit_rounds_them() -> None:
    weight = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(unit("bfloat16 products").held(weight).float(), weight.bfloat16().float())
    assert torch.equal(unit("float16 stored").held(weight[0]).float(), weight[0].half().float())
    assert torch.equal(unit("bfloat16 products").held(weight[0]), weight[0])  # no factor of a product
    assert torch.equal(unit("bfloat16 products").held(torch.arange(5)), torch.arange(5))


def test_inputs_themselves_are_left_as_they_are() -> None:
    own, before = network(), X.clone()
    averaged(Program.of_run(own, (X,)), lambda moved: call(copy.deepcopy(own), 8, moved), Inputs.of(X), ALL[2])
    assert torch.equal(X, before)
