"""Verdicts on engines that round otherwise: in coarser units, or to one side; and on faults inside them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.sameness.same import same
from tests.convert.sameness.emulated import WAYS, RoundedFactors, X, network

PRODUCTS = "bfloat16 products"


class Engine:
    """A black box that multiplies rounded factors; its modules' values can be seen."""

    def __init__(self, own: nn.Module, digits: int) -> None:
        self.own, self._digits = own, digits

    def __call__(self, x: Tensor) -> Tensor:
        """The network's result, which leaves torch."""
        with torch.no_grad(), RoundedFactors(self._digits):
            return torch.from_numpy(self.own(x).numpy().copy())


@pytest.mark.parametrize(("digits", "unit"), [(11, "TF32 or float16 products"), (8, PRODUCTS)])
def test_rounding_of_a_coarser_unit_is_told_with_the_unit(digits: int, unit: str) -> None:
    found = same(network(), Engine(network(), digits), X)
    assert (found.verdict, found.unit, found.exit_code) == ("coarser rounding", unit, 1)
    assert found.averaged is not None
    assert found.averaged.is_noise
    json.dumps(found.to_dict())


def test_an_allowed_unit_passes_and_another_does_not() -> None:
    engine = Engine(network(), 8)
    assert same(network(), engine, X, unit=PRODUCTS).exit_code == 0
    assert same(network(), engine, X, unit=["float16 products"]).exit_code == 1


@pytest.mark.fault
@pytest.mark.parametrize(("digits", "eps"), [(8, 1e-2), (11, 3e-4), (24, 1e-2)])
def test_a_wrong_eps_inside_an_engine_is_not_rounding_whatever_is_allowed(digits: int, eps: float) -> None:
    found = same(network(), Engine(network(eps), digits), X, unit=PRODUCTS)
    assert (found.verdict, found.unit, found.exit_code) == ("not rounding", "", 1)


@pytest.mark.fault
def test_a_fault_in_one_place_is_named_there_and_held_against_no_unit() -> None:
    wrong = network()
    wrong[4].eps = 1e-2  # type: ignore[index]
    found = same(network(), Engine(wrong, 24), X)
    assert (found.verdict, [one.name for one in found.where]) == ("not rounding", ["4"])
    assert found.averaged is None


# Sums of residuals in float32 that are cut to bfloat16, or rounded otherwise.


class Sum(nn.Module):
    """A sum in bfloat16, rounded as torch does or in another way."""

    def __init__(self, way: Callable[[Tensor], Tensor] | None) -> None:
        super().__init__()
        self._way = way

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self._way is None:
            return x + y
        return self._way(torch.from_numpy((x.float() + y.float()).numpy().copy())).bfloat16()


class Residual(nn.Module):
    """A block whose result is added to its operand."""

    def __init__(self, way: Callable[[Tensor], Tensor] | None, act: nn.Module) -> None:
        super().__init__()
        self.linear, self.act, self.sum = nn.Linear(32, 32), act, Sum(way)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.sum(x, self.act(self.linear(x)))
        return found


def residuals(way: Callable[[Tensor], Tensor] | None, depth: int, act: type[nn.Module] = nn.ReLU) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Residual(way, act()) for _ in range(depth)), nn.Linear(32, 10)).bfloat16().eval()


NUMBERS = torch.randn(16, 24, 32, generator=torch.Generator().manual_seed(2))
BIASED = {"cut": -1, "away from 0": 1, "up": 1, "floor": -1, "ties away": 1}


@pytest.mark.parametrize("way", WAYS)
def test_rounding_to_one_side_is_biased_at_each_sum_and_rounding_to_both_is_not(way: str) -> None:
    found = same(residuals(None, 3), residuals(WAYS[way], 3), NUMBERS)
    if way not in BIASED:
        assert found.verdict in ("rounding", "same bits")
        assert not found.bias
        return
    assert (found.verdict, found.exit_code) == ("biased rounding", 1)
    assert {one.name.partition(".")[0] for one in found.bias} == set("012")
    assert all(not one.name.endswith(("linear", "act")) for one in found.bias)  # nearest, and exact
    assert all(one.mean * BIASED[way] > 0.1 for one in found.bias)
    json.dumps(found.to_dict())


def test_cut_digits_that_pile_up_beyond_rounding_are_biased_rounding_all_the_same() -> None:
    found = same(residuals(None, 12, nn.GELU), residuals(WAYS["cut"], 12, nn.GELU), NUMBERS)
    assert found.ratio > 3
    assert found.verdict == "biased rounding"


# Products, squares and layers in bfloat16 that are cut; the same in torch's other loops.


class Squares(nn.Module):
    """A root mean square norm whose squares are stored in bfloat16, in one way or another."""

    def __init__(self, way: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        squares = self.way(x.float().square()).bfloat16().float()
        return (x.float() * (squares.mean(-1, keepdim=True) + 1e-6).rsqrt()).bfloat16()


class Products(nn.Module):
    """Channels times their neighbours, with products in bfloat16 in one way or another."""

    def __init__(self, way: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        return self.way(x.float() * x.roll(1, -1).float()).bfloat16()


def narrow(at: str, way: str) -> nn.Sequential:
    torch.manual_seed(0)
    kinds = {"square": Squares, "product": Products}
    parts = [part for _ in range(4) for part in (nn.Linear(32, 32), kinds[at](WAYS["nearest"]))]
    found = nn.Sequential(*parts, nn.Linear(32, 10)).bfloat16().eval()
    for module in found:
        if isinstance(module, Squares | Products):
            module.way = WAYS[way]
    return found


@pytest.mark.fault
@pytest.mark.parametrize("at", ["square", "product"])
def test_squares_and_products_that_are_cut_are_biased(at: str) -> None:
    found = same(narrow(at, "nearest"), narrow(at, "cut"), NUMBERS.bfloat16())
    assert found.verdict == "biased rounding"
    assert {one.name for one in found.bias} <= {"1", "3", "5", "7"}
    assert found.bias[0].side == "B"


def cut_linear(module: nn.Linear, args: tuple[Tensor], output: Tensor) -> Tensor:
    """A layer's result, cut to bfloat16."""
    wide = nn.functional.linear(args[0].float(), module.weight.float(), module.bias.float())
    return WAYS["cut"](wide).bfloat16()


@pytest.mark.fault
def test_results_that_hooks_replace_are_those_that_are_asked() -> None:
    network, other = narrow("square", "nearest"), narrow("square", "nearest")
    for module in other:
        if isinstance(module, nn.Linear):
            module.register_forward_hook(cut_linear)
    found = same(network, other, NUMBERS.bfloat16())
    assert found.verdict == "biased rounding"
    assert {one.name for one in found.bias} <= {"0", "2", "4", "6", "8"}


@pytest.mark.parametrize("at", ["square", "product"])
def test_other_kernels_of_the_same_products_are_not_biased(at: str) -> None:
    network = narrow(at, "nearest")

    def loops(x: Tensor) -> Tensor:
        torch._C._set_mkldnn_enabled(False)
        try:
            found: Tensor = network(x)
        finally:
            torch._C._set_mkldnn_enabled(True)
        return found

    found = same(network, loops, NUMBERS.bfloat16())
    assert found.verdict in ("same bits", "rounding")
