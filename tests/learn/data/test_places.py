"""Images are found in a folder itself, in a folder for each class, and in such folders for train, val and test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.preprocessing import Normalization, Preprocessing
from conv2attn.learn.data.datasets import Places, find_places, folder
from conv2attn.learn.data.images import ImageData


def put(*names: str, size: tuple[int, int] = (8, 6)) -> None:
    """Pictures with these paths."""
    for number, name in enumerate(names):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((*size, 3), 10 * number, dtype=np.uint8)).save(name)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def found() -> dict[str, Places]:
    return find_places(Path(), (".png",))


def test_images_in_the_folder_itself_have_no_labels() -> None:
    put("b.png", "a.png", "sub/c.png")
    Path("notes.txt").touch()
    assert found() == {"": Places((Path("a.png"), Path("b.png")))}


def test_a_folder_for_each_class_gives_labels_and_empty_or_hidden_ones_do_not() -> None:
    put("dog/a.png", "cat/b.png", "cat/a.png", ".cache/x.png")
    Path("empty").mkdir()
    files = (Path("cat/a.png"), Path("cat/b.png"), Path("dog/a.png"))
    assert found() == {"": Places(files, (0, 0, 1), ("cat", "dog"))}


@pytest.mark.parametrize("validation", ["val", "valid", "validation"])
def test_train_val_and_test_are_parts(validation: str) -> None:
    put("train/cat/a.png", "train/dog/b.png", f"{validation}/cat/c.png", f"{validation}/dog/d.png", "test/cat/e.png")
    with pytest.raises(CheckpointError, match=f"has other classes in train, {validation}, test"):
        found()
    put("test/dog/f.png")
    parts = found()
    assert list(parts) == ["train", "validation", "test"]
    assert {places.classes for places in parts.values()} == {("cat", "dog")}


def counts(data: ImageData) -> list[int]:
    return [len(part.labels) for part in data.parts]


def test_parts_that_are_there_are_kept_and_the_others_are_divided_from_train() -> None:
    put(*(f"train/{kind}/{n}.png" for kind in ("cat", "dog") for n in range(10)))
    put(*(f"val/{kind}/{n}.png" for kind in ("cat", "dog") for n in range(2)))
    assert counts(folder(Path())) == [16, 4, 4]
    put(*(f"test/{kind}/{n}.png" for kind in ("cat", "dog") for n in range(3)))
    assert counts(folder(Path())) == [20, 4, 6]


def test_a_network_s_preprocessing_scales_pictures() -> None:
    put(*(f"{kind}/{n}.png" for kind in ("cat", "dog") for n in range(3)), size=(40, 30))
    preprocessing = Preprocessing(Normalization((0.5,), (0.5,)), size=Size(10, 8))
    data = folder(Path(), preprocessing=preprocessing)
    assert (data.size, data.channels) == (Size(10, 8), 3)
    assert folder(Path(), size=Size(5, 4), preprocessing=preprocessing).size == Size(5, 4)


def test_pictures_of_a_preprocessing_without_a_size_become_as_large_as_the_first() -> None:
    put(*(f"cat/{n}.png" for n in range(3)), size=(40, 30))
    put(*(f"dog/{n}.png" for n in range(3)), size=(20, 50))
    found = folder(Path(), preprocessing=Preprocessing(Normalization((0.5,), (0.5,))))
    assert found.size == folder(Path()).size
