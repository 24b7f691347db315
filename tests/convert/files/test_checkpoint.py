"""Weights are found wherever training loops put them, under whatever their keys became, and nothing foreign runs."""

from __future__ import annotations

import argparse
import collections
import enum
import hashlib
import json
import pathlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.convert.errors import ArchitectureNeededError, CheckpointError, SeveralNetworksError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.files.weights import read_checkpoint
from tests.small_models import Composite

State = dict[str, Tensor]


def state(seed: int = 0) -> State:
    torch.manual_seed(seed)
    net = Composite()
    for buffer in net.buffers():
        buffer.add_(1)
    return dict(net.state_dict())


def prefixed(prefix: str, given: State) -> State:
    return {f"{prefix}{key}": value for key, value in given.items()}


def assert_opens_as(path: Path, wanted: State, **options: Any) -> tuple[str, ...]:
    """The file gives these weights to a new network; the keys that were left out."""
    opened = open_network(path, Opening(Composite(), **options))
    found = opened.cnn().state_dict()
    assert list(found) == list(wanted)
    assert all(torch.equal(found[key], value.to(found[key].dtype)) for key, value in wanted.items())
    return opened.checkpoint.extra


class Configuration:
    """A class of the user's own, with state."""

    def __init__(self) -> None:
        self.width = 3


class Nesting:
    """Classes inside a class, which a pickle names by getattr."""

    class Mode(enum.Enum):
        """Inside."""

        FAST = 1

    class Stage:
        """Inside, with state."""

        def __init__(self) -> None:
            self.width = 8


class Weights(collections.OrderedDict[str, Tensor]):
    """A dictionary of the user's own."""


class Listed(list[Any]):
    """A list of the user's own."""


Made = Callable[[State], Any]
PLACES: dict[str, Made] = {
    "tutorial": lambda s: {"epoch": 3, "model_state_dict": s, "optimizer_state_dict": {"state": {}}, "loss": 0.1},
    "any key": lambda s: {"net": s, "optim": {"state": {0: {"exp_avg": torch.ones(4, 3, 3, 3)}}}},
    "deep": lambda s: {"trainer": {"agent": {"params": s}}, "loss": torch.tensor(0.5)},
    "DeepSpeed": lambda s: {"module": s, "optimizer": None, "ds_config": {}, "param_shapes": [{"a": torch.Size([1])}]},
    "a list of two": lambda s: [{"state_dict": s}, {"lr": 0.1}],
    "two networks, one that fits": lambda s: {"G": s, "D": nn.Sequential(nn.Conv2d(3, 4, 3)).state_dict()},
    "with an average": lambda s: {"state_dict": s, "state_dict_ema": {k: v * 0 for k, v in s.items()}},
    "Lightning": lambda s: {
        "state_dict": prefixed("net.", s) | {"loss.weight": torch.ones(5), "accuracy.total": torch.tensor(3)},
        "hyper_parameters": argparse.Namespace(lr=0.1),
        "callbacks": {"best": torch.tensor(0.5)},
    },
    "prefixes": lambda s: prefixed("_orig_mod.module.model.", s),
    "a part compiled": lambda s: {k.replace("blocks.", "blocks._orig_mod."): v for k, v in s.items()},
    "a part data parallel": lambda s: {f"module.{k}" if k.startswith("blocks") else k: v for k, v in s.items()},
    "a part wrapped": lambda s: {k.replace("stem.", "stem.wrapped."): v for k, v in s.items()},
    "parts in wrappers of several names": lambda s: {
        k.replace("blocks.", "blocks.wrapped._orig_mod.").replace("head.", "head.layer."): v for k, v in s.items()
    },
    "averaged alone": lambda s: prefixed("module.", s) | {"n_averaged": torch.tensor(7)},
    "an average beside": lambda s: prefixed("model.", s) | prefixed("model_ema.", {k: v * 0 for k, v in s.items()}),
    "counters": lambda s: s | {"blocks.total_ops": torch.ones(1), "total_params": torch.ones(1)},
    "half": lambda s: {k: v.half() if v.is_floating_point() else v for k, v in s.items()},
    "arrays": lambda s: {"model": {k: v.numpy() for k, v in s.items()}},
    "a dictionary of their own": lambda s: {"model": Weights(s)},
    "an object": lambda s: vars_of(Configuration(), weights=s),
    "before PyTorch 0.4.1": lambda s: {k: v for k, v in s.items() if not k.endswith("num_batches_tracked")},
}


def vars_of(thing: Any, **more: Any) -> Any:
    vars(thing).update(more)
    return thing


@pytest.mark.parametrize(("place", "legacy"), [*((place, False) for place in PLACES), ("Lightning", True)])
def test_weights_are_found_in_any_place_and_behind_any_prefix(place: str, legacy: bool, tmp_path: Path) -> None:
    saved = state()
    wanted = {k: v.half() if v.is_floating_point() else v for k, v in saved.items()} if place == "half" else saved
    if place == "before PyTorch 0.4.1":
        wanted = saved | {"blocks.1.num_batches_tracked": torch.tensor(0)}
    torch.save(PLACES[place](saved), tmp_path / "w.pth", _use_new_zipfile_serialization=not legacy)
    assert_opens_as(tmp_path / "w.pth", wanted)


