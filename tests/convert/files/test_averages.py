"""Which of two sets of weights is the average, as the library that wrote the file has it; and weights in parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from conv2attn.convert.errors import SeveralNetworksError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening

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


Written = tuple[dict[str, Any], list[tuple[dict[str, Any], State]]]  # a file; options, and what they read of it


def mmengine(trained: State, average: State) -> Written:
    behind = {f"module.{key}": value for key, value in trained.items()}
    held = {"state_dict": average, "ema_state_dict": {"steps": torch.tensor(7), **behind}}
    return {"meta": {"epoch": 3}, **held}, [
        ({"ema": True}, average),
        ({}, average),
        ({"weights": "ema_state_dict"}, trained),
    ]


def lightning(trained: State, average: State) -> Written:
    held = {"state_dict": average, "current_model_state": trained, "averaging_state": {"n_averaged": torch.tensor(3)}}
    file = {"pytorch-lightning_version": "2.6.0", **held}
    return file, [({"ema": True}, average), ({}, average), ({"weights": "current_model_state"}, trained)]


def mmcv(trained: State, average: State) -> Written:
    beside = {f"ema_{key.replace('.', '_')}": value for key, value in average.items()}
    read = [({"weights": "state_dict.ema"}, trained | average), ({"weights": "state_dict"}, trained), ({}, trained)]
    return {"meta": {"mmcv_version": "1.7.0"}, "state_dict": {**trained, **beside}}, read


def in_one_module(trained: State, average: State) -> Written:
    held = {f"online_model.{key}": value for key, value in trained.items()}
    held |= {f"ema_model.{key}": value for key, value in average.items()} | {"step": torch.tensor(3)}
    return {"model": trained, "ema": held}, [({"ema": True}, average), ({}, trained)]


def of_parameters(place: str, form: Any) -> Callable[[State, State], Written]:
    """An average of the parameters alone, which takes the rest from the trained weights."""

    def write(trained: State, average: State) -> Written:
        own, raw = parameters_of(average), parameters_of(trained)
        shadow, kept = (each if form is dict else form(each.values()) for each in (own, raw))
        state = {"decay": 0.9, "num_updates": 3, "shadow_params": shadow, "collected_params": kept}
        return {"model": trained, place: state}, [({"ema": True}, trained | own), ({}, trained)]

    return write


WRITTEN: dict[str, Callable[[State, State], Written]] = {
    "mmengine": mmengine,
    "Lightning": lightning,
    "mmcv": mmcv,
    "mmcv, of parameters": lambda trained, average: mmcv(trained, parameters_of(average)),
    "in one module": in_one_module,
    "a list": of_parameters("ema", list),
    "a tuple": of_parameters("ema_state", tuple),
    "a dictionary": of_parameters("ema", dict),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_of_two_sets_the_average_is_known_by_what_wrote_it_or_the_caller_chooses(kind: str, tmp_path: Path) -> None:
    file, wanted = WRITTEN[kind](*two_sets())
    torch.save(file, tmp_path / "w.pth")
    for options, state in wanted:
        assert_equal(read(tmp_path / "w.pth", **options), state)
    if "mmcv" in kind:
        with pytest.raises(SeveralNetworksError, match=r"'state_dict\.ema' or 'state_dict'"):
            read(tmp_path / "w.pth", ema=True)


def test_an_average_that_pytorch_keeps_is_taken(tmp_path: Path) -> None:
    model = network()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5), use_buffers=True)
    averaged.update_parameters(model)
    nn.init.normal_(model["head"].weight)  # type: ignore[arg-type]
    averaged.update_parameters(model)
    torch.save({"state_dict": model.state_dict(), "state_dict_ema": averaged.state_dict()}, tmp_path / "w.pth")
    assert_equal(read(tmp_path / "w.pth", ema=True), averaged.module.state_dict())
    assert_equal(read(tmp_path / "w.pth"), model.state_dict())


# Weights in parts


@pytest.mark.parametrize(
    ("suffix", "prefix", "place"),
    [("", "", None), ("_state_dict", "module.", None), ("_state_dict", "", "state"), ("", "model.", "state")],
)
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
