"""Files of version 1 are read by this version: folders, state dicts, whole layers, a training run, a campaign."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from conv2attn.convert import SelfAttention, attention_from_conv, certify, load_converted, restore_model
from conv2attn.convert.bounds.rounding import gamma, unit_roundoff
from conv2attn.convert.errors import CheckpointError, ConversionError
from conv2attn.convert.files.folder import read_folder
from conv2attn.convert.files.open import open_network
from conv2attn.convert.spec import Convolution
from conv2attn.learn.experiment.folder import read_experiment, read_history
from conv2attn.proofs.campaign.results import read_campaign
from tests.bounds import output_bound
from tests.small_models import SMALL_MODELS, Composite, resnet

KEPT = Path(__file__).parent / "kept" / "version1"
FOLDERS: dict[str, Callable[[], nn.Module]] = {
    "exact": Composite,
    "soft": lambda: SMALL_MODELS["U-Net"]().double(),
    "melted": lambda: resnet(6),
}
CONVOLUTIONS: dict[str, Callable[[], Convolution]] = {
    "conv1d": lambda: nn.Conv1d(2, 3, 4, stride=2, padding=1),
    "conv2d": lambda: nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(1, 0), groups=2, padding_mode="reflect"),
    "conv3d": lambda: nn.Conv3d(1, 2, (1, 2, 3), dilation=(1, 2, 1), bias=False),
    "transposed": lambda: nn.ConvTranspose2d(3, 2, 3, stride=2, padding=1, output_padding=1),
}
EXACT, SOFT, MELTED, CONTENT = "exact", "soft", "melted", "content"


def kept_layer(name: str, kind: str) -> tuple[SelfAttention, dict[str, Tensor]]:
    """A layer of another alpha that has loaded the state dict, and that state dict with input and output."""
    kept = load_file(KEPT / "layers.safetensors")
    state = {key.removeprefix(f"{name}.{kind}."): value for key, value in kept.items() if f"{name}.{kind}." in key}
    seen = {"input": kept[f"{name}.input"], "output": state.pop("output")}
    layer = attention_from_conv(CONVOLUTIONS[name](), alpha=3)
    if kind == MELTED:
        layer.train_positions()
    if kind == CONTENT:
        layer.add_content(2)
    layer.load_state_dict(state)
    return layer, state | seen


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_version_1_is_the_network_that_was_saved(name: str) -> None:
    model = load_converted(KEPT / name, architecture=FOLDERS[name]())
    saved = load_file(KEPT / name / "model.safetensors")
    state = model.state_dict()
    assert saved.keys() <= state.keys()
    assert all(torch.equal(state[key], value) and state[key].dtype == value.dtype for key, value in saved.items())
    assert any(isinstance(module, SelfAttention) and module.trains_positions for module in model.modules()) == (
        name == "melted"
    )


@pytest.mark.parametrize("name", ["exact", "soft"])
def test_a_network_of_version_1_is_restored_bit_for_bit(name: str) -> None:
    restored = restore_model(load_converted(KEPT / name, architecture=FOLDERS[name]()), tolerance=1)
    cnn = load_file(KEPT / f"{name}.cnn.safetensors")
    state = restored.state_dict()
    assert state.keys() == cnn.keys()
    assert all(torch.equal(state[key], value) for key, value in cnn.items())


def test_a_folder_of_version_1_that_names_its_network_builds_it() -> None:
    model = load_converted(KEPT / "named")
    assert model(torch.zeros(1, 3, 32, 32)).shape[0] == 1


@pytest.mark.parametrize("name", ["timm", "huggingface"])
def test_weights_of_a_named_folder_of_version_1_are_the_cnns(name: str) -> None:
    config, checkpoint = read_folder(KEPT / name)
    cnn = load_file(KEPT / f"{name}.cnn.safetensors")
    assert config.architecture is not None
    assert all(torch.equal(checkpoint.state_dict[key], value) for key, value in cnn.items())


def test_an_onnx_folder_of_version_1_holds_the_convolutions_of_its_file() -> None:
    state = open_network(KEPT / "onnx").cnn_state()
    weights = {tensor.name: tensor for tensor in onnx.load(KEPT / "onnx.original.onnx").graph.initializer}
    assert state.keys() == weights.keys()
    for name, value in state.items():
        assert torch.equal(value, torch.from_numpy(onnx.numpy_helper.to_array(weights[name]).copy()))


@pytest.mark.parametrize("kind", [EXACT, SOFT, MELTED, CONTENT])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_state_dict_of_version_1_is_loaded_number_by_number(name: str, kind: str) -> None:
    layer, state = kept_layer(name, kind)
    for key, value in layer.state_dict().items():
        assert torch.equal(value, state[key]), key


@pytest.mark.parametrize("kind", [EXACT, SOFT])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_layer_of_version_1_computes_what_it_did(name: str, kind: str) -> None:
    layer, seen = kept_layer(name, kind)
    x = seen["input"]
    apart = (layer(x) - seen["output"]).abs().max().item()
    assert apart <= 2 * certify(layer, input_range=(x.min().item(), x.max().item())).bound


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_melted_layer_of_version_1_computes_what_it_did(name: str) -> None:
    """Two computations whose scores are rounded: each probability is off by a factor of at most e^(2 e), twice.

    A score is -alpha |delta - Delta|^2, computed in at most 16 roundings of numbers no larger than alpha (|delta| +
    |Delta|)^2, which bounds e; a difference of probabilities moves an output by at most max |x| sum |w| of it.
    """
    layer, seen = kept_layer(name, MELTED)
    x = seen["input"]
    reach = math.dist([0] * layer.spec.axes, layer.spec.pad(x).shape[2:]) + layer.centers.norm(dim=1).max().item()
    wrong = gamma(16, unit_roundoff(torch.float32)) * layer.alpha.max().item() * reach**2
    scale = x.abs().max().item() * layer.kernel.detach().abs().flatten(1).sum(1).max().item()
    apart = (layer(x) - seen["output"]).abs().max().item()
    assert apart <= output_bound(layer, x) + 2 * math.expm1(2 * wrong) * scale


def test_content_behind_a_gate_which_only_version_1_has_is_refused(tmp_path: Path) -> None:
    layer, state = kept_layer("conv2d", CONTENT)
    del state["input"], state["output"]
    state["content.gate"] = torch.zeros(layer.num_heads)
    with pytest.raises(ConversionError, match=r"content\.gate: gated content was removed in version 2"):
        layer.load_state_dict(state, strict=False)
    folder = shutil.copytree(KEPT / "melted", tmp_path / "gated")
    tensors = load_file(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    name = config["layers"][0]["names"][0]
    tensors[f"{name}.content.gate"] = torch.zeros(9)
    config["tensors"].append(f"{name}.content.gate")
    save_file(tensors, folder / "model.safetensors", {"conv2attn": "4"})
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=rf"holds {name}\.content\.gate: gated content was removed"):
        load_converted(folder, architecture=FOLDERS["melted"]())


def test_a_whole_layer_of_version_1_with_a_gate_is_refused() -> None:
    with pytest.raises(ConversionError, match="pickled has a gate: gated content was removed in version 2"):
        torch.load(KEPT / "gated.pickled.pth", weights_only=False)


@pytest.mark.parametrize("name", ["layer", "melted", "content"])
def test_a_whole_layer_of_version_1_is_unpickled(name: str) -> None:
    layer = torch.load(KEPT / f"{name}.pickled.pth", weights_only=False)
    assert isinstance(layer, SelfAttention)
    assert layer.trains_positions == (name == "melted")


def test_a_training_run_of_version_1_is_shown() -> None:
    experiment = read_experiment(KEPT / "learned")
    assert experiment.encodings == ("quadratic",)
    assert read_history(KEPT / "learned", "quadratic").best >= 0


def test_a_campaign_of_version_1_is_read() -> None:
    assert read_campaign(KEPT / "soak.json").exit_code == 0
