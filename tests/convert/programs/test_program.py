"""A program is the record of one run: it has the same bits, is closed, knows modules, and leaves networks alone."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, reject
from hypothesis import strategies as st
from torch import Tensor, fx, nn

from conv2attn.convert.errors import ConversionError
from conv2attn.convert.inputs import named_tensors
from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.program import Program
from conv2attn.convert.programs.walk import name_of
from conv2attn.convert.sameness.same import same

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's, of its exported modules
X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def same_bits(network: Callable[..., Any], *args: Any, **kwargs: Any) -> Program:
    """The record of a run, which computes what the network does."""
    with torch.no_grad():
        apart = copy.deepcopy(network) if isinstance(network, nn.Module) else network
        expected = named_tensors(apart(*copy.deepcopy(args), **copy.deepcopy(kwargs)))
    program = Program.of_run(network, args, kwargs)
    found = program.replayed(args, kwargs)
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        assert torch.equal(found[name].nan_to_num(), one.nan_to_num()), name
    return program


@dataclass
class Output:
    """What a network returns, in a class of its own."""

    logits: Tensor
    states: tuple[Tensor, ...]


class Network(nn.Module):
    """Writes in place, in views, in its own tensors and its input; chooses by values; runs an LSTM and autocast."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.lstm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Sequential(nn.Linear(5, 6), nn.ReLU(inplace=True), nn.Dropout())
        self.register_buffer("calls", torch.zeros(()))
        self.plain = torch.ones(4)

    def forward(self, x: Tensor, scale: float = 2.0) -> Output:
        self.calls.add_(1)
        self.plain.mul_(2)
        h: Tensor = self.norm(self.conv(x)) * self.calls
        h[:, 0] = h[:, 1]
        h = h + F.relu_(F.dropout(h, training=False))
        if h.sum().item() > 0:
            h = h * scale
        with torch.autocast("cpu", dtype=torch.bfloat16):
            tokens = self.plain * h.flatten(2).transpose(1, 2) @ torch.eye(4)
        states, (last, _) = self.lstm(tokens.float())
        x.zero_()
        return Output(self.head(states), (last, h, x + 1))


def test_a_record_computes_the_same_bits_and_names_modules() -> None:
    network = Network().eval()
    program = same_bits(network, X)
    assert {"conv", "norm", "lstm", "head.0", "head.1"} <= program.module_ends.keys()
    assert tuple(program.results) == ("logits", "states.0", "states.1", "states.2")
    assert set(program.names.values()) >= {"conv.weight", "norm.running_mean", "calls", "plain"}
    assert sorted(program.writes) == ["calls", "plain"]
    assert program.reads == ("sum_1 (item)",)
    assert not program.draws
    cast = {name_of(node): node.meta.get("autocast") for node in program.nodes}
    assert cast["matmul"] == ("cpu", torch.bfloat16)
    assert cast["lstm"] is None


def test_a_record_leaves_everything_as_it_was() -> None:
    network, x = Network().eval(), X.clone()
    before, hooks = copy.deepcopy(network.state_dict()), len(nn.modules.module._global_forward_hooks)
    chance = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    program = Program.of_run(network, (x,))
    for _ in range(2):
        program.replayed((x,))
        Lifted(program).outputs((x,), {})
    assert all(torch.equal(one, before[name]) for name, one in network.state_dict().items())
    assert torch.equal(network.plain, torch.ones(4))
    assert torch.equal(x, X)
    assert torch.equal(torch.get_rng_state(), chance[0])
    assert random.getstate() == chance[1]
    assert str(np.random.get_state()) == chance[2]
    assert len(nn.modules.module._global_forward_hooks) == hooks


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda t: t,
    "column": lambda t: t[:, 1],
    "rows": lambda t: t[1:3],
    "transposed": lambda t: t.t(),
    "flat": lambda t: t.reshape(-1),
    "every other": lambda t: t[:, ::2],
    "diagonal": lambda t: t.diagonal(),
    "expanded": lambda t: t[:, :1].expand(-1, 3),
    "dropped": lambda t: F.dropout(t, training=False),
    "same type": lambda t: t.to(torch.float32),
    "contiguous": lambda t: t.contiguous(),
    "detached": lambda t: t.detach(),
}
WRITES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "relu": lambda t, y: t.relu_(),
    "add": lambda t, y: t.add_(y.sum()),
    "copy": lambda t, y: t.copy_(y.flatten()[0].expand(t.shape)),
    "fill": lambda t, y: t.fill_(0.5),
    "out": lambda t, y: torch.mul(t, 2.0, out=t),
    "index": lambda t, y: t.index_fill_(0, torch.tensor([0]), 3.0),
    "masked": lambda t, y: t.masked_fill_(t > 0, -1.0),
}


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from(sorted(VIEWS)), st.none() | st.sampled_from(sorted(WRITES))),
        min_size=2,
        max_size=8,
    )
)
def test_writes_reach_whatever_shares_the_memory(steps: list[tuple[int, str, str | None]]) -> None:
    def network(x: Tensor) -> list[Tensor]:
        held = [x * 1.0, x]
        for place, view, write in steps:
            one = VIEWS[view](held[place % len(held)])
            one = one if one.ndim == 2 else one.reshape(-1, 2) if one.numel() % 2 == 0 else one.unsqueeze(0)
            if write is not None and 0 not in one.stride():  # torch writes to no place twice
                WRITES[write](one, held[-1])
            held.append(one)
        return held

    x = torch.arange(16.0).reshape(4, 4) - 7
    try:
        network(x.clone())
    except (IndexError, RuntimeError):  # a column that is not there, a write to one place twice
        reject()
    same_bits(network, x)


