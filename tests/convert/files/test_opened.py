"""What opening a network copies, converts and keeps, and each reason for which it is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, convert_model, save_converted
from conv2attn.convert.attention.layer import SelfAttention
from conv2attn.convert.errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    ConversionError,
    OptionError,
)
from conv2attn.convert.files import network as networks
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.checkpoint import Checkpoint, read_checkpoint
from conv2attn.convert.files.folder import read_folder
from conv2attn.convert.files.layers import Layers
from conv2attn.convert.files.open import LARGE, open_network
from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from conv2attn.convert.spec import ConvSpec


class Net(nn.Module):
    """Two convolutions, and state that is no convolution's."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3)
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Conv2d(2, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 1, rows, columns] to [batch, 1, ...]."""
        y: Tensor = self.head(self.norm(self.stem(x)))
        return y


class Reading(Net):
    """Reads a value that it draws, which tensors without values have not."""

    def __init__(self) -> None:
        super().__init__()
        assert torch.rand(1).item() < 1


class Counting(Net):
    """Has a counter of its own, which older files may lack."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("num_batches_tracked", torch.tensor(7))


class Complex(nn.Module):
    """Has one complex parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.real, self.phase = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1, dtype=torch.complex64))


def of(network: type[nn.Module]) -> Architecture:
    return Architecture(f"{__name__}:{network.__name__}")


def saved(network: nn.Module, path: Path) -> Path:
    torch.save(network.state_dict(), path)
    return path


def converted(**given: Any) -> nn.Module:
    return convert_model(Net().eval(), **given).model


def shares(opened: networks.Network, name: str) -> bool:
    """Whether a weight lies where the checkpoint's does."""
    own: Tensor = opened.model.state_dict()[name]
    return own.data_ptr() == opened.checkpoint.state_dict[name].data_ptr()


def size(state: dict[str, Tensor]) -> int:
    return sum(value.nbytes for value in state.values())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """How a network was converted."""
    calls: list[dict[str, Any]] = []

    def noted(network: nn.Module, **given: Any) -> Any:
        calls.append(given)
        return convert_model(network, **given)

    monkeypatch.setattr(networks, "convert_model", noted)
    yield calls
    assert all(call["inplace"] and call["skip_unsupported"] for call in calls)


# The network


def test_a_network_with_attention_is_converted_and_gives_its_cnn_by_changing_itself(tmp_path: Path) -> None:
    cnn = open_network(saved(Net(), tmp_path / "cnn.pt"), architecture=of(Net))
    assert not cnn.is_converted
    assert cnn.cnn() is cnn.model is cnn.whole()
    attention = open_network(saved(converted(), tmp_path / "w.pt"), architecture=of(Net))
    assert attention.is_converted
    assert attention.cnn() is attention.model
    assert not attention.is_converted
    assert not any(module.training for module in attention.model.modules())


@pytest.mark.parametrize("given", [Net().train(), of(Net)])
def test_the_recipe_is_kept_and_the_network_that_is_given_is_not_changed(given: Any, tmp_path: Path) -> None:
    path = saved(Net(), tmp_path / "w.pt")
    opened = open_network(path, architecture=given)
    assert opened.architecture is (given if isinstance(given, Architecture) else None)
    assert not opened.model.training
    assert opened.model is not given
    assert (opened.notes, opened.originals, opened.non_finite) == ({}, {}, ())
    assert not shares(opened, "stem.weight")
    if isinstance(given, Net):
        assert given.training
        assert not torch.equal(given.stem.weight, opened.checkpoint.state_dict["stem.weight"])


def test_layers_without_their_network_cannot_run_as_a_whole(tmp_path: Path) -> None:
    torch.save(Net(), tmp_path / "m.pt")
    opened = open_network(tmp_path / "m.pt")
    told = (
        f"{tmp_path / 'm.pt'} describes its layers, but not how the network connects them, and the whole network is to "
        "run; that takes its architecture"
    )
    assert isinstance(opened.model, Layers)
    assert opened.architecture is None
    with pytest.raises(ArchitectureNeededError, match=f"^{re.escape(told)}$"):
        opened.whole()


