"""Which unit explains a difference: engines that round factors are emulated; faults do not average out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.noise import Precision
from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness.drawn import drawn
from conv2attn.convert.sameness.given import Inputs
from conv2attn.convert.sameness.nearby import Held, Nearby, Steady, averaged
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.units import ALL, Unit, ratios
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
    assert averaged(program, lambda moved: call(own, digits, moved.given), given, unit(name)).is_noise


@pytest.mark.parametrize(("digits", "eps"), [(24, 3e-3), (11, 3e-4), (8, 1e-2)])
def test_a_wrong_eps_does_not_average_out_though_a_coarse_unit_is_as_large(digits: int, eps: float) -> None:
    own, wrong, given = network(), network(eps), Inputs.of(X)
    program = Program.of_run(own, (X,))
    tried = unit("TF32 or float16 products" if digits == 11 else "bfloat16 products")
    found = averaged(program, lambda moved: call(wrong, digits, moved.given), given, tried)
    assert found.is_function
    assert found.expected == pytest.approx(0.25, abs=0.05)


class Positioned(nn.Module):
    """Tokens, or patches, with learned positions in front of two layers and a head that shares the tokens' table."""

    def __init__(self, eps: float = 1e-5, takes_tokens: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.takes_tokens, self.table = takes_tokens, nn.Embedding(50, 32)
        self.positions = nn.Parameter(torch.randn(1, 12, 32))
        self.first, self.norm, self.second = nn.Linear(32, 32), nn.LayerNorm(32, eps), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 12] or [batch, 12, 32] to [batch, 12, 50]."""
        x = (self.table(x) if self.takes_tokens else x) + self.positions
        x = self.second(self.norm(self.first(x)).relu()) + self.positions
        found: Tensor = x @ self.table.weight.T
        return found


TOKENS = torch.arange(36).view(3, 12).remainder(50)
PATCHES = torch.randn(3, 12, 32, generator=torch.Generator().manual_seed(1))


def engine(own: nn.Module, digits: int) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        with RoundedFactors(digits):
            found: Tensor = own(x)
        return found

    return run


def test_weights_are_rounded_as_the_unit_rounds_them() -> None:
    given, network = Inputs.of(PATCHES), Positioned(takes_tokens=False).eval()
    program, narrow = Program.of_run(network, (PATCHES,)), copy.deepcopy(network)
    rounded = {"first.weight", "second.weight"}
    for name, one in narrow.named_parameters():
        one.data = one.data.bfloat16().float() if name in rounded else one.data
    wide = copy.deepcopy(narrow).double()
    wide.table.weight.data = wide.table.weight.data.bfloat16().double()
    (found,) = Held(program, unit("bfloat16 products")).outputs(Nearby(given)).values()
    assert torch.allclose(found, wide(PATCHES.double()), rtol=1e-12, atol=1e-12)  # positions and biases are no factors
    every = copy.deepcopy(network).bfloat16().double()
    (stored,) = Held(program, unit("bfloat16 stored")).outputs(Nearby(given)).values()
    assert torch.allclose(stored, every(PATCHES.double()), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("x", "digits", "name"), [(TOKENS, 11, "TF32 or float16 products"), (PATCHES, 8, "bfloat16 products")]
)
def test_products_in_a_coarser_unit_average_out_behind_tables_that_are_no_factors(
    x: Tensor, digits: int, name: str
) -> None:
    own = Positioned(takes_tokens=x is TOKENS).eval()
    found = same(own, engine(own, digits), x)
    assert (found.verdict, found.unit) == ("coarser rounding", name)


@pytest.mark.fault
def test_a_wrong_eps_in_a_coarser_unit_does_not_average_out_over_moved_embeddings() -> None:
    own, wrong = Positioned().eval(), Positioned(eps=3e-3).eval()
    found = same(own, engine(wrong, 11), TOKENS)
    assert found.verdict == "not rounding"
    assert found.averaged is not None
    assert found.averaged.is_function
    assert all(not one._forward_hooks for one in wrong.modules())


class Mixed(Positioned):
    """The same, whose later tokens also read the earlier ones."""

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 12] to [batch, 12, 50]."""
        x = self.table(x)
        x = x + 0.3 * (x @ self.first.weight.T).cumsum(1)
        x = self.second(self.norm(x).relu()) + x
        found: Tensor = x @ self.table.weight.T
        return found


def black_box(own: nn.Module, digits: int) -> Callable[[Tensor], Tensor]:
    held = [engine(own, digits)]  # where nobody looks for a network
    return lambda x: torch.from_numpy(held[0](x).detach().numpy().copy())


