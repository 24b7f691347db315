"""Folders and checkpoints that timm, torchvision, transformers and diffusers write themselves: make test-libraries."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from conv2attn.convert import convert_model, load_converted, save_converted
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from conv2attn.convert.layer.layer import SelfAttention
from tests.command import Run
from tests.libraries import imported, timm_network, torchvision_network, transformers_network

pytestmark = pytest.mark.libraries
SOURCE = Path("source")


class Written(NamedTuple):
    """A network that its library wrote to ``SOURCE``.

    Attributes:
        network: The network, in eval mode.
        inputs: Arguments that it runs on.
        opening: Options of ``convert`` that name its architecture, where its files do not.
        verifying: Options of ``verify`` that give its inputs.
    """

    network: nn.Module
    inputs: tuple[Tensor, ...]
    opening: tuple[str, ...] = ()
    verifying: tuple[str, ...] = ("--size", "32x32", "--random", "1")


def images(size: int = 32, channels: int = 3) -> Tensor:
    return torch.linspace(-1, 1, 2 * channels * size**2).view(2, channels, size, size)


def by_timm(name: str, *, safe: bool = True, **options: Any) -> Written:
    network = timm_network(name, **options).eval()
    imported("timm.models").save_for_hf(network, SOURCE, safe_serialization=safe)
    channels = options.get("in_chans", 3)
    return Written(network, (images(channels=channels),), verifying=("--size", f"{channels}x32x32", "--random", "1"))


def by_timm_in_training() -> Written:
    """A checkpoint of timm's own training script, with the moving average of the weights beside them."""
    network = timm_network().eval()
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
    saver = imported("timm.utils").CheckpointSaver(network, optimizer, checkpoint_dir=".", recovery_dir=".")
    saver.save_checkpoint(epoch=3, metric=0.5)
    Path("last.pth.tar").rename(SOURCE)
    return Written(network, (images(),), ("--arch", "timm:test_resnet", "--arch-arg", "num_classes=3"))


def by_torchvision(name: str) -> Written:
    network = torchvision_network(name).eval()
    torch.save(network.state_dict(), SOURCE)
    return Written(network, (images(),), ("--arch", f"torchvision.models:{name}", "--arch-arg", "num_classes=3"))


def by_transformers(kind: str = "ResNet", *, shards: int = 1, **options: Any) -> Written:
    network: Any = transformers_network(kind, **options).eval()
    network.save_pretrained(SOURCE, max_shard_size="50GB" if shards == 1 else "2KB")
    assert len(list(SOURCE.glob("*.safetensors"))) >= shards
    return Written(network, (images(),))


def by_diffusers(name: str, inputs: tuple[Tensor, ...], verifying: tuple[str, ...], **options: Any) -> Written:
    network = getattr(imported("diffusers"), name)(**options).eval()
    network.save_pretrained(SOURCE)
    Path("net.py").write_text(f"from diffusers import {name}\ndef net(): return {name}(**{options!r})\n")
    return Written(network, inputs, ("--arch", "net.py:net"), (*verifying, "--random", "1", "--trust"))


def autoencoder() -> Written:
    options = {"block_out_channels": (8,), "norm_num_groups": 4, "layers_per_block": 1}
    return by_diffusers("AutoencoderKL", (images(16),), ("--size", "16x16"), **options)


def denoiser() -> Written:
    return by_diffusers(
        "UNet2DModel",
        (images(16), torch.tensor(3)),
        ("--input", "sample=2x3x16x16", "--input", "timestep=2:int64"),
        sample_size=16,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        layers_per_block=1,
    )


