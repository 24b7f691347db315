"""A token that takes another expert at a tie is told apart; the others are judged without it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness.choices import choices_of, held
from conv2attn.convert.sameness.given import Inputs
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.typical import pooled
from tests.convert.sameness.planted import opaque

DIM, EXPERTS, TOKENS = 32, 4, 17


class Experts(nn.Module):
    """Two of four experts for each token, [batch, tokens, channels]; channels of the scores are summed in an order."""

    def __init__(self, order: Tensor) -> None:
        super().__init__()
        self.norm, self.gate = nn.LayerNorm(DIM), nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(EXPERTS))
        self.order = order

    def scores(self, x: Tensor) -> Tensor:
        """[tokens, experts]."""
        flat = self.norm(x).flatten(0, -2)
        return F.linear(flat[:, self.order], self.gate.weight[:, self.order])

    def forward(self, x: Tensor) -> Tensor:
        """The tokens, and what their experts add."""
        chosen, places = self.scores(x).softmax(-1).topk(2, -1)
        flat = self.norm(x).flatten(0, -2)
        found = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            found = found + (chosen * (places == number)).sum(-1, keepdim=True) * expert(flat)
        return x + found.view_as(x)


class Network(nn.Module):
    """Experts, tokens that are mixed, and experts again."""

    def __init__(self, order: Tensor | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        order = torch.arange(DIM) if order is None else order
        self.first, self.mix, self.second = Experts(order), nn.Linear(TOKENS, TOKENS), Experts(order)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, tokens, channels]."""
        x = self.first(x)
        found: Tensor = self.second(x + 0.1 * self.mix(x.transpose(1, 2)).transpose(1, 2))
        return found


def tied(network: Network) -> Tensor:
    """Tokens, [1, tokens, channels], the first half of which lie, by halves, between the choices of two others."""
    wide = copy.deepcopy(network.first).double()

    def chosen(x: Tensor) -> Tensor:
        return wide.scores(x).topk(2, -1).indices.sort(-1).values

    low, high = torch.randn(2, TOKENS, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).unbind()
    x = low.clone()
    for _ in range(60):
        middle = (low + high) / 2
        is_low = (chosen(middle) == chosen(low)).all(-1, keepdim=True)
        low, high = torch.where(is_low, middle, low), torch.where(is_low, high, middle)
    x[: TOKENS // 2] = low[: TOKENS // 2]
    return x[None].float()


def reordered(seed: int = 1) -> Network:
    return Network(torch.randperm(DIM, generator=torch.Generator().manual_seed(seed))).eval()


def turned(network: Network, other: Network, x: Tensor) -> int:
    """Rows that choose other experts."""
    places = [one.first.scores(x).softmax(-1).topk(2, -1).indices.sort(-1).values for one in (network, other)]
    return int((places[0] != places[1]).any(-1).sum())


@torch.no_grad()
def test_tokens_that_take_another_expert_at_a_tie_are_told_and_the_rest_is_rounding() -> None:
    network = Network().eval()
    x = tied(network)
    # Which orders of a sum turn a tie depends on the processor.
    other = next(one for one in map(reordered, range(1, 100)) if turned(network, one, x))
    count = turned(network, other, x)
    assert float((network(x) - other(x)).abs().max()) > 1e-3
    for pair in ((network, other), (other, network)):
        found = same(*pair, x)
        assert found.verdict == "rounding"
        assert found.outputs[0].typical < 1e-5
        assert f"in {count} of {TOKENS} rows at `first` (topk)" in found.turned[0]


@pytest.mark.fault
@pytest.mark.parametrize("way", [lambda one: one, opaque], ids=["recorded", "black box"])
def test_a_fault_is_found_beside_ties(way: Callable[[nn.Module], nn.Module]) -> None:
    network, wrong = Network().eval(), Network().eval()
    wrong.second.norm.eps = 1e-4
    found = same(network, way(wrong), tied(network))
    assert found.verdict == "not rounding"
    assert "second" in found.where[0].name


@pytest.mark.fault
def test_choices_that_differ_at_no_tie_are_not_rounding() -> None:
    network, wrong = Network().eval(), Network().eval()
    wrong.first.gate.weight.data[[0, 1]] = wrong.first.gate.weight.data[[1, 0]]
    found = same(network, wrong, tied(network))
    assert found.verdict == "not rounding"
    assert "of them no ties" in found.turned[0]


def test_a_black_box_that_chooses_otherwise_at_a_tie_is_rounding() -> None:
    network = Network().eval()
    found = same(network, opaque(reordered()), tied(network))
    assert found.verdict == "rounding"
    assert "B chooses otherwise" in found.turned[0]


class Choosing(nn.Module):
    """Each way to choose, with the values and places that it gives."""

    def forward(self, x: Tensor) -> Tensor:
        """[rows, 5] to [rows, 8]."""
        values, places = x.topk(2, 0)
        sums = values.sum(0) + x.gather(0, places).sum(0)
        ordered, order = x.sort(1, descending=True)
        first = x.gather(1, x.argmax(1, keepdim=True))
        largest, at = x.max(1)
        whole = [
            sums.expand_as(x)[:, :2],
            ordered[:, :2],
            x.gather(1, order)[:, :2],
            first,
            largest[:, None] * at[:, None],
        ]
        return torch.cat(whole, 1)


def test_a_program_with_its_own_choices_held_is_the_program() -> None:
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(3))
    program = Program.of_run(Choosing(), (x,))
    choices = choices_of(program, Inputs.of(x))
    assert sorted(one.name for one in choices) == ["argmax", "max", "sort", "topk"]
    own = held(program, choices, [one.taken for one in choices]).program
    assert torch.equal(own.replayed((x,))[""], Choosing()(x))
    other = x.flip(0)
    assert not torch.equal(own.replayed((other,))[""], Choosing()(other))
    for choice in choices:
        assert (choice.gaps(choice.taken, choice.scores) >= 0).all()


def test_the_gap_of_a_choice_is_how_near_another_one_is() -> None:
    x = torch.tensor([[4.0, 1.0, 3.0, 2.5], [1.0, 2.0, 8.0, 9.0]])

    class Top(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.gather(1, x.topk(2, 1).indices)

    (choice,) = choices_of(Program.of_run(Top(), (x,)), Inputs.of(x))
    assert choice.sets(choice.taken).tolist() == [[0, 2], [2, 3]]
    assert choice.gaps(choice.taken, choice.scores).tolist() == [0.5, 6.0]
    turned = choice.turned(choice.taken, choice.scores, 0)
    assert turned is not None
    assert choice.sets(turned).tolist() == [[0, 3], [2, 3]]
    assert choice.gaps(turned, choice.scores).tolist() == [-0.5, 6.0]


def test_an_answer_that_is_an_output_is_no_choice() -> None:
    class Answer(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.argmax(1)

    x = torch.randn(3, 5)
    assert choices_of(Program.of_run(Answer(), (x,)), Inputs.of(x)) == []


def test_a_pool_of_a_sequence_is_a_token() -> None:
    assert pooled(torch.zeros(2, 17, 40)).shape == (34, 40)
    assert pooled(torch.zeros(2, 17, 8)).shape == (2, 136)
    assert pooled(torch.zeros(2, 3, 8)).shape == (1, 48)
    assert pooled(torch.zeros(5, 40)).shape == (5, 40)
    assert pooled(torch.zeros(2, 3, 8, 9)).shape == (3, 144)
