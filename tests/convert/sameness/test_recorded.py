"""Values of a run in files: written, read from what other programs write, and held against a network by stretches."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.convert.errors import ConversionError, InputError, OptionError
from conv2attn.convert.programs.noise import Precision
from conv2attn.convert.programs.program import Program
from conv2attn.convert.sameness.given import Inputs
from conv2attn.convert.sameness.recorded import Recorded, is_recorded, record_values
from conv2attn.convert.sameness.stretches import Compared, compared, named
from conv2attn.convert.sameness.verdict import THRESHOLD
from tests.convert.sameness.recordings import X, laid, network


class Twice(nn.Module):
    """A module that is called twice, and one that gives two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.split = nn.GroupNorm(2, 4), _Split()

    def forward(self, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        first, second = self.split(self.norm(x))
        return self.norm(torch.cat([first, second], 1)) * scale, second


class _Split(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = x.chunk(2, 1)
        return first * 2, second + 1


def beside(values: Mapping[str, Callable[[], Tensor]], names: dict[str, str] | None = None) -> Compared:
    return compared(Program.of_run(network(), (X,)), Inputs.of(X), values, Precision(), names=names)


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    own, x, scale = Twice().eval(), torch.rand(1, 4, 5, 5), torch.tensor(0.5)
    path = record_values(own, {"x": x, "scale": scale}, tmp_path / "values.safetensors")
    found = Recorded.open(path)
    assert is_recorded(path)
    assert set(found.inputs) == {"x", "scale"}
    assert set(found.outputs) == {"0", "1"}
    assert set(found.values) == {"norm", "split.0", "split.1", "norm#2"}
    assert torch.equal(found.outputs["0"](), own(x, scale)[0])
    assert torch.equal(found.call().kwargs["scale"], scale)
    assert found.about["engine"] == f"torch {torch.__version__}"
    assert set(Program.of_run(own, (x, scale)).given) == set(found.values)


def test_values_are_chosen_by_patterns_of_their_names(tmp_path: Path) -> None:
    path = tmp_path / "values.safetensors"
    assert set(Recorded.open(record_values(network(), X, path, values=["0", "*4"])).values) == {"0", "4"}
    assert not Recorded.open(record_values(network(), X, path, values=False)).values
    with pytest.raises(OptionError, match="no module"):
        record_values(network(), X, path, values="layers.*")
    with pytest.raises(OptionError, match="safetensors"):
        record_values(network(), X, tmp_path / "values.npz")
    with pytest.raises(InputError, match="does not run"):
        record_values(network(), X[:, :2], path)


def arrays(folder: Path, kind: str) -> Path:
    """The network's values as other programs write them."""
    kept = Recorded.open(record_values(network(), X, folder / "values.safetensors"))
    given = {
        "input_0": X,
        "output_0": kept.outputs[""](),
        **{f"/{name}/": read() for name, read in kept.values.items()},
    }
    if kind == "npz":
        np.savez(folder / "values.npz", **{name: one.numpy() for name, one in given.items()})  # type: ignore[arg-type]
        return folder / "values.npz"
    if kind == "safetensors":
        save_file(given, folder / "others.safetensors")
        return folder / "others.safetensors"
    (folder / "arrays").mkdir()
    for name, one in given.items():
        np.save(folder / "arrays" / f"{name.strip('/')}.npy", one.numpy())
    return folder / "arrays"


@pytest.mark.parametrize("kind", ["npz", "safetensors", "folder"])
def test_values_of_other_programs_are_read(kind: str, tmp_path: Path) -> None:
    path = arrays(tmp_path, kind)
    found = Recorded.open(path)
    assert is_recorded(path)
    assert torch.equal(found.call().args[0], X)
    assert list(found.outputs) == ["0"]
    stretches = beside(dict(found.values)).stretches
    assert [one.name for one in stretches] == list("0123456")
    assert max(one.ratio for one in stretches) < THRESHOLD


def test_the_tree_of_transformers_debugging_is_read(tmp_path: Path) -> None:
    save_file({"data": X}, tmp_path / "in.safetensors")
    save_file({"data": X * 2}, tmp_path / "out.safetensors")
    part = {"module_path": "Net.layers.0", "outputs": {"shape": "", "dtype": "", "value": "./out.safetensors"}}
    root = {"module_path": "Net", "inputs": {"kwargs": {"x": {"value": "./in.safetensors"}}}, "children": [part]}
    path = tmp_path / "Net_debug_tree_FULL_TENSORS.json"
    path.write_text(json.dumps(root))
    found = Recorded.open(path)
    assert is_recorded(path)
    assert torch.equal(found.inputs["x"](), X)
    assert torch.equal(found.values["layers.0"](), X * 2)


def test_files_that_hold_no_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="no file"):
        Recorded.open(tmp_path / "none.npz")
    (tmp_path / "other.npz").write_bytes(b"not a zip")
    with pytest.raises(ConversionError, match="cannot be read"):
        Recorded.open(tmp_path / "other.npz")
    np.savez(tmp_path / "values.npz", value=np.zeros(3))
    with pytest.raises(InputError, match="holds no inputs"):
        Recorded.open(tmp_path / "values.npz").call()


def test_the_stretch_that_does_not_fit_is_named_and_what_follows_is_not(tmp_path: Path) -> None:
    wrong = copy.deepcopy(network())
    wrong[4].eps = 1e-2  # type: ignore[assignment]
    values = dict(Recorded.open(record_values(wrong, X, tmp_path / "values.safetensors")).values)
    (found,) = beside(values).parted(THRESHOLD)
    assert (found.name, found.since) == ("4", ("3",))
    (found,) = beside({name: values[name] for name in ("1", "5", "6")}).parted(THRESHOLD)
    assert found.where == "between `1` and `5`"


@pytest.mark.parametrize(
    "how", ["channels last", "flattened", "another order of images", "channels in another order", "padded"]
)
def test_other_names_and_layouts_are_found_by_the_values(how: str, tmp_path: Path) -> None:
    values = Recorded.open(record_values(network(), X, tmp_path / "values.safetensors")).values
    moved = {f"op{place}": partial(laid, how, read()) for place, read in enumerate(values.values())}
    found = beside(moved)
    assert [one.name for one in found.stretches] == list("0123456")
    assert all(one.layout for one in found.stretches)
    assert not found.unaligned
    assert not found.missing
    assert max(one.ratio for one in found.stretches) < THRESHOLD


def test_what_belongs_nowhere_is_told_and_not_guessed(tmp_path: Path) -> None:
    values = dict(Recorded.open(record_values(network(), X, tmp_path / "values.safetensors")).values)
    noise = torch.randn(2, 8, 10, 10, generator=torch.Generator().manual_seed(0))
    found = beside({"x": lambda: noise, "4": lambda: noise[:, :7], "6": values["6"]})
    assert found.missing == ("x",)
    assert found.unaligned == ("4",)
    assert [one.name for one in found.stretches] == ["6"]


def test_names_that_differ_in_their_beginning_or_punctuation_are_the_same() -> None:
    modules = ("layers.0.norm", "layers.0.attn.qkv", "layers.1.norm", "head")
    recorded = ("/model/layers.0/norm/output", "layers_1_norm", "model.layers.0.attn.qkv:0", "classifier")
    found = named(recorded, modules, {"classifier": "head"})
    assert list(found.values()) == ["head", "layers.1.norm", "layers.0.norm", "layers.0.attn.qkv"]
    assert named(("norm",), modules, {}) == {}  # which of two is not said


def test_equal_names_are_found_beside_names_that_say_the_same() -> None:
    names = ("block.attention.out", "block.attention", "block")
    assert named(names, names, {}) == {name: name for name in names}
