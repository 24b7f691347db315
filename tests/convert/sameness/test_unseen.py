"""What inputs do not show is told: a limit that no number reaches, a mask that hides nothing, a gate of 0."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness.given import Inputs
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.unseen import unseen
from tests.convert.sameness.planted import opaque


class Idle(nn.Module):
    """A mask, a limit, a gate and a unit, of which each may do nothing."""

    def __init__(self, limit: float = 6.0, gate: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.act, self.limit = nn.Linear(6, 5), nn.ReLU(), nn.Hardtanh(-limit, limit)
        self.gate = nn.Parameter(torch.full((), gate))
        with torch.no_grad():
            self.layer.bias[2] = -100.0

    def forward(self, x: Tensor) -> Tensor:
        """[count, 6] to [count, 5]."""
        y = self.act(self.layer(x)).masked_fill(x[:, :5].abs() > 50, 0.0)
        found: Tensor = self.limit(y) + y.exp() * self.gate
        return found


X = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))


def test_operations_that_do_nothing_are_listed() -> None:
    program = Program.of_run(Idle().eval(), (X,))
    texts = " ".join(unseen(program, Inputs.of(X)))
    assert "1 of 5 channels of `act`" in texts
    assert "masked_fill: changes nothing" in texts
    assert "`limit` (hardtanh: changes nothing)" in texts
    assert "mul: all is 0" in texts
    busy = Idle(0.1, 2.0).eval()
    busy.layer.bias.data[2] = 1.0
    assert unseen(Program.of_run(busy, (100 * X,)), Inputs.of(100 * X)) == ()


def test_a_fault_that_inputs_do_not_reach_is_rounding_and_the_report_says_where_it_might_be() -> None:
    found = same(Idle().eval(), opaque(Idle(limit=60.0).eval()), X)
    assert found.exit_code == 0
    other = Idle(limit=60.0)
    other.layer.weight.data *= 1 + 1e-7
    found = same(Idle().eval(), opaque(other.eval()), X)
    assert found.verdict == "rounding"
    assert any("limit" in one for one in found.unseen)
    assert any("could not be seen" in line for line in found.lines())