def test_what_is_not_finite_is_named(tmp_path: Path) -> None:
    network = Net()
    with torch.no_grad():
        network.stem.weight[0] = torch.nan
        network.head.weight[0] = torch.inf
    assert open_network(saved(network, tmp_path / "w.pt"), architecture=of(Net)).non_finite == (
        "stem.weight",
        "head.weight",
    )


def test_notes_and_names_of_a_file_are_those_of_the_layers_that_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ConvSpec(1, 1, kernel_size=(1, 1), bias=False)
    convolutions = {
        name: StoredConvolution(f"{name}.weight", None, spec, note=note, original=original)
        for name, note, original in (("a", "a note", None), ("b", None, "conv/b"), ("c", "", ""))
    }
    state = {f"{name}.weight": torch.ones(1, 1, 1, 1) for name in convolutions}
    found = Checkpoint(Path("w"), state, "", convolutions)
    monkeypatch.setattr(networks, "read_checkpoint", lambda *_, **__: found)
    opened = open_network("w")
    assert opened.checkpoint is found
    assert (opened.notes, opened.originals) == ({"a": "a note"}, {"b": "conv/b"})
    assert [name for name, module in opened.model.named_modules() if isinstance(module, nn.Conv2d)] == ["a", "b", "c"]


def test_a_file_is_read_with_what_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, asked = saved(Net(), tmp_path / "w.pt"), list[dict[str, Any]]()

    def noted(path: Path, **given: Any) -> Checkpoint:
        asked.append(given)
        return read_checkpoint(path)

    monkeypatch.setattr(networks, "read_checkpoint", noted)
    progress = list[int]().append
    open_network(str(path), architecture=of(Net), ema=True, progress=progress)
    open_network(path, architecture=of(Net))
    assert asked == [{"ema": True, "progress": progress}, {"ema": False, "progress": None}]


# Devices and precisions


def test_a_network_comes_to_the_cpu_in_its_own_precision_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, asked = saved(Net(), tmp_path / "w.pt"), list[dict[str, Any]]()

    def noted(self: nn.Module, **given: Any) -> nn.Module:
        asked.append(given)
        return self

    monkeypatch.setattr(nn.Module, "to", noted)
    for given in ({}, {"device": None}, {"device": "cuda:1"}, {"dtype": torch.float64}):
        open_network(path, architecture=of(Net), **given)
    devices = (torch.device("cpu"), None, torch.device("cuda:1"), torch.device("cpu"))
    assert asked == [
        {"device": device, "dtype": dtype}
        for device, dtype in zip(devices, (None, None, None, torch.float64), strict=True)
    ]


