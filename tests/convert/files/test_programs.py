"""Programs run only where they are trusted, and then give the whole network; their data are read without."""

from __future__ import annotations

import pickle
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.errors import ArchitectureNeededError, CheckpointError, TrustNeededError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.files.weights import read_checkpoint
from conv2attn.convert.spec import Convolution
from conv2attn.proofs.campaign.strategies import convolutions_with_input, every_spec
from tests.command import Run
from tests.small_models import Net


def images() -> Tensor:
    return torch.linspace(-1, 1, 2 * 3 * 20 * 24).view(2, 3, 20, 24)


def network() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def as_pickle(net: nn.Module, path: Path) -> None:
    torch.save(net, path)


def as_program(net: nn.Module, path: Path) -> None:
    torch.export.save(torch.export.export(net, (images(),)), path.with_suffix(".pt2"))
    path.with_suffix(".pt2").rename(path)


PROGRAMS: dict[str, Callable[[nn.Module, Path], object]] = {
    "pickle.dump wrote, not torch.save": lambda net, path: path.write_bytes(pickle.dumps(net)),
    "torch.export": as_program,
}


@pytest.mark.parametrize("write", [as_pickle, *PROGRAMS.values()])
def test_a_trusted_program_is_the_whole_network_that_runs(
    write: Callable[[nn.Module, Path], object], tmp_path: Path
) -> None:
    net, x = network(), images()
    write(net, tmp_path / "m")
    opened = open_network(tmp_path / "m", Opening(trust=True)).whole().cnn()
    assert torch.equal(opened(x), net(x))
    model, report = convert_model(opened, inplace=True)
    assert torch.equal(model(x), net(x))
    names = {name for layer in report.layers for name in layer.names}
    assert len(names) == 4  # of a part that is used twice a program has two
    assert names >= {"stem.0", "again", "point"}
    save_converted(model, tmp_path / "out", report=report)
    restored = open_network(tmp_path / "out").cnn_state()
    wanted = {key: value for key, value in net.state_dict().items() if key in restored}
    assert wanted.keys() >= net.state_dict().keys() - {"norm.num_batches_tracked"}
    assert all(torch.equal(restored[key], value) for key, value in wanted.items())


SCRIPTS: dict[str, Callable[[nn.Module], torch.jit.ScriptModule]] = {
    "scripted": torch.jit.script,
    "traced": lambda net: torch.jit.trace(net, images()),
    "frozen": lambda net: torch.jit.freeze(torch.jit.script(net)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch means to give TorchScript up
@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_torchscript_program_is_refused_by_name_with_what_to_save_instead(
    kind: str, trust: bool, tmp_path: Path
) -> None:
    SCRIPTS[kind](network()).save(str(tmp_path / "m"))
    with pytest.raises(CheckpointError, match=r"is a TorchScript program.*torch\.export .* or save its state dict"):
        open_network(tmp_path / "m", Opening(trust=trust))


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_nobody_trusts_is_refused_by_what_it_is(kind: str, tmp_path: Path) -> None:
    PROGRAMS[kind](network(), tmp_path / "m")
    with pytest.raises(TrustNeededError, match=kind):
        read_checkpoint(tmp_path / "m")


def test_a_pickled_network_of_an_own_class_gives_its_state_without_trust_to_its_architecture(tmp_path: Path) -> None:
    net = network()
    as_pickle(net, tmp_path / "m")
    with pytest.raises(ArchitectureNeededError, match=r"is not run \(tests\.small_models\.Net\)"):
        open_network(tmp_path / "m").cnn()
    state = open_network(tmp_path / "m", Opening(Net())).cnn().state_dict()
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in state.items())


def test_a_pickled_network_of_pytorch_s_own_classes_comes_whole(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 8, activation=torch.nn.functional.gelu, batch_first=True)
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.GELU(), nn.Flatten(2), nn.Sequential(nn.LazyBatchNorm1d(), layer)[:0])
    torch.save({"model": net, "epoch": 3}, tmp_path / "m")
    opened = open_network(tmp_path / "m").whole().cnn()
    assert torch.equal(opened(images()), net(images()))
    torch.save(nn.Sequential(nn.Conv2d(3, 6, 3), layer), tmp_path / "t")
    assert not open_network(tmp_path / "t").is_layers


class Unknown:
    """An attribute of a class that is none of PyTorch's."""


def test_a_pickled_network_names_every_class_in_it_that_is_not_known(tmp_path: Path) -> None:
    inner = nn.Conv2d(2, 3, 1)
    inner.more = {"a": Unknown()}  # type: ignore[assignment]
    torch.save(nn.Sequential(inner, network()), tmp_path / "m")
    assert read_checkpoint(tmp_path / "m").unknown == (f"{__name__}.Unknown", f"{Net.__module__}.Net")


def test_a_module_that_a_program_needs_and_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = types.ModuleType("their_nets")
    theirs.Theirs = type("Theirs", (Net,), {"__module__": "their_nets"})  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "their_nets", theirs)
        torch.save(theirs.Theirs(), tmp_path / "m")
    told = "needs the module their_nets, which cannot be imported here; .* PYTHONPATH must hold its folder"
    with pytest.raises(CheckpointError, match=told):
        open_network(tmp_path / "m", Opening(trust=True))


@settings(max_examples=40)
@given(convolutions_with_input(integers=True, specs=every_spec()))
def test_a_pickled_module_is_the_convolution_that_was_saved(case: tuple[Convolution, Tensor]) -> None:
    conv, x = case
    with tempfile.TemporaryDirectory() as folder:
        torch.save(nn.Sequential(conv), Path(folder, "m"))
        cnn = open_network(Path(folder, "m")).cnn()
        assert repr(cnn.get_submodule("0")) == repr(conv)
        assert torch.equal(convert_model(cnn).model(x), conv(x))


@pytest.mark.parametrize("options", [(), ("--size", "20x24"), ("--input", "x=2x3x20x24")])
def test_a_program_of_one_shape_is_verified_at_that_shape(options: tuple[str, ...], run: Run) -> None:
    as_program(network(), Path("m"))
    code, _, err = run("verify", "m", "--trust", *options)
    assert (code, err) == (0, "")