@pytest.mark.parametrize(("digits", "name"), [(11, "TF32 or float16 products"), (8, "bfloat16 products")])
def test_tokens_of_a_black_box_are_drawn_again_and_its_rounding_averages_out(digits: int, name: str) -> None:
    own = Mixed().eval()
    found = same(own, black_box(own, digits), TOKENS)
    assert (found.verdict, found.unit) == ("coarser rounding", name)


@pytest.mark.fault
@pytest.mark.parametrize("digits", [8, 11, 24])
def test_a_wrong_eps_in_a_black_box_of_tokens_is_never_called_coarser_rounding(digits: int) -> None:
    eps = {8: 5e-2, 11: 3e-3, 24: 2e-2}[digits]  # of the last, bfloat16 is as large
    found = same(Mixed().eval(), black_box(Mixed(eps).eval(), digits), TOKENS)
    assert found.verdict == "not rounding"
    assert found.averaged is not None
    assert found.averaged.is_function


def test_drawn_tokens_are_others_of_those_given_in_one_place_of_each_text() -> None:
    program = Program.of_run(Mixed().eval(), (TOKENS,))
    for one in drawn(program, Inputs.of(TOKENS), 4, seed=0):
        (tokens,) = one.args
        assert bool((tokens != TOKENS).sum(1).eq(1).all())
        assert set(tokens.flatten().tolist()) <= set(TOKENS.flatten().tolist())


def test_numbers_that_do_not_move_are_rounded_and_others_are_not() -> None:
    program = Program.of_run(Mixed().eval(), (TOKENS,))
    steady, (node, *_) = Steady(unit("bfloat16 products")), program.nodes
    first = torch.linspace(1.0, 1.9, 7, dtype=torch.float64)
    assert torch.equal(steady.rounded(node, 0, first), first.bfloat16().double())
    steady.next()
    moved = torch.where(torch.arange(7) < 3, first, first + 0.1)
    assert torch.equal(steady.rounded(node, 0, moved), torch.cat((first[:3].bfloat16().double(), moved[3:])))


def test_too_few_tokens_to_draw_from_are_told() -> None:
    own, few = Mixed().eval(), TOKENS.remainder(3)
    found = same(own, black_box(own, 11), few)
    assert found.verdict == "not rounding"
    assert "tokens of several kinds" in found.notes[-1]


def folded(own: nn.Module, digits: int) -> Callable[[Tensor], Tensor]:
    """An engine that scales weights before it rounds them, as where a norm is folded into them."""
    held, mode = copy.deepcopy(own), RoundedFactors(digits, has_weights=False)
    for place, one in enumerate(held.parameters()):
        if one.ndim > 1:
            scale = 1 + torch.rand(len(one), generator=torch.Generator().manual_seed(place))
            scale = scale.view(-1, *[1] * (one.ndim - 1))
            one.data = mode.rounded(one.data * scale) / scale
    held = held.double()

    def run(x: Tensor) -> Tensor:
        with mode:
            found: Tensor = held(x.double())
        return found.float()

    return run


def test_a_constant_part_as_large_as_other_roundings_of_the_weights_is_rounding() -> None:
    own = network()
    found = same(own, folded(own, 8), X)
    assert (found.verdict, found.unit) == ("coarser rounding", "bfloat16 products")
    assert found.averaged is not None
    assert found.averaged.share > found.averaged.high
    assert found.averaged.is_of_weights


@pytest.mark.fault
def test_a_wrong_eps_beside_other_roundings_of_the_weights_is_found() -> None:
    found = same(network(), folded(network(2e-2), 8), X)
    assert found.verdict == "not rounding"


@pytest.mark.fault
def test_a_small_constant_within_rounding_is_told_as_it_does_not_average_out() -> None:
    own, wrong = network(), network(1.003e-5 + 1e-6).double()
    held = [wrong]
    found = same(own, lambda x: torch.from_numpy(held[0](x.double()).detach().float().numpy()), X)
    assert (found.verdict, found.exit_code) == ("rounding", 0)
    assert found.averaged is not None
    assert found.averaged.is_function
    assert any("does not average out" in one for one in found.notes)


def test_inputs_themselves_are_left_as_they_are() -> None:
    own, before = network(), X.clone()
    averaged(Program.of_run(own, (X,)), lambda moved: call(copy.deepcopy(own), 8, moved.given), Inputs.of(X), ALL[2])
    assert torch.equal(X, before)
