"""The example networks are what they claim: drawn data, really trained, whole, and varied."""

from __future__ import annotations

import hashlib
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert.errors import CheckpointError, ConversionError
from conv2attn.convert.examples.images import CLASSES, HELD_OUT_SEED, IMAGE_SIZE, draw_images
from conv2attn.convert.examples.networks import NETWORKS, InvertedResidual, ResidualBlock
from conv2attn.convert.examples.pretrained import SUMS_NAME, accuracy, load_example
from conv2attn.convert.examples.train import main, train, write_network

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


@pytest.mark.parametrize("count", [8, 100, 1000])
def test_classes_are_balanced_within_one(count: int) -> None:
    _, labels = draw_images(count, seed=11)
    per_class = labels.bincount(minlength=len(CLASSES))
    assert int(per_class.max() - per_class.min()) <= 1


def test_a_grating_varies_across_its_stripes_and_a_disc_has_no_direction() -> None:
    images, labels = draw_images(800, seed=5)
    steps = [images.diff(dim=axis).square().mean(dim=(1, 2, 3)) for axis in (2, 3)]
    down, across = ({name: float(s[labels == i].mean()) for i, name in enumerate(CLASSES)} for s in steps)
    assert down["horizontal grating"] > 1.2 * across["horizontal grating"]
    assert across["vertical grating"] > 1.2 * down["vertical grating"]
    assert 0.9 < down["disc"] / across["disc"] < 1.1


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(ConversionError, match="at least 1"):
        draw_images(0, seed=1)


@each_network
def test_a_shipped_network_classifies_nine_in_ten_held_out_images(name: str) -> None:
    assert accuracy(load_example(name), *draw_images(1000, seed=HELD_OUT_SEED)) >= 0.9


@each_network
def test_a_loaded_network_is_finite_single_precision_and_in_eval_mode(name: str) -> None:
    network = load_example(name)
    floats = [tensor for tensor in network.state_dict().values() if tensor.is_floating_point()]
    assert all(tensor.dtype == torch.float32 and bool(tensor.isfinite().all()) for tensor in floats)
    assert not any(module.training for module in network.modules())


@each_network
def test_a_network_takes_images_of_another_size(name: str) -> None:
    assert load_example(name)(torch.zeros(2, 3, 30, 22)).shape == (2, len(CLASSES))


@each_network
def test_a_file_with_one_flipped_bit_is_refused(name: str, weights: Path) -> None:
    path = weights / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="not the file that was trained"):
        load_example(name, folder=weights)


@pytest.mark.parametrize("missing", ["plain.safetensors", SUMS_NAME])
def test_a_missing_file_is_named(missing: str, weights: Path) -> None:
    (weights / missing).unlink()
    with pytest.raises(CheckpointError, match=f"cannot read {missing}"):
        load_example("plain", folder=weights)


def test_a_file_without_a_checksum_is_refused(weights: Path) -> None:
    (weights / SUMS_NAME).write_text("", encoding="utf-8")
    with pytest.raises(CheckpointError, match="lists no checksum for plain"):
        load_example("plain", folder=weights)


def test_weights_of_another_network_are_refused_even_with_a_right_checksum(weights: Path) -> None:
    shutil.copyfile(weights / "mobile.safetensors", weights / "plain.safetensors")
    digest = hashlib.sha256((weights / "plain.safetensors").read_bytes()).hexdigest()
    (weights / SUMS_NAME).write_text(f"{digest}  plain.safetensors\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="does not fit the network"):
        load_example("plain", folder=weights)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConversionError, match="'resnet'; there are plain, residual, mobile"):
        load_example("resnet")


def test_the_plain_network_has_bias_5x5_stride_dilation_and_three_padding_modes() -> None:
    convs = convolutions("plain")
    assert any(conv.bias is not None for conv in convs)
    assert any(conv.kernel_size == (5, 5) for conv in convs)
    assert any(conv.stride == (2, 2) for conv in convs)
    assert any(conv.dilation == (2, 2) for conv in convs)
    assert any(conv.padding == "same" for conv in convs)
    assert {conv.padding_mode for conv in convs} == {"zeros", "circular", "reflect"}


def test_the_residual_network_has_strided_1x1_shortcuts() -> None:
    blocks = [m for m in NETWORKS["residual"]().modules() if isinstance(m, ResidualBlock)]
    shortcuts = [conv for b in blocks for conv in b.shortcut.modules() if isinstance(conv, nn.Conv2d)]
    assert len(blocks) > len(shortcuts) > 0
    assert all(conv.kernel_size == (1, 1) and conv.stride == (2, 2) for conv in shortcuts)


def test_the_mobile_network_has_depthwise_grouped_and_1x1_convolutions() -> None:
    convs = convolutions("mobile")
    assert any(isinstance(module, InvertedResidual) for module in NETWORKS["mobile"]().modules())
    assert any(conv.groups == conv.in_channels == conv.out_channels for conv in convs)
    assert any(1 < conv.groups < conv.in_channels for conv in convs)
    assert any(conv.kernel_size == (1, 1) for conv in convs)


@each_network
def test_every_network_is_batch_normalised(name: str) -> None:
    norms = [module for module in NETWORKS[name]().modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == len(convolutions(name))


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


def test_the_training_command_refuses_an_unknown_network(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--network", "resnet"])
    assert "invalid choice: 'resnet'" in capsys.readouterr().err
