"""A network is the same after each step of other people's code, or is refused and left as it was."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.module import register_module_forward_hook

from conv2attn.convert import ConversionError, Reader, convert_model, graft, register_reader, restore_model
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.network.copies import copied
from conv2attn.convert.subclasses.computed import in_eval_mode

X = torch.randn(2, 3, 12, 13)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 5, (3, 2))).eval()


def with_another_kernel(_: Any, copy: Any) -> Any:
    next(copy.parameters()).data.add_(1)
    return copy


def without_hooks(_: Any, copy: Any) -> Any:
    copy[0]._forward_hooks.clear()
    return copy


def with_the_class_s_scale(_: Any, copy: Any) -> Any:
    del vars(copy)["scale"]
    return copy


def with_the_original_s_layer(original: Any, copy: Any) -> Any:
    copy[0] = original[0]
    return copy


# What becomes of a faithful copy.
FORGET: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda _, copy: copy,
    "its mode": lambda _, copy: copy.train(),
    "its class": lambda _, copy: nn.Sequential(*copy),
    "a number": with_the_class_s_scale,
    "its values": with_another_kernel,
    "its hooks": without_hooks,
    "that it is a copy": with_the_original_s_layer,
}


class Forgetful(nn.Sequential):
    """Copies itself in a way of its own, which forgets something."""

    scale, what = 1.0, "nothing"

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x) * self.scale  # type: ignore[no-untyped-call]
        return y

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made = self.__new__(type(self))
        memo[id(self)] = made
        vars(made).update(copy.deepcopy(vars(self), memo))
        return FORGET[self.what](self, made)


def double(_: nn.Module, __: Any, output: Tensor) -> Tensor:
    return 2 * output


@pytest.mark.parametrize("what", FORGET)
@pytest.mark.parametrize("is_root", [False, True])
def test_a_copy_that_forgets_is_mended(what: str, is_root: bool) -> None:
    inner: Any = Forgetful(*small())
    inner.what = what
    inner[0].register_forward_hook(double)
    inner.scale = 3.0
    network = (inner if is_root else nn.Sequential(inner, nn.ReLU())).eval()
    expected = network(X)
    for made in (
        convert_model(network).model,
        graft(network, example=X).model,
        restore_model(convert_model(network).model),
    ):
        assert torch.equal(made(X), expected)
        assert [each.training for each in made.modules()] == [False] * len(list(made.modules()))
        assert isinstance(made if is_root else made[0], Forgetful)  # type: ignore[index]
    assert torch.equal(network(X), expected)


def test_a_copy_that_cannot_be_mended_is_refused_and_inplace_is_not() -> None:
    class Locked(Forgetful):
        """Leaves the generator out of its copies, and their mode."""

        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            return Forgetful(*copy.deepcopy(list(self), memo)).train()

    locked = Locked(*small()).eval()
    locked.lock = (each for each in "")  # type: ignore[assignment]  # what Python does not copy
    with pytest.raises(ConversionError, match="inplace=True"):
        convert_model(locked)
    expected = locked(X)
    assert torch.equal(convert_model(locked, inplace=True).model(X), expected)


def test_a_graph_of_fx_keeps_hooks_and_attributes_in_its_copy() -> None:
    graph = fx.symbolic_trace(small())
    graph.get_submodule("0").register_forward_hook(double)
    graph.register_forward_hook(double)
    vars(graph)["note"] = "kept"
    made = convert_model(graph, example=X).model
    assert torch.equal(made(X), graph(X))
    assert vars(made)["note"] == "kept"


METHODS: list[tuple[type[nn.Module], str, type[nn.Module], tuple[int, ...]]] = [
    (nn.Conv1d, "forward", nn.Conv1d, (2, 3, 12)),
    (nn.Conv2d, "forward", nn.Conv2d, (2, 3, 12, 13)),
    (nn.Conv2d, "_conv_forward", nn.Conv2d, (2, 3, 12, 13)),
    (nn.Conv2d, "__call__", nn.Conv2d, (2, 3, 12, 13)),
    (nn.modules.conv._ConvNd, "_call_impl", nn.Conv3d, (2, 3, 5, 6, 7)),
    (nn.modules.conv._ConvTransposeNd, "_output_padding", nn.ConvTranspose2d, (2, 3, 12, 13)),
    (nn.ConvTranspose2d, "forward", nn.ConvTranspose2d, (2, 3, 12, 13)),
]


@pytest.mark.parametrize(("owner", "name", "kind", "size"), METHODS)
def test_a_method_that_is_replaced_for_a_whole_class_is_refused(
    owner: Any, name: str, kind: Any, size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, before = nn.Sequential(kind(3, 4, 3)).eval(), getattr(owner, name)

    def other(*args: Any, **named: Any) -> Any:
        return before(*args, **named)

    other.__qualname__, other.__module__ = before.__qualname__, before.__module__  # as functools.wraps makes it
    convert_model(network)
    monkeypatch.setattr(owner, name, other, raising=False)
    for refused in (convert_model, graft):
        with pytest.raises(ConversionError, match="for the whole class"):
            refused(network)


def test_a_reader_is_held_against_methods_that_are_replaced_later(monkeypatch: pytest.MonkeyPatch) -> None:
    class Named(nn.Conv2d):
        """As its parent."""

    register_reader(Named, Reader())
    network = nn.Sequential(Named(3, 4, 3))
    convert_model(network)
    monkeypatch.setattr(Named, "forward", lambda self, x: 2 * nn.Conv2d.forward(self, x))
    with pytest.raises(ConversionError, match="disagrees"):
        convert_model(network)


FUNCTIONS: list[tuple[str, type[nn.Module], tuple[int, ...]]] = [
    ("conv2d", nn.Conv2d, (2, 3, 9, 8)),
    ("conv_transpose1d", nn.ConvTranspose1d, (2, 3, 9)),
    ("pad", nn.Conv2d, (2, 3, 9, 8)),
]


@pytest.mark.parametrize(("name", "kind", "size"), FUNCTIONS)
def test_a_function_that_is_replaced_is_called_by_layers_too(
    name: str, kind: Any, size: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mode = {"padding": 1, "padding_mode": "circular"} if name == "pad" else {}
    network, x, own = nn.Sequential(kind(3, 4, 3, **mode)), torch.randn(size), getattr(F, name)
    monkeypatch.setattr(F, name, lambda *args, **named: 2 * own(*args, **named))
    assert torch.equal(convert_model(network).model(x), network(x))


@pytest.fixture
def hooked() -> Iterator[None]:
    """While it lasts, a hook for all modules doubles what convolutions give."""
    handle = register_module_forward_hook(lambda module, _, y: 2 * y if isinstance(module, nn.Conv2d) else None)
    yield
    handle.remove()


def test_a_hook_for_all_modules_that_asks_for_the_class_is_refused_and_undone(hooked: None) -> None:
    network = small()
    for change in (convert_model, graft):
        for inplace in (False, True):
            with pytest.raises(ConversionError, match="hook for all modules"):
                change(network, inplace=inplace)
    assert [type(each) for each in network] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Conv2d]


class Asking(nn.Module):
    """Computes something else where its layer is no convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y if isinstance(self.conv, nn.Conv2d) else y + 1


