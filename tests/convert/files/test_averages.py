"""Which of two sets of weights is the average, as the library that wrote the file has it; and weights in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from conv2attn.convert.errors import SeveralNetworksError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.weights import Opening

State = dict[str, Tensor]


def network() -> nn.ModuleDict:
    backbone = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
    return nn.ModuleDict({"backbone": backbone, "head": nn.Conv2d(6, 5, 1)})


def two_sets() -> tuple[State, State]:
    """The state dict of a network that was trained, and that of its average; all parameters differ."""
    trained, average = network().state_dict(), network().state_dict()
    return trained, {key: value + 1 for key, value in average.items()}


def parameters_of(state: State) -> State:
    return {key: state[key] for key, _ in network().named_parameters()}


def read(path: Path, **options: Any) -> State:
    return open_network(path, Opening(network(), **options)).cnn().state_dict()


def assert_equal(found: State, wanted: State) -> None:
    assert list(found) == list(wanted)
    assert all(torch.equal(found[key], value) for key, value in wanted.items())


def mmengine(trained: State, average: State) -> dict[str, Any]:
    behind = {f"module.{key}": value for key, value in trained.items()}
    return {"meta": {"epoch": 3}, "state_dict": average, "ema_state_dict": {"steps": torch.tensor(7), **behind}}


def lightning(trained: State, average: State) -> dict[str, Any]:
    told = {"pytorch-lightning_version": "2.6.0", "averaging_state": {"n_averaged": torch.tensor(3)}}
    return {**told, "state_dict": average, "current_model_state": trained}


@pytest.mark.parametrize("written", [mmengine, lightning])
def test_a_library_that_swaps_both_sets_is_known_by_what_it_writes(written: Any, tmp_path: Path) -> None:
    trained, average = two_sets()
    torch.save(written(trained, average), tmp_path / "w.pth")
    assert_equal(read(tmp_path / "w.pth", ema=True), average)
    assert_equal(read(tmp_path / "w.pth"), average)  # as the library itself loads it
    other = "ema_state_dict" if written is mmengine else "current_model_state"
    assert_equal(read(tmp_path / "w.pth", weights=other), trained)


def test_an_average_that_pytorch_keeps_is_taken(tmp_path: Path) -> None:
    model = network()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    averaged.update_parameters(model)
    nn.init.normal_(model["head"].weight)  # type: ignore[arg-type]
    averaged.update_parameters(model)
    torch.save({"state_dict": model.state_dict(), "state_dict_ema": averaged.state_dict()}, tmp_path / "w.pth")
    assert_equal(read(tmp_path / "w.pth", ema=True), averaged.module.state_dict())
    assert_equal(read(tmp_path / "w.pth"), model.state_dict())


@pytest.mark.parametrize("of", [parameters_of, dict])
def test_of_mmcv_s_two_sets_the_caller_chooses(of: Any, tmp_path: Path) -> None:
    trained, average = two_sets()
    beside = {f"ema_{key.replace('.', '_')}": value for key, value in of(average).items()}
    torch.save({"meta": {"mmcv_version": "1.7.0"}, "state_dict": {**trained, **beside}}, tmp_path / "w.pth")
    with pytest.raises(SeveralNetworksError, match=r"'state_dict\.ema' or 'state_dict'"):
        read(tmp_path / "w.pth", ema=True)
    assert_equal(read(tmp_path / "w.pth", weights="state_dict.ema"), trained | of(average))
    assert_equal(read(tmp_path / "w.pth", weights="state_dict"), trained)
    assert_equal(read(tmp_path / "w.pth"), trained)


@pytest.mark.parametrize("place", ["ema", "ema_state"])
@pytest.mark.parametrize("form", [list, tuple, dict])
def test_an_average_of_the_parameters_alone_takes_the_rest_from_the_trained_weights(
    place: str, form: Any, tmp_path: Path
) -> None:
    trained, average = two_sets()
    own, raw = parameters_of(average), parameters_of(trained)
    shadow, kept = (each if form is dict else form(each.values()) for each in (own, raw))
    state = {"decay": 0.9, "num_updates": 3, "shadow_params": shadow, "collected_params": kept}
    torch.save({"model": trained, place: state}, tmp_path / "w.pth")
    assert_equal(read(tmp_path / "w.pth", ema=True), trained | own)
    assert_equal(read(tmp_path / "w.pth"), trained)


def test_both_networks_that_a_module_of_averages_holds_are_told_apart(tmp_path: Path) -> None:
    trained, average = two_sets()
    held = {f"online_model.{key}": value for key, value in trained.items()}
    held |= {f"ema_model.{key}": value for key, value in average.items()} | {"step": torch.tensor(3)}
    torch.save({"model": trained, "ema": held}, tmp_path / "w.pth")
    assert_equal(read(tmp_path / "w.pth", ema=True), average)


# Weights in parts


@pytest.mark.parametrize("suffix", ["", "_state_dict"])
@pytest.mark.parametrize("prefix", ["", "module.", "model."])
@pytest.mark.parametrize("place", [None, "state"])
def test_one_state_dict_a_part_is_read_behind_the_part_s_name(
    suffix: str, prefix: str, place: str | None, tmp_path: Path
) -> None:
    net = network()
    wanted, parts = net.state_dict(), dict(net.named_children())
    held: dict[str, Any] = {
        f"{name}{suffix}": {f"{prefix}{key}": value for key, value in part.state_dict().items()}
        for name, part in parts.items()
    }
    optimizer = torch.optim.Adam(net.parameters()).state_dict()
    torch.save({place: held, "optimizer": optimizer} if place else held | {"optimizer": optimizer}, tmp_path / "w.pth")
    assert_equal(read(tmp_path / "w.pth"), wanted)
