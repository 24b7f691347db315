"""Sides are taken as users have them: scripts, traced programs, wrappers, callables, arrays, and their train mode."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.errors import OptionError
from conv2attn.convert.sameness.same import same
from tests.convert.sameness.planted import opaque

X = torch.randn(5, 3, generator=torch.Generator().manual_seed(7))
IMAGES = torch.randn(2, 3, 8, 7, generator=torch.Generator().manual_seed(8))


def cnn() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(120, 4)).eval()


def wrong() -> nn.Sequential:
    other = cnn()
    other[1].eps = 1e-3  # type: ignore[assignment]
    return other


class Wrapper(nn.Module):
    """Holds a network; its class has a ``train`` of its own, and its flag is that of a new module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def train(self, mode: bool = True) -> Wrapper:
        """Leaves the network as it is."""
        self.training = mode
        return self

    def forward(self, x: Tensor) -> Any:
        """The network's outputs."""
        return self.inner(x)


def exported(network: nn.Module) -> nn.Module:
    return torch.export.export(network, (IMAGES,)).module()


def frozen(network: nn.Module) -> nn.Module:
    found: nn.Module = torch.jit.freeze(torch.jit.trace(network, IMAGES))
    return found


def inside_another(network: nn.Module) -> nn.Module:
    return Wrapper(exported(network))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("taken", [Wrapper, exported, inside_another, frozen], ids=lambda one: one.__name__)
def test_a_flag_that_changes_nothing_is_no_train_mode(taken: Callable[[nn.Module], nn.Module]) -> None:
    assert same(cnn(), taken(cnn()), IMAGES).exit_code == 0
    found = same(cnn(), taken(wrong()), IMAGES)
    assert found.verdict == "not rounding"
    folded = taken is frozen
    assert ("both in one operation" if folded else "eps 1e-05 in A, 0.001 in B") in found.where[0].why


class Own(nn.Module):
    """Reads its mode in a function within a method."""

    def forward(self, x: Tensor) -> Tensor:
        """The input, larger in train mode."""
        return (lambda factor: x * factor)(self._factor())

    def _factor(self) -> float:
        return 2.0 if self.training else 1.0


class Loss(nn.Module):
    """Does not run in train mode without a target."""

    def forward(self, x: Tensor, target: Tensor | None = None) -> Tensor:
        """The input, or its loss."""
        if not self.training:
            return x
        if target is None:
            raise ValueError("a target is needed")
        return (x - target).square().mean()


@pytest.mark.parametrize(
    "module",
    [nn.BatchNorm2d(3), nn.RReLU(), nn.LSTM(7, 4, 2, dropout=0.5), Own(), nn.Dropout(0.3), Loss()],
    ids=lambda module: type(module).__name__,
)
def test_a_module_that_computes_something_else_in_train_mode_is_named(module: nn.Module) -> None:
    x = IMAGES[0] if isinstance(module, nn.LSTM) else IMAGES
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(OptionError, match="A is in train mode, which the network itself depends on"):
        same(module.train(), cnn(), x)
    network = nn.Sequential(nn.Identity(), nn.Tanh(), module)
    for side in (network, lambda x: network(x)):
        with pytest.raises(OptionError, match=rf"B is in train mode, which `2` \({type(module).__name__}\) depends on"):
            same(cnn(), side, x) if x is IMAGES else same(nn.ReLU().eval(), side, x)
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert network.training
    assert module.training


@pytest.mark.parametrize(
    "module", [nn.Dropout(0.0), nn.LSTM(3, 4), nn.GroupNorm(1, 3)], ids=lambda one: type(one).__name__
)
def test_a_module_that_computes_the_same_in_train_mode_is_taken(module: nn.Module) -> None:
    assert same(module.train(), copy.deepcopy(module).eval(), X).verdict == "same bits"


