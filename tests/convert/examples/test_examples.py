"""The example networks are what they claim: drawn data, really trained, whole, and varied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from benchmarks.train_examples import train, write_network
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.examples.images import HELD_OUT_SEED, draw_images
from conv2attn.convert.examples.networks import NETWORKS, accuracy, load_example

each_network = pytest.mark.parametrize("name", NETWORKS)


def test_the_same_seed_draws_the_same_images() -> None:
    first, second, other = (draw_images(24, seed=seed) for seed in (7, 7, 8))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])
    assert not torch.equal(first[0], other[0])


@each_network
def test_a_shipped_network_classifies_nine_in_ten_held_out_images(name: str) -> None:
    assert accuracy(load_example(name), *draw_images(1000, seed=HELD_OUT_SEED)) >= 0.9


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def take_another_network(path: Path) -> None:
    shutil.copyfile(str(files("conv2attn.convert.examples") / "weights" / "mobile.safetensors"), path)


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (cut, "does not fit the network"),
    (take_another_network, "does not fit the network"),
    (lambda path: path.unlink(), "cannot read plain"),
]


@pytest.mark.parametrize(("damage", "reason"), DAMAGES)
def test_weights_that_are_not_the_network_s_are_refused(
    damage: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "plain.safetensors"
    shutil.copyfile(str(files("conv2attn.convert.examples") / "weights" / "plain.safetensors"), path)
    damage(path)
    with pytest.raises(CheckpointError, match=reason):
        load_example("plain", folder=tmp_path)


def test_training_is_deterministic_leaves_the_random_state_alone_and_writes_what_it_trained(
    tmp_path: Path,
) -> None:
    before = torch.get_rng_state()
    first, second = (train("plain", epochs=1, images_per_epoch=16, batch_size=8) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    write_network(first, "plain", folder=tmp_path)
    loaded = load_example("plain", folder=tmp_path).state_dict()
    assert all(torch.equal(loaded[key], tensor) for key, tensor in second.state_dict().items())