FOREIGN: list[Any] = [
    *(argparse.Namespace(lr=0.1), np.float64(0.9), np.ones((3, 2)), np.array([None, "a"], dtype=object)),
    *(pathlib.PurePosixPath("/x"), Configuration(), Configuration, Weights(a=torch.ones(2)), Listed([1]), {1, 2}),
    *(Nesting.Stage(), [Nesting.Stage(), Nesting.Stage()], Nesting.Mode.FAST),
    *(frozenset([1]), collections.deque([1, 2]), slice(1, 2), range(3), print, torch.relu, b"bytes", 2**80, 1j),
]


def test_foreign_classes_never_refuse_a_checkpoint(tmp_path: Path) -> None:
    torch.save({"model": state(), "extra": FOREIGN}, tmp_path / "w.pth")
    assert_opens_as(tmp_path / "w.pth", state())
    for alone in FOREIGN:
        torch.save({"state_dict": state(), "hyper_parameters": alone}, tmp_path / "w.pth")
        assert_opens_as(tmp_path / "w.pth", state())


def test_keys_that_belong_to_no_part_of_the_network_are_named_and_left_out(tmp_path: Path) -> None:
    for prefix, other in (("net.", "loss.weight"), ("", "head.total_ops")):
        torch.save(prefixed(prefix, state()) | {other: torch.ones(5)}, tmp_path / "w.pth")
        assert assert_opens_as(tmp_path / "w.pth", state()) == (other,)


# Which of several


@pytest.mark.parametrize("key", ["state_dict_ema", "averaged_model"])
def test_the_average_is_taken_only_if_it_is_asked_for(key: str, tmp_path: Path) -> None:
    torch.save({"state_dict": state(), key: prefixed("module.", state(1))}, tmp_path / "w.pth")
    assert_opens_as(tmp_path / "w.pth", state())
    assert_opens_as(tmp_path / "w.pth", state(1), ema=True)
    assert_opens_as(tmp_path / "w.pth", state(1), weights=key)


def test_an_average_among_the_keys_of_one_dictionary_is_told_from_the_weights(tmp_path: Path) -> None:
    torch.save({"state_dict": prefixed("net.", state()) | prefixed("ema_net.", state(1))}, tmp_path / "w.pth")
    assert_opens_as(tmp_path / "w.pth", state())
    assert_opens_as(tmp_path / "w.pth", state(1), ema=True)


def test_an_average_under_names_without_dots_is_found_and_what_has_none_stays(tmp_path: Path) -> None:
    """As latent diffusion keeps it: of parameters alone."""
    plain, trained = prefixed("model.inner.", state()), [name for name, _ in Composite().named_parameters()]
    averaged = {f"model_ema.inner{name.replace('.', '')}": state(1)[name] for name in trained}
    counts = {"model_ema.decay": torch.tensor(0.9), "model_ema.num_updates": torch.tensor(5)}
    torch.save({"state_dict": plain | averaged | counts}, tmp_path / "w.ckpt")
    assert_opens_as(tmp_path / "w.ckpt", state())
    parameters = {name for name, _ in Composite().named_parameters(remove_duplicate=False)}
    wanted = {name: state(1)[name] if name in parameters else value for name, value in state().items()}
    assert_opens_as(tmp_path / "w.ckpt", wanted, ema=True)


@pytest.mark.parametrize("prefix", [None, "module."])
def test_several_networks_that_fit_are_named_and_one_is_chosen_by_its_key(prefix: str | None, tmp_path: Path) -> None:
    both = {"student": state(), "teacher": state(1)}
    flat = {f"{prefix}{name}.{key}": value for name, each in both.items() for key, value in each.items()}
    torch.save(both if prefix is None else {"model": flat}, tmp_path / "w.pth")
    with pytest.raises(SeveralNetworksError, match=r"student.*teacher"):
        open_network(tmp_path / "w.pth", Opening(Composite()))
    assert_opens_as(tmp_path / "w.pth", state(1), weights="teacher")
    with pytest.raises(CheckpointError, match=r"holds no weights under 'nobody'; it holds .*(student|model)"):
        open_network(tmp_path / "w.pth", Opening(Composite(), weights="nobody"))


def test_without_an_architecture_several_networks_are_several(tmp_path: Path) -> None:
    torch.save({"G": state(), "D": state(1)}, tmp_path / "w.pth")
    with pytest.raises(SeveralNetworksError, match=r"'G' \(\d+ tensors\), 'D' \(\d+ tensors\)"):
        read_checkpoint(tmp_path / "w.pth")
    assert read_checkpoint(tmp_path / "w.pth", Opening(weights="D")).state_dict.keys() == state().keys()
    with pytest.raises(ArchitectureNeededError, match="not the strides and paddings"):
        open_network(tmp_path / "w.pth", Opening(weights="D")).cnn()


# Tensors