class Insisting(Asking):
    """Does not run where its layer is no convolution."""

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(self.conv, nn.Conv2d):
            raise TypeError("no convolution")
        return super().forward(x)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("kind", [Asking, Insisting])
@pytest.mark.parametrize("change", [convert_model, graft])
def test_a_network_with_other_outputs_on_the_example_is_refused_and_undone(
    change: Any, kind: Any, inplace: bool
) -> None:
    network = kind().eval()
    expected = network(X)
    with pytest.raises(ConversionError, match="would"):
        change(network, example=X, inplace=inplace)
    assert type(network.conv) is nn.Conv2d
    assert torch.equal(network(X), expected)
    change(network, inplace=inplace)  # without an example nothing is known of it


class Wrapping(nn.Module):
    """Puts whatever it is given into a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, nn.Sequential(value, nn.Tanh()) if isinstance(value, SelfAttention) else value)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y


@pytest.mark.parametrize("change", [convert_model, graft])
def test_a_class_that_changes_what_it_is_given_takes_the_layer_itself(change: Any) -> None:
    network = Wrapping()
    assert torch.equal(change(network).model(X), network(X))


class Stateful(nn.Module):
    """Draws chance, counts, and remembers, in eval mode, too."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.memory, self.last = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), list[Tensor](), X
        self.register_buffer("calls", torch.zeros(()))
        self.count = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        self.memory.append(x)
        self.last = x
        chance = torch.rand(()) + random.random() + float(np.random.rand())
        y: Tensor = F.dropout(self.norm(self.conv(x)), 0.5, training=True) * chance + len(self.memory) + self.calls
        return y


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("change", [convert_model, graft])
def test_a_trial_leaves_a_network_and_all_chance_as_they_were(change: Any, inplace: bool) -> None:
    network = Stateful()
    seed, state = torch.initial_seed(), torch.get_rng_state()
    drawn, numbers = random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]
    made = change(network, example=X, inplace=inplace).model
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.initial_seed() == seed
    assert random.getstate() == drawn
    assert np.array_equal(np.random.get_state()[1], numbers)  # type: ignore[index]
    for each in (network, made):
        assert (each.count, float(each.calls), each.memory, each.training) == (0, 0.0, [], True)
        assert not each.norm.state_dict()["running_mean"].any()
        assert each.last.shape == X.shape