READS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda t: t.sum().item(),
    "bool": lambda t: bool(t.sum() > 0),
    "float": lambda t: float(t.sum()),
    "int": lambda t: int(t.sum()),
    "index": lambda t: [0, 1][(t.sum() > 0).long()],
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy().sum(),
    "array": lambda t: np.asarray(t),
    "dlpack": lambda t: np.from_dlpack(t),
    "equal": lambda t: torch.equal(t, t + 1),
    "allclose": lambda t: torch.allclose(t, t + 1),
    "nonzero": lambda t: t.nonzero(),
    "mask": lambda t: t[t > 0],
    "unique": lambda t: t.unique(),
    "memory": lambda t: t.data_ptr(),
}


@pytest.mark.fault
@pytest.mark.parametrize("kind", READS)
def test_a_read_of_values_is_known(kind: str) -> None:
    def network(x: Tensor, constant: Tensor | None = None) -> Tensor:
        READS[kind]((x if constant is None else constant) * 1.0)
        return x + 1

    assert len(Program.of_run(network, (X,)).reads) == 1
    weights = torch.ones(3)
    assert not Program.of_run(lambda x: network(x, weights), (X,)).reads


def test_random_numbers_are_known() -> None:
    assert not Program.of_run(nn.Dropout().eval(), (X,)).draws
    assert Program.of_run(nn.Dropout().train(), (X,)).draws == ("dropout",)
    assert Program.of_run(lambda x: x + torch.rand(1), (X,)).draws == ("rand",)
    assert not Program.of_run(F.scaled_dot_product_attention, (X, X, X)).draws


def test_programs_that_were_made_before_keep_their_modules() -> None:
    network = Network().eval()

    def forward(x: Tensor) -> Tensor:
        found: Tensor = network.head(network.norm(network.conv(x)).mean((2, 3)) @ torch.ones(4, 5))
        return found

    network.forward = forward  # type: ignore[method-assign,assignment]
    exported = torch.export.export(network, (X,), strict=False)
    traced = fx.symbolic_trace(nn.Sequential(network.conv, network.norm).eval())
    for made in (exported, exported.module()):
        program = same_bits(exported.module(), X) if made is exported else same_bits(made, X)
        assert {"conv", "norm", "head.0", "head.1"} <= program.module_ends.keys()
    assert {"0", "1"} <= same_bits(traced, X).module_ends.keys()
    assert Program.of_run(exported, (X,)).module_ends.keys() == program.module_ends.keys()


def test_a_program_takes_arguments_by_name() -> None:
    class Two(nn.Module):
        def forward(self, x: Tensor, *, y: Tensor, z: Tensor | None = None) -> Tensor:
            return x - 2 * y if z is None else z

    exported = torch.export.export(Two(), (X,), {"y": X + 1}, strict=False)
    same_bits(exported.module(), X, y=X + 1)
    same_bits(Two(), X, y=X + 1)
    same_bits(Two(), X, z=X, y=X + 1)


def test_a_function_s_modules_are_named() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    assert same_bits(lambda x: network(x) + 1, X).module_ends.keys() == {"0", "1"}


def test_parts_that_are_compiled_are_recorded_as_they_are_written() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), nn.Conv2d(4, 2, 1)))
    network[1] = torch.compile(network[1], backend="eager")  # type: ignore[assignment]
    assert same_bits(network, X).module_ends.keys() == {"0", "1.0", "1.1"}


def test_a_fused_path_of_torch_is_recorded_as_its_operations() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()
    x = X.flatten(0, 1)
    with torch.no_grad():
        expected = encoder(x)
    program = Program.of_run(encoder, (x,))
    assert {"layers.0.self_attn", "layers.0.linear1", "layers.0.norm2"} <= program.module_ends.keys()
    assert torch.equal(program.results[""], program.replayed((x,))[""])
    assert torch.allclose(expected, program.results[""], atol=1e-6)
    assert same(encoder, lambda x: program.replayed((x,))[""], x).verdict in ("same bits", "rounding")


def test_products_of_groups_have_a_rule_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(16, 16, generator=generator), torch.randn(3, 16, 8, generator=generator)
    ends = torch.tensor([4, 4, 12], dtype=torch.int32)
    program = Program.of_run(lambda a, b: torch._grouped_mm(a, b, offs=ends)[:12], (a, b))
    found = Lifted(program).outputs((a, b), {})[""]
    expected = torch.cat([a[:4].double() @ b[0].double(), a[4:12].double() @ b[2].double()])
    assert torch.equal(found, expected)


def test_what_cannot_be_recorded_is_refused() -> None:
    with pytest.raises(ConversionError, match="cannot record"):
        Program.of_run(nn.Linear(2, 2), (X,))
    with pytest.raises(ConversionError, match="no tensor"):
        Program.of_run(lambda x: None, (X,))


def test_memory_that_is_read_as_another_type_after_a_write_is_refused() -> None:
    def network(x: Tensor) -> Tensor:
        complex_numbers = torch.view_as_complex(x * 1.0)
        torch.view_as_real(complex_numbers)[..., 0].mul_(2)
        return complex_numbers.abs()

    with pytest.raises(ConversionError, match="another type"):
        Program.of_run(network, (torch.ones(3, 2),))


def test_what_is_written_to_a_parameter_is_read_from_then_on() -> None:
    torch.manual_seed(0)
    table, ids = nn.Embedding(5, 3, max_norm=0.5), torch.tensor([4, 1, 1])
    program = Program.of_run(table, (ids,))
    assert program.writes == ("weight",)
    assert torch.equal(program.replayed((ids,))[""], copy.deepcopy(table)(ids))