class Embedding(nn.Module):
    """Renormalises the rows that it reads, in its own weights."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.table, self.layer = nn.Embedding(6, 40, max_norm=1.0), nn.Linear(40, 3)
        self.layer.weight.data *= factor

    def forward(self, ids: Tensor) -> Tensor:
        """[count] to [count, 3]."""
        found: Tensor = self.layer(self.table(ids))
        return found


def test_parameters_that_settle_are_told_and_put_back() -> None:
    network, ids = Embedding().eval(), torch.tensor([4, 1, 1, 2])
    before = copy.deepcopy(network.state_dict())
    found = same(network, opaque(Embedding(1 + 1e-7).eval()), ids)
    assert found.verdict in ("rounding", "same bits")
    assert any("A writes to its own table.weight" in note for note in found.notes)
    assert same(network, Embedding(1.001).eval(), ids).verdict == "not rounding"
    assert all(torch.equal(one, before[name]) for name, one in network.state_dict().items())


class Moving(nn.Module):
    """Writes into its parameters in every run."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Twice the input."""
        self.layer.weight.data.add_(1.0)
        return x * 2


class Caching(nn.Module):
    """Keeps what it computed last in a buffer."""

    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.kept: Tensor
        self.register_buffer("kept", torch.zeros(5, 3))
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """A multiple of the input."""
        self.kept.copy_(x * self.factor)
        return self.kept + x


def test_what_changes_in_every_run_cannot_be_judged_and_is_put_back() -> None:
    moving = Moving().eval()
    before = copy.deepcopy(moving.state_dict())
    for side in (moving, moving.forward, functools.partial(moving), lambda x: moving(x)):
        found = same(side, nn.Identity().eval(), X)
        assert found.verdict == "cannot say"
        assert "layer.weight" in found.reason
        assert all(torch.equal(one, before[name]) for name, one in moving.state_dict().items())


def test_a_buffer_that_is_overwritten_with_the_same_is_no_change() -> None:
    assert same(Caching().eval(), lambda x: x * 3, X).exit_code == 0
    assert same(Caching().eval(), Caching(2.001).eval(), X).verdict == "not rounding"


@dataclass
class Scores:
    """An output with arrays in containers."""

    logits: Any
    others: list[Any]