def test_tensors_that_are_one_stay_one_and_hooks_translate_old_names(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "w.pth")
    found = read_checkpoint(tmp_path / "w.pth").state_dict
    assert found["blocks.0.weight"].data_ptr() == found["tied.weight"].data_ptr()
    with pytest.warns(FutureWarning, match="weight_norm"):
        old = nn.utils.weight_norm(nn.Conv1d(4, 6, 3, groups=2), dim=2)
    new = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3, groups=2), dim=2)
    torch.save({"state_dict": prefixed("module.", dict(old.state_dict()))}, tmp_path / "n.pth")
    opened = open_network(tmp_path / "n.pth", Opening(new)).cnn().state_dict()
    assert torch.equal(opened["parametrizations.weight.original0"], old.state_dict()["weight_g"])
    assert torch.equal(opened["parametrizations.weight.original1"], old.state_dict()["weight_v"])


def test_a_second_name_of_a_tensor_may_be_missing_but_not_differ(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.other = nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 1)
            self.other.weight = self.conv.weight

    net = Tied()
    saved = dict(net.state_dict())
    torch.save({key: value for key, value in saved.items() if key != "other.weight"}, tmp_path / "w.pth")
    opened = open_network(tmp_path / "w.pth", Opening(Tied())).cnn()
    assert torch.equal(opened.state_dict()["other.weight"], net.conv.weight)
    torch.save(saved | {"other.weight": net.conv.weight + 1}, tmp_path / "w.pth")
    with pytest.raises(CheckpointError, match=r"'conv.weight' and 'other.weight' are one tensor, with two values"):
        open_network(tmp_path / "w.pth", Opening(Tied()))


def test_quantised_tensors_are_what_their_integers_stand_for(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):  # torch means to give them up
        whole = torch.quantize_per_tensor(torch.randn(3, 4), 0.05, 3, torch.qint8)
    torch.save(state() | {"head.weight": whole}, tmp_path / "w.pth")
    assert_opens_as(tmp_path / "w.pth", state() | {"head.weight": whole.dequantize()})


def test_the_sum_is_of_the_whole_file(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "w.pth")
    found = read_checkpoint(tmp_path / "w.pth")
    assert found.sha256 == hashlib.sha256((tmp_path / "w.pth").read_bytes()).hexdigest()
    assert found.files == (tmp_path / "w.pth",)


def test_counters_of_other_kinds_are_taken_where_their_numbers_are_the_same(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))
    saved = dict(net.state_dict())
    for counter in (torch.tensor([7.0]), torch.tensor([7])):  # as PyTorch reads it
        torch.save(saved | {"1.num_batches_tracked": counter}, tmp_path / "w")
        assert open_network(tmp_path / "w", Opening(net)).cnn().state_dict()["1.num_batches_tracked"] == 7
    torch.save(saved | {"1.num_batches_tracked": torch.tensor([7.5])}, tmp_path / "w")
    with pytest.raises(CheckpointError, match=r"'1\.num_batches_tracked' is floating point, wanted integer"):
        open_network(tmp_path / "w", Opening(net)).cnn()


# Folders as transformers and diffusers write them, whole or in shards


def write(tensors: State, path: Path) -> None:
    """By the library that writes files of this suffix."""
    (save_file if path.suffix == ".safetensors" else torch.save)(tensors, path)


def as_shards(stem: str, suffix: str, index: str) -> Callable[[State, Path], None]:
    def write_shards(tensors: State, folder: Path) -> None:
        names = {key: f"{stem}-0000{1 + n % 2}-of-00002{suffix}" for n, key in enumerate(tensors)}
        for name in set(names.values()):
            write({key: value for key, value in tensors.items() if names[key] == name}, folder / name)
        (folder / index).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": names}))

    return write_shards


FOLDERS: dict[str, Callable[[State, Path], None]] = {
    **{
        name: lambda tensors, folder, name=name: write(tensors, folder / name)  # type: ignore[misc]
        for name in ("model.safetensors", "pytorch_model.bin", "diffusion_pytorch_model.fp16.safetensors")
    },
    "shards": as_shards("model", ".safetensors", "model.safetensors.index.json"),
    "shards of a variant": as_shards("m.fp16", ".safetensors", "m.safetensors.index.fp16.json"),
    "shards of .bin": as_shards("pytorch_model", ".bin", "pytorch_model.bin.index.json"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_is_read_as_the_weights_in_it(kind: str, tmp_path: Path) -> None:
    wanted = {key: value.clone() for key, value in state().items()}
    FOLDERS[kind](wanted, tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["Net"]}')
    torch.save({"state": {}}, tmp_path / "optimizer.bin")
    found = read_checkpoint(tmp_path)
    assert found.state_dict.keys() == wanted.keys()
    assert all(torch.equal(found.state_dict[key], value) for key, value in wanted.items())
    assert len(found.sha256) == 64
    assert len(found.files) == (3 if "shards" in kind else 1)


def test_a_name_whose_numbers_another_has_is_read_from_the_metadata(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2, 3)}, tmp_path / "w.safetensors", {"format": "pt", "b": "a", "text": "of theirs"})
    found = read_checkpoint(tmp_path / "w.safetensors")
    assert found.state_dict["a"].data_ptr() == found.state_dict["b"].data_ptr()