CONVNEXT: dict[str, Any] = {"hidden_sizes": [8, 8, 12, 12], "depths": [1, 1, 1, 1]}
WRITTEN: dict[str, Callable[[], Written]] = {
    "timm": lambda: by_timm("test_resnet"),
    "timm, another pooling": lambda: by_timm("test_convnext", num_classes=7, global_pool="max"),
    "timm, one channel": lambda: by_timm("test_efficientnet", num_classes=4, in_chans=1),
    "timm, as a .bin": lambda: by_timm("test_efficientnet", safe=False),
    "timm, in training": by_timm_in_training,
    "torchvision": lambda: by_torchvision("squeezenet1_1"),
    "torchvision, versions": lambda: by_torchvision("mnasnet0_5"),
    "torchvision, branches": lambda: by_torchvision("shufflenet_v2_x0_5"),
    "transformers": by_transformers,
    "transformers, padding of TensorFlow": lambda: by_transformers("MobileNetV2", depth_multiplier=0.1, min_depth=4),
    "transformers, channels last": lambda: by_transformers("ConvNext", **CONVNEXT),
    "transformers, shards": lambda: by_transformers(shards=2),
    "diffusers, an autoencoder": autoencoder,
    "diffusers, a denoiser": denoiser,
}


def outputs(network: nn.Module, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    with torch.no_grad():
        return [leaf for leaf in tree_leaves(network(*inputs)) if isinstance(leaf, Tensor)]


def are_equal(got: list[Tensor], wanted: list[Tensor]) -> bool:
    return len(got) == len(wanted) > 0 and all(map(torch.equal, got, wanted))


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_a_library_writes_is_converted_verified_and_restored_bit_for_bit(kind: str, run: Run) -> None:
    network, inputs, opening, verifying = WRITTEN[kind]()
    wanted = outputs(network, inputs)
    assert are_equal(outputs(convert_model(network).model, inputs), wanted)
    for command in (
        ("convert", SOURCE, *opening, "--out", "out", "--no-page"),
        ("verify", "out", *verifying),
        ("restore", "out", "--out", "back.pth"),
    ):
        code, out, err = run(*command)
        assert code == 0, (command, out, err)
    loaded = load_converted("out", trust=True)
    assert any(isinstance(module, SelfAttention) for module in loaded.modules())
    assert are_equal(outputs(loaded, inputs), wanted)
    state, back = network.state_dict(), torch.load("back.pth", weights_only=True)
    assert list(back) == list(state)
    assert all(torch.equal(back[key], value) for key, value in state.items())


@pytest.mark.parametrize("name", ["timm:test_resnet", "torchvision.models:mobilenet_v3_small"])
def test_a_name_alone_describes_a_network_of_other_classes(name: str, tmp_path: Path) -> None:
    cnn = Architecture(name, {"num_classes": 3}).build().eval()
    save_converted(convert_model(cnn).model, tmp_path / "kept", architecture=name)
    assert torch.equal(load_converted(tmp_path / "kept")(images()), cnn(images()))


@pytest.mark.parametrize("library", ["timm", "diffusers"])
def test_the_average_that_a_library_writes_is_taken(library: str, tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))
    if library == "timm":
        kept = imported("timm.utils").ModelEmaV3(network, decay=0.5)
    else:
        kept = imported("diffusers.training_utils").EMAModel(network.parameters(), decay=0.5)
    for _ in range(3):
        nn.init.normal_(network[0].weight)  # type: ignore[arg-type]
        if library == "timm":
            kept.update(network)
        else:
            kept.step(network.parameters())
    average = {"state_dict_ema": kept.module.state_dict()} if library == "timm" else {"ema": kept.state_dict()}
    torch.save({"state_dict": network.state_dict(), **average}, tmp_path / "w.pth")
    averaged = copy.deepcopy(network)
    if library == "timm":
        averaged.load_state_dict(kept.module.state_dict())
    else:
        kept.copy_to(averaged.parameters())
    assert not torch.equal(averaged[0].weight, network[0].weight)  # type: ignore[arg-type]
    for ema, wanted in ((True, averaged), (False, network)):
        found = open_network(tmp_path / "w.pth", Opening(copy.deepcopy(network), ema=ema)).cnn().state_dict()
        assert all(torch.equal(found[key], value) for key, value in wanted.state_dict().items())
