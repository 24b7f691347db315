"""The example networks are what they claim: drawn data, really trained, whole, and varied."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert.errors import CheckpointError, ConversionError
from conv2attn.convert.examples.images import CLASSES, HELD_OUT_SEED, IMAGE_SIZE, draw_images
from conv2attn.convert.examples.networks import NETWORKS
from conv2attn.convert.examples.pretrained import SUMS_NAME, accuracy, load_example
from conv2attn.convert.examples.train import train, write_network

each_network = pytest.mark.parametrize("name", NETWORKS)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A copy of the shipped weights that a test may damage."""
    shipped = files("conv2attn.convert.examples") / "weights"
    for name in (*(f"{each}.safetensors" for each in NETWORKS), SUMS_NAME):
        (tmp_path / name).write_bytes((shipped / name).read_bytes())
    return tmp_path


def convolutions(*names: str) -> list[nn.Conv2d]:
    modules = (module for name in names for module in NETWORKS[name]().modules())
    return [module for module in modules if isinstance(module, nn.Conv2d)]


def test_the_same_seed_draws_the_same_images() -> None:
    first, second, other = (draw_images(24, seed=seed) for seed in (7, 7, 8))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], other[0])


def test_images_are_finite_rgb_in_single_precision_and_about_standardised() -> None:
    images, labels = draw_images(200, seed=3)
    assert images.shape == (200, 3, *IMAGE_SIZE)
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert bool(images.isfinite().all())
    assert abs(float(images.mean())) < 0.1
    assert 0.3 < float(images.std()) < 1.0


def test_classes_are_balanced_within_one() -> None:
    _, labels = draw_images(101, seed=11)
    per_class = labels.bincount(minlength=len(CLASSES))
    assert int(per_class.max() - per_class.min()) <= 1


def test_a_grating_varies_across_its_stripes_and_a_disc_has_no_direction() -> None:
    images, labels = draw_images(800, seed=5)
    steps = [images.diff(dim=axis).square().mean(dim=(1, 2, 3)) for axis in (2, 3)]
    down, across = ({name: float(s[labels == i].mean()) for i, name in enumerate(CLASSES)} for s in steps)
    assert down["horizontal grating"] > 1.2 * across["horizontal grating"]
    assert across["vertical grating"] > 1.2 * down["vertical grating"]
    assert 0.9 < down["disc"] / across["disc"] < 1.1


@each_network
def test_a_shipped_network_classifies_nine_in_ten_held_out_images(name: str) -> None:
    assert accuracy(load_example(name), *draw_images(1000, seed=HELD_OUT_SEED)) >= 0.9


@each_network
def test_a_loaded_network_is_in_single_precision_and_in_eval_mode_and_takes_any_size(name: str) -> None:
    network = load_example(name)
    floats = [tensor for tensor in network.state_dict().values() if tensor.is_floating_point()]
    assert all(tensor.dtype == torch.float32 and bool(tensor.isfinite().all()) for tensor in floats)
    assert not any(module.training for module in network.modules())
    assert network(torch.zeros(2, 3, 30, 22)).shape == (2, len(CLASSES))


def flip_a_bit(weights: Path) -> None:
    path = weights / "plain.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def take_another_network(weights: Path) -> None:
    shutil.copyfile(weights / "mobile.safetensors", weights / "plain.safetensors")
    digest = hashlib.sha256((weights / "plain.safetensors").read_bytes()).hexdigest()
    (weights / SUMS_NAME).write_text(f"{digest}  plain.safetensors\n", encoding="utf-8")


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (flip_a_bit, "not the file that was trained"),
    (take_another_network, "does not fit the network"),
    (lambda weights: (weights / "plain.safetensors").unlink(), "cannot read plain.safetensors"),
    (lambda weights: (weights / SUMS_NAME).unlink(), f"cannot read {SUMS_NAME}"),
    (lambda weights: (weights / SUMS_NAME).write_text("", encoding="utf-8"), "lists no checksum for plain"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_weights_that_are_not_those_that_were_trained_are_refused(
    damage: Callable[[Path], object], reason: str, weights: Path
) -> None:
    damage(weights)
    with pytest.raises(CheckpointError, match=reason):
        load_example("plain", folder=weights)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConversionError, match="'resnet'; there are plain, residual, mobile"):
        load_example("resnet")


def test_the_networks_have_all_that_convolutions_have_between_them() -> None:
    plain, residual, mobile = (convolutions(name) for name in NETWORKS)
    assert {conv.padding_mode for conv in plain} == {"zeros", "circular", "reflect"}
    for option in ({"kernel_size": (5, 5)}, {"stride": (2, 2)}, {"dilation": (2, 2)}, {"padding": "same"}):
        assert any(getattr(conv, name) == value for conv in plain for name, value in option.items()), option
    assert any(conv.bias is not None for conv in plain)
    assert any((conv.kernel_size, conv.stride) == ((1, 1), (2, 2)) for conv in residual)
    assert any(conv.groups == conv.in_channels == conv.out_channels for conv in mobile)
    assert any(1 < conv.groups < conv.in_channels for conv in mobile)
    assert any(conv.kernel_size == (1, 1) for conv in mobile)


def test_training_is_deterministic_leaves_the_random_state_alone_and_writes_what_it_trained(
    tmp_path: Path,
) -> None:
    before = torch.get_rng_state()
    first, second = (train("plain", epochs=1, images_per_epoch=16, batch_size=8) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    write_network(first, "plain", folder=tmp_path)
    loaded = load_example("plain", folder=tmp_path).state_dict()
    assert all(torch.equal(loaded[key], tensor) for key, tensor in second.state_dict().items())


def test_checksums_cover_every_network_in_the_folder(tmp_path: Path) -> None:
    for name in ("mobile", "plain"):
        write_network(NETWORKS[name](), name, folder=tmp_path)
    lines = (tmp_path / SUMS_NAME).read_text(encoding="utf-8").splitlines()
    sums = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("plain.safetensors", "mobile.safetensors")
    }
    assert lines == [f"{digest}  {name}" for name, digest in sums.items()]
