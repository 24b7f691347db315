"""A and B exchanged have the same verdict: the larger rounding of two programs explains, and hides no fault."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness import comparison
from conv2attn.convert.sameness.both import has_same_operations
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.verdict import THRESHOLD, Sameness

X = torch.randn(40, 32, generator=torch.Generator().manual_seed(4))


class Norm(nn.Module):
    """A layer norm; ``naive`` is E[x^2] - E[x]^2, which loses digits where the mean is large."""

    def __init__(self, naive: bool, eps: float) -> None:
        super().__init__()
        self.naive, self.eps = naive, eps

    def forward(self, x: Tensor) -> Tensor:
        """[count, 32]."""
        if not self.naive:
            return F.layer_norm(x, x.shape[-1:], eps=self.eps)
        mean = x.mean(-1, keepdim=True)
        return (x - mean) * torch.rsqrt((x * x).mean(-1, keepdim=True) - mean * mean + self.eps)


class Network(nn.Module):
    """A norm of numbers far from zero, between two layers."""

    def __init__(self, naive: bool = False, eps: float = 1e-5, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(32, 32), Norm(naive, eps), nn.Linear(32, 8)
        self.last.weight.data *= factor

    def forward(self, x: Tensor) -> Tensor:
        """[count, 32] to [count, 8]."""
        found: Tensor = self.last(self.norm(self.first(x) + 30))
        return found


class Rounded(nn.Module):
    """A layer whose result, or the positions that are added to it, may go through another type."""

    def __init__(self, at: str = "", dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.at, self.dtype = nn.Linear(32, 32), at, dtype

    def forward(self, x: Tensor) -> Tensor:
        """[count, 32]."""
        places = torch.arange(300, 300 + len(x)).float()
        if self.at == "positions":
            places = places.to(self.dtype).float()
        found: Tensor = self.layer(x) + torch.sin(places[:, None] * 0.37).to(x.dtype)
        return found.to(self.dtype).float() if self.at == "outputs" else found


def exchanged(one: nn.Module, other: nn.Module, x: Tensor = X) -> tuple[Sameness, Sameness]:
    return same(one.eval(), other.eval(), x), same(other.eval(), one.eval(), x)


def test_a_side_that_loses_digits_is_rounding_both_ways_and_is_named() -> None:
    there, back = exchanged(Network(), Network(naive=True))
    assert (there.verdict, back.verdict) == ("rounding", "rounding")
    (note,) = there.notes
    assert note.startswith("B loses 3 digits at `norm`")


@pytest.mark.fault
@pytest.mark.parametrize("eps", [3e-5, 1e-3])
def test_a_fault_that_the_rounding_of_one_side_hides_is_found_both_ways(eps: float) -> None:
    there, back = exchanged(Network(), Network(naive=True, eps=eps))
    assert (there.verdict, back.verdict) == ("not rounding", "not rounding")


@pytest.mark.fault
def test_a_fault_within_the_larger_rounding_alone_is_found() -> None:
    found = same(Network(naive=True).eval(), Network(eps=3e-5).eval(), X)
    assert found.ratio <= THRESHOLD
    assert found.verdict == "not rounding"
    assert "without any rounding" in found.sentence


@pytest.mark.fault
def test_positions_of_one_side_alone_in_another_precision_are_not_rounding_both_ways() -> None:
    there, back = exchanged(Rounded(), Rounded("positions"))
    assert (there.verdict, back.verdict) == ("not rounding", "not rounding")


@pytest.mark.fault
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cast_of_one_side_alone_is_coarser_rounding_both_ways(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    there, back = exchanged(Rounded(), Rounded("outputs", dtype))
    for found, side in ((there, "B"), (back, "A")):
        assert (found.verdict, found.unit, found.exit_code) == ("coarser rounding", f"{name} stored", 1)
        assert any(note.startswith(f"{side} rounds to {name}") for note in found.notes)
    other = Rounded("outputs", dtype)
    other.layer.weight.data *= 1.1
    for found in exchanged(Rounded(), other):
        assert found.verdict == "not rounding"


class Levels(nn.Module):
    """Numbers on steps, of which many are halfway between two, and a layer."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.layer = kind, nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        """[count, 32] to [count, 8]."""
        scale = x.abs().amax(-1, keepdim=True) / 127
        if self.kind == "quotient":
            steps = (x / scale).round()
        elif self.kind == "product":
            steps = (x * (1 / scale)).round()
        elif self.kind == "half":
            steps, scale = (x * 4).round(), torch.full_like(scale, 0.25)
        else:
            steps, scale = (x * 4 + 0.5).floor(), torch.full_like(scale, 0.25)
        found: Tensor = self.layer(steps * scale)
        return found


def test_numbers_halfway_between_two_steps_are_turned_by_rounding_and_no_other_function() -> None:
    x = (8 * X).round() / 8
    for found in exchanged(Levels("quotient"), Levels("product"), x):
        assert found.verdict == "rounding"


@pytest.mark.fault
def test_exact_halves_that_are_rounded_otherwise_are_not_rounding() -> None:
    x = (8 * X).round() / 8
    for found in exchanged(Levels("half"), Levels("floor"), x):
        assert found.verdict == "not rounding"


def test_a_number_that_float32_does_not_hold_is_rounded_where_a_tensor_is_filled_with_it() -> None:
    class Filled(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.factor = nn.Linear(32, 8), factor

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            found: Tensor = torch.where(y > 0, y, torch.full_like(y, 0.1)) * y.exp() * self.factor
            return found

    found = same(Filled(1.0).eval(), Filled(1.01).eval(), X)
    assert found.verdict == "not rounding"
    assert all("full" not in one.kind for one in found.where)


def test_operations_of_single_numbers_round_in_float64_too() -> None:
    class Scaled(nn.Module):
        def __init__(self, is_quotient: bool) -> None:
            super().__init__()
            self.is_quotient = is_quotient

        def forward(self, x: Tensor) -> Tensor:
            y = x * 3
            return y / 7 if self.is_quotient else y * (1 / 7)

    for found in exchanged(Scaled(True), Scaled(False), X.double()):
        assert found.verdict == "rounding"


def test_a_precision_that_both_sides_round_to_is_rounding() -> None:
    other = Rounded("outputs")
    other.layer.weight.data *= 1 + 2e-4  # a sixteenth of bfloat16's unit
    for found in exchanged(Rounded("outputs"), other):
        assert found.ratio <= THRESHOLD


@pytest.mark.fault
def test_positions_in_bfloat16_are_not_rounding_in_a_network_of_bfloat16() -> None:
    for found in exchanged(Rounded().bfloat16(), Rounded("positions").bfloat16()):
        assert found.verdict == "not rounding"


def test_two_programs_of_the_same_operations_need_one_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*given: object) -> None:
        raise AssertionError("noise of the other program")

    monkeypatch.setattr(comparison, "Both", refused)
    one, other = Network(), Network(eps=1e-3)
    assert has_same_operations(*(Program.of_run(each.eval(), (X,)) for each in (one, other)))
    assert same(one.eval(), other.eval(), X).verdict == "not rounding"