@pytest.mark.parametrize("error", [RuntimeError, AssertionError, ImportError])
def test_a_device_that_is_not_there_is_told_in_one_line(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(*_: object, **__: object) -> None:
        raise error("no such device\nat all\nhere")

    path = saved(Net(), tmp_path / "w.pt")
    monkeypatch.setattr(nn.Module, "to", missing)
    with pytest.raises(ConversionError, match=rf"^the device 'xpu' cannot be used: {error.__name__}: no such device$"):
        open_network(path, architecture=of(Net), device="xpu")


def test_complex_weights_keep_their_imaginary_parts(tmp_path: Path) -> None:
    path = saved(Complex(), tmp_path / "w.pt")
    told = "the network has complex weights, whose imaginary parts torch.float64 would lose"
    with pytest.raises(ConversionError, match=f"^{re.escape(told)}$"):
        open_network(path, architecture=of(Complex), dtype=torch.float64)
    assert open_network(path, architecture=of(Complex)).model.get_parameter("phase").is_complex()
    real = open_network(saved(Net(), tmp_path / "r.pt"), architecture=of(Net), dtype=torch.float64)
    assert real.model.get_parameter("stem.weight").dtype == torch.float64


# What is needed


@pytest.mark.parametrize("count", [0, 1, 2, 19, 20, 21, 22, 41])
def test_twenty_weights_of_four_dimensions_are_listed(count: int, tmp_path: Path) -> None:
    state = {f"w{number}": torch.zeros(1, 2, 3, number + 1) for number in range(count)}
    torch.save(
        state | {"v": torch.zeros(1), "m": torch.zeros(1, 1, 1), "n": torch.zeros(1, 1, 1, 1, 1)}, tmp_path / "w"
    )
    listed = ", ".join(f"w{number} [1, 2, 3, {number + 1}]" for number in range(min(count, 20))) or "none"
    more = {21: " and 1 more", 22: " and 2 more", 41: " and 21 more"}.get(count, "")
    told = (
        f"{tmp_path / 'w'} holds weights, but not the strides and paddings of its convolutions (weights with 4 "
        f"dimensions: {listed}{more}); that takes the architecture of their network"
    )
    with pytest.raises(ArchitectureNeededError, match=f"^{re.escape(told)}$"):
        open_network(tmp_path / "w")


def test_attention_without_its_network_s_geometry_needs_the_architecture(tmp_path: Path) -> None:
    with pytest.raises(ArchitectureNeededError, match="paddings of its attention layers"):
        open_network(saved(converted(), tmp_path / "w.pt"))
    torch.save(converted(), tmp_path / "m.pt")
    with pytest.raises(ArchitectureNeededError, match="paddings of its attention layers"):
        open_network(tmp_path / "m.pt")


# Folders that a conversion wrote


def test_a_folder_opens_as_its_layers_or_as_the_network(tmp_path: Path, asked: list[dict[str, Any]]) -> None:
    model = converted(alpha=3.0)
    save_converted(model, tmp_path / "out")
    opened = open_network(tmp_path / "out")
    assert isinstance(opened.model, Layers)
    assert [name for name, layer in opened.model.named_modules() if isinstance(layer, SelfAttention)] == [
        "stem",
        "head",
    ]
    for name, value in opened.model.state_dict().items():
        assert torch.equal(value, model.state_dict()[name])
        assert shares(opened, name)
    assert opened.checkpoint.path == tmp_path / "out"
    assert opened.checkpoint.files == (tmp_path / "out/config.json", tmp_path / "out/model.safetensors")
    whole = open_network(tmp_path / "out", architecture=of(Net), converted=True)
    assert type(whole.model) is Net
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in whole.model.state_dict().items())
    assert len(asked) == 2


def test_a_folder_has_no_moving_average_and_a_file_is_no_folder(tmp_path: Path) -> None:
    save_converted(converted(), tmp_path / "out")
    told = f"{tmp_path / 'out'} is a converted network, which keeps no moving average of its weights"
    with pytest.raises(OptionError, match=f"^{re.escape(told)}$"):
        open_network(tmp_path / "out", ema=True)
    with pytest.raises(CheckpointError):
        open_network(saved(Net(), tmp_path / "w.pt"), architecture=of(Net), converted=True)
    open_network(tmp_path / "w.pt", architecture=of(Net), converted=False)


def test_layers_that_the_architecture_lacks_are_named_in_order(tmp_path: Path) -> None:
    extra = nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(3)))
    save_converted(convert_model(extra).model, tmp_path / "out")
    one = nn.Sequential(nn.Identity(), nn.Conv2d(1, 1, 1))
    told = f"{tmp_path / 'out'} "
    with pytest.raises(CheckpointError, match=f"^{re.escape(told)}(does not fit|holds attention layers)"):
        open_network(tmp_path / "out", architecture=one)
    entries = read_folder(tmp_path / "out")[0].layers
    found = read_checkpoint(tmp_path / "out" / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"holds attention layers that the architecture lacks: 0, 2$"):
        networks._convert_like(one, entries, found)
    with pytest.raises(CheckpointError, match=f"^{re.escape(str(found.path))} does not fit the architecture: "):
        networks._convert_like(nn.Linear(1, 1), entries, found)


# Large weights