class Merging(nn.Module):
    """Merges an update into its weight for eval mode, as low-rank adapters do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.update, self.merged = nn.Conv2d(3, 4, 3), nn.Parameter(torch.randn(4, 3, 3, 3)), False

    def train(self, mode: bool = True) -> Merging:
        """Merges or takes apart."""
        super().train(mode)
        if self.merged is mode:
            self.conv.weight.data += (-1 if mode else 1) * self.update.data
            self.merged = not mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y if self.merged else y + F.conv2d(x, self.update)


def test_a_network_that_changes_with_its_mode_comes_back_to_it() -> None:
    network = Merging()
    weight = network.conv.weight.detach().clone()
    expected = network(X)
    made = convert_model(network, example=X).model
    assert torch.equal(network.conv.weight, weight)  # bit for bit: a sum and a difference are not
    assert torch.equal(made(X), expected)
    with in_eval_mode(network):
        assert network.merged
    assert not network.merged
    assert torch.allclose(network(X), expected, atol=1e-5)


@pytest.mark.parametrize("network", [small(), nn.Sequential(small(), nn.Flatten())])
def test_graphs_of_torch_export_are_grafted_and_keep_their_keys(network: nn.Module) -> None:
    program = torch.export.export(network, (X,)).module()
    grafted, report = graft(program, example=X)
    assert torch.equal(grafted(X), network(X))
    assert program.state_dict().keys() <= grafted.state_dict().keys()
    assert report.layers[0].name.endswith("3")


def test_on_the_meta_device_both_say_the_same() -> None:
    network = small().to("meta")
    found = []
    for change in (convert_model, graft):
        with pytest.raises(ConversionError) as error:
            change(network)
        found.append(str(error.value).partition(": ")[2])
    assert found[0] == found[1]
    assert "meta device" in found[0]
    with pytest.raises(ConversionError, match="meta device"):
        graft(network, example=X)


def test_tied_and_computed_tensors_stay_so_in_a_copy() -> None:
    network = small()
    network.append(nn.Conv2d(5, 5, 1))
    network.append(nn.utils.parametrizations.weight_norm(nn.Conv2d(5, 5, 1)))
    network.append(network[4])
    made = copied(network)
    assert made[4] is made[6]  # type: ignore[index]
    assert torch.equal(made(X), network(X))