class Foreign:
    """An array of another library, which is read by DLPack."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __dlpack__(self, **options: Any) -> Any:
        """Its capsule."""
        return self.x.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        """Its device."""
        return self.x.__dlpack_device__()


def test_arrays_are_tensors_among_inputs_and_outputs() -> None:
    def arrays(x: Tensor) -> Any:
        found = (x * 2).numpy()
        found.flags.writeable = False
        return Scores(found, [{"wide": found.astype(">f4")}, Foreign(x.exp()), found.sum(dtype=np.float32)])

    class Network(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return Scores(x * 2, [{"wide": x * 2}, x.exp(), (x * 2).sum()])

    found = same(Network().eval(), arrays, X.numpy())
    assert [one.name for one in found.outputs] == ["logits", "others.0.wide", "others.1", "others.2"]
    assert found.exit_code == 0
    assert same(Network().eval(), arrays, {"x": X.numpy()}).exit_code == 0


def test_a_callable_that_torch_records_has_a_graph() -> None:
    network, other = cnn(), wrong()

    def function(x: Tensor) -> Tensor:
        found: Tensor = other(x) + 0.0 * x.sum()
        return found

    for side in (lambda x: other(x), other.forward, functools.partial(other.forward), function):
        found = same(network, side, IMAGES)
        assert found.where[0].name == "1"
        assert "eps 1e-05 in A, 0.001 in B" in found.where[0].why
    assert same(lambda x: network(x), opaque(other), IMAGES).verdict == "not rounding"


def by_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.tanh(x.numpy()))


def half_by_numpy(x: Tensor) -> Tensor:
    return by_numpy(x) + x * 0


def by_pointer(x: Tensor) -> Tensor:
    return torch.utils.dlpack.from_dlpack(x.__dlpack__()).tanh()


@pytest.mark.parametrize("call", [by_numpy, half_by_numpy, by_pointer], ids=lambda one: one.__name__)
def test_a_callable_that_leaves_torch_is_a_black_box(call: Callable[[Tensor], Tensor]) -> None:
    assert same(nn.Tanh().eval(), call, X).exit_code == 0
    found = same(call, lambda x: torch.from_numpy(call(x).numpy() * np.float32(1.001)), X)
    assert (found.verdict, found.exit_code) == ("cannot say", 5)
    assert "outside torch" in found.reason


def test_a_network_whose_outputs_come_from_numpy_has_no_graph() -> None:
    class Outside(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return by_numpy(x)

    found = same(Outside().eval(), opaque(lambda x: x.tanh() * 1.001), X)
    assert found.verdict == "cannot say"
    assert "do not depend on its inputs" in found.reason


class Folding(nn.Module):
    """Reshapes and adds what its modules give, with sizes of the batch."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.second, self.head = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1), nn.Linear(8, 5)
        self.second.weight.data *= factor

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, 8, 7] to [batch, 5]."""
        y = self.first(x).relu()
        batch, channels, height, width = y.shape
        y = y.reshape(batch * channels * height, width).add(1).view(batch, channels, height, width) + self.second(y)
        found: Tensor = self.head(y.mean((2, 3)))
        return found


def by_image(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """One image at a time, out of torch's sight but for the network's modules."""

    def run(x: Tensor) -> Tensor:
        return torch.from_numpy(np.concatenate([network(one).numpy() for one in x.split(1)]))

    return run


def test_a_black_box_that_splits_the_batch_is_compared_module_by_module() -> None:
    images = torch.randn(3, 3, 8, 7, generator=torch.Generator().manual_seed(8))
    honest = same(Folding().eval(), by_image(Folding().eval()), images)
    assert honest.verdict in ("same bits", "rounding")
    found = same(Folding().eval(), by_image(Folding(1.001).eval()), images)
    assert found.verdict == "not rounding"
    assert found.where[0].name == "second"


@torch.library.custom_op("conv2attn_tests::narrow_tanh", mutates_args=())
def narrow_tanh(x: Tensor) -> Tensor:
    """The tangent, of float32 alone."""
    if x.dtype != torch.float32:
        raise RuntimeError("no kernel for this type")
    return x.tanh()


class Narrow(nn.Module):
    """Has an operation without doubles."""

    def forward(self, x: Tensor) -> Tensor:
        """The tangent, twice."""
        found: Tensor = narrow_tanh(x) * 2
        return found


class ByBits(nn.Module):
    """Cuts digits by reading a number's bits as an integer."""

    def forward(self, x: Tensor) -> Tensor:
        """Twice the number, of eight digits."""
        return (x.view(torch.int32) & -65536).view(torch.float32) * 2


def test_a_side_whose_operations_do_not_run_in_float64_is_a_black_box() -> None:
    class Wide(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sinh() / x.cosh() * 2

    assert same(Narrow().eval(), Wide().eval(), X).verdict == "rounding"
    assert same(Wide().eval(), Narrow().eval(), X).verdict == "rounding"
    assert same(Narrow().eval(), lambda x: x.tanh() * 2.001, X).verdict == "not rounding"
    found = same(Narrow().eval(), opaque(lambda x: x.tanh() * 2.001), X)
    assert found.verdict == "cannot say"
    assert "without a float64 run" in found.reason


def test_a_side_that_reads_bits_does_not_say_the_truth() -> None:
    class Cutting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            mantissa, exponent = torch.frexp(x)
            return torch.ldexp((mantissa * 256).trunc() / 256, exponent) * 1.001 * 2

    found = same(ByBits().eval(), Cutting().eval(), X)
    assert found.verdict == "not rounding"
    assert found.outputs[0].a > 1 > found.outputs[0].b