def test_weights_are_copied_below_a_limit_and_lie_in_the_file_from_it_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert LARGE == 2**28
    path = saved(Net(), tmp_path / "w.pt")
    total = size(Net().state_dict())
    for limit, large in ((total + 1, False), (total, True), (total - 1, True), (0, True)):
        monkeypatch.setattr(networks, "LARGE", limit)
        opened = open_network(path, architecture=of(Net))
        assert shares(opened, "stem.weight") == large
        assert not shares(open_network(path, architecture=Net()), "stem.weight")


def test_a_large_network_that_reads_values_or_keeps_its_own_is_built_with_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(networks, "LARGE", 0)
    network = Net()
    opened = open_network(saved(network, tmp_path / "w.pt"), architecture=of(Reading))
    assert torch.equal(opened.model.get_parameter("stem.weight"), network.stem.weight)
    assert not shares(opened, "stem.weight")
    older = open_network(tmp_path / "w.pt", architecture=of(Counting))
    assert older.model.get_buffer("num_batches_tracked").item() == 7
    assert not shares(older, "stem.weight")
    assert shares(open_network(saved(Counting(), tmp_path / "c.pt"), architecture=of(Counting)), "stem.weight")
    with pytest.raises(ArchitectureError):
        open_network(tmp_path / "w.pt", architecture=Architecture(f"{__name__}:missing"))


# State dicts of converted networks


@pytest.mark.parametrize("limit", [0, LARGE])
def test_a_converted_network_has_the_precision_it_was_saved_in(
    limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(networks, "LARGE", limit)
    model = converted(alpha=2.0).to(torch.bfloat16)
    opened = open_network(saved(model, tmp_path / "w.pt"), architecture=of(Net))
    for name, value in opened.model.state_dict().items():
        assert value.dtype == model.state_dict()[name].dtype
        assert torch.equal(value, model.state_dict()[name])
    assert opened.model.get_buffer("norm.num_batches_tracked").dtype == torch.int64
    assert len(asked) == 1


def test_only_floating_point_tensors_take_another_precision() -> None:
    network = Net()
    given: dict[str, Tensor] = {name: value.double() for name, value in network.state_dict().items()}
    given |= {"head.weight": torch.ones(1, 2, 1, 1, dtype=torch.int32)}
    del given["norm.weight"]
    networks._match_dtypes(network, given)
    found = {name: value.dtype for name, value in network.state_dict().items()}
    doubled = {"stem.weight", "stem.bias", "norm.bias", "norm.running_mean", "norm.running_var"}
    kinds = {name: torch.float64 if name in doubled else torch.float32 for name in found}
    assert found == kinds | {"norm.num_batches_tracked": torch.int64}


def test_keys_are_fitted_and_earlier_positions_read_as_what_they_meant(tmp_path: Path) -> None:
    model = converted(alpha=2.0)
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "w.pt")
    layer = model.get_submodule("stem")
    assert isinstance(layer, SelfAttention)
    torch.save(state | {"module.stem.centers": layer.centers + 1}, tmp_path / "old.pt")
    for name in ("w.pt", "old.pt"):
        opened = open_network(tmp_path / name, architecture=of(Net))
        assert list(opened.model.state_dict()) == list(model.state_dict())
        assert all(torch.equal(value, model.state_dict()[key]) for key, value in opened.model.state_dict().items())


def test_a_layer_alone_is_opened_by_its_convolution(tmp_path: Path) -> None:
    layer = attention_from_conv(nn.Conv2d(1, 2, 3))
    opened = open_network(saved(layer, tmp_path / "w.pt"), architecture=nn.Conv2d(1, 2, 3))
    assert isinstance(opened.model, SelfAttention)
    assert replace(opened.checkpoint, path=Path()) != opened.checkpoint


def test_the_code_of_an_architecture_is_one_of_the_files_that_were_read(tmp_path: Path) -> None:
    path = saved(Net(), tmp_path / "w.pt")
    assert open_network(path, architecture=of(Net)).files == (path, Path(__file__))
    torch.save(Net(), tmp_path / "m.pt")
    assert open_network(tmp_path / "m.pt").files == (tmp_path / "m.pt",)
