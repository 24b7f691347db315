"""Data: what a text means, that its parts share no image, and that bad data gets one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import CheckpointError, ConversionError, OptionError, OutputError
from conv2attn.learn.data.datasets import load_data
from conv2attn.learn.data.images import ImageData
from conv2attn.learn.training.recipe import DRAWS, augmented
from tests.learn.cifar10 import batches, write_archive


def check_parts(data: ImageData) -> None:
    """Every part has every class, and no image is in two parts."""
    seen = [set(map(bytes, split.images.flatten(1).numpy())) for split in data.parts]
    assert all(seen[i].isdisjoint(seen[j]) for i in range(3) for j in range(i))
    for split in data.parts:
        assert split.labels.unique().tolist() == list(range(len(data.classes)))
        numbers = split.numbers()
        assert numbers.dtype == torch.float32
        assert numbers.shape == (len(split.labels), data.channels, *data.size)


def test_digits_are_the_ones_that_scikit_learn_ships() -> None:
    data = load_data("digits")
    check_parts(data)
    assert sum(len(split.labels) for split in data.parts) == 1797
    assert (data.channels, data.size, len(data.classes)) == (1, Size(8, 8), 10)
    assert (float(data.train.images.min()), float(data.train.images.max())) == (-1, 1)
    assert torch.equal(load_data("digits").train.images, data.train.images)
    assert torch.equal(load_data("digits", channels=3).test.images, data.test.images.expand(-1, 3, -1, -1))


def test_drawn_images_are_new_to_the_networks_that_were_trained_on_drawn_images() -> None:
    data = load_data("drawn")
    check_parts(data)
    assert (data.channels, data.size, len(data.classes)) == (3, Size(24, 24), 8)
    assert load_data("drawn:32").size == load_data("digits:32").size == Size(32, 32)


def write_pictures(folder: Path, *, count: int = 10, size: tuple[int, int] = (6, 8)) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    found: dict[str, list[np.ndarray]] = {}
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            pixels = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.png")
            found.setdefault(name, []).append(pixels)
    return found


def test_a_folder_s_pictures_are_divided_class_by_class(tmp_path: Path) -> None:
    pixels = write_pictures(tmp_path)
    data, named = load_data(str(tmp_path)), load_data(f"folder:{tmp_path}")
    check_parts(data)
    assert (data.name, data.classes) == ("folder", ("cats", "dogs"))
    assert torch.equal(data.train.images, named.train.images)
    assert [len(split.labels) for split in data.parts] == [14, 2, 4]
    for split in data.parts:
        for image, label in zip(split.images.permute(0, 2, 3, 1).numpy(), split.labels, strict=True):
            assert any((image == one).all() for one in pixels[data.classes[label]])
    assert load_data(f"folder:{tmp_path}", size=Size(4, 5), channels=1).train.images.shape == (14, 1, 4, 5)


def test_a_folder_that_is_something_else_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    write_pictures(tmp_path / "few", count=2)
    write_pictures(tmp_path / "bad")
    (tmp_path / "bad" / "dogs" / "3.png").write_bytes(b"not a picture")
    for name, said in (
        ("nowhere", "cannot be read"),
        ("empty", "at least two classes; it holds 0"),
        ("few", "fewer than three pictures: cats, dogs"),
        ("bad", r"3\.png"),
    ):
        with pytest.raises(CheckpointError, match=said):
            load_data(f"folder:{tmp_path / name}")


@pytest.mark.parametrize("out", ["data/run", "link/run"])
def test_what_is_made_with_a_folder_s_pictures_does_not_become_one_of_its_classes(out: str, tmp_path: Path) -> None:
    write_pictures(tmp_path / "data")
    (tmp_path / "link").symlink_to("data")
    for place in (tmp_path / "data", tmp_path / "link"):
        with pytest.raises(OutputError, match=r"inside .*, and would be read as part of it"):
            load_data(f"folder:{place}", out=tmp_path / out)
    assert load_data(f"folder:{tmp_path / 'data'}", out=tmp_path / "database").classes == ("cats", "dogs")


@pytest.mark.parametrize("text", ["digit", "digits:x", "folder:", "drawn:8"])
def test_a_text_that_names_no_data_is_refused(text: str) -> None:
    with pytest.raises(
        OptionError, match="data must be digits, digits:SIDE, drawn, drawn:SIDE, cifar10:PATH or folder:PATH"
    ):
        load_data(text)


def test_images_are_not_bent_to_a_network(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="takes 1 channels; the images of drawn have 3"):
        load_data("drawn", channels=1)
    with pytest.raises(OptionError, match=r"got the size 16x16 for digits, and data digits:16 has it$"):
        load_data("digits", size=Size(16, 16))
    with pytest.raises(OptionError, match=r"got the size 8x9 for drawn$"):
        load_data("drawn", size=Size(8, 9))
    archive = write_archive(tmp_path / "cifar.tar.gz", batches())
    assert load_data(f"cifar10:{archive}", channels=3).size == Size(32, 32)


def test_augmented_images_are_shifted_and_mirrored() -> None:
    image = torch.arange(16 * 24.0).view(1, 1, 16, 24)
    middle = torch.tensor([[0.5, 0.5, 0.9]])
    assert torch.equal(augmented(image, middle, flips=True), image)
    assert torch.equal(augmented(image, torch.tensor([[0.5, 0.5, 0.1]]), flips=True), image.flip(3))
    assert torch.equal(augmented(image, torch.tensor([[0.5, 0.5, 0.1]]), flips=False), image)
    moved = augmented(image, torch.tensor([[0.0, 0.999, 0.9]]), flips=False)
    assert torch.equal(moved[..., 2:, :-3], image[..., :-2, 3:])
    assert middle.shape[1] == DRAWS
