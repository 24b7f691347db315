"""CIFAR-10 is read from every form its authors give, and nothing else is."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from conv2attn.convert.errors import CheckpointError
from conv2attn.learn.data.cifar10 import cifar10
from conv2attn.learn.data.images import ImageData
from tests.learn.cifar10 import Batch, as_python_2, as_today, batches, write_archive

FOLDER = "cifar-10-batches-py"
FORMS: dict[str, Callable[..., bytes]] = {"python 2": as_python_2, "python": as_today}


def files(form: str, data: dict[str, Batch]) -> dict[str, bytes]:
    return {f"{FOLDER}/{name}": FORMS[form](*batch) for name, batch in data.items()}


def check(found: ImageData, data: dict[str, Batch]) -> None:
    images, labels = data["test_batch"]
    assert torch.equal(found.test.images, torch.from_numpy(images.reshape(-1, 3, 32, 32)))
    assert found.test.labels.tolist() == labels
    known = torch.cat([found.train.images, found.validation.images]).flatten(1)
    whole = torch.from_numpy(np.concatenate([batch[0] for name, batch in data.items() if name != "test_batch"]))
    assert sorted(map(tuple, known.tolist())) == sorted(map(tuple, whole.tolist()))
    assert (len(found.train.labels), len(found.validation.labels)) == (90, 10)


@pytest.mark.parametrize("form", FORMS)
def test_an_archive_and_its_folders_hold_the_images_that_were_packed(form: str, tmp_path: Path) -> None:
    data = batches()
    check(cifar10(write_archive(tmp_path / "cifar.tar.gz", files(form, data))), data)
    for name, content in files(form, data).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    check(cifar10(tmp_path), data)
    check(cifar10(tmp_path / FOLDER), data)


def test_a_batch_that_is_missing_is_named(tmp_path: Path) -> None:
    contents = files("python", batches())
    gone = list(contents)[2]
    del contents[gone]
    with pytest.raises(CheckpointError, match=f"lacks {Path(gone).name}"):
        cifar10(write_archive(tmp_path / "cifar.tar.gz", contents))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("left", [0, 100, -1])
def test_a_batch_that_is_cut_short_is_named(form: str, left: int, tmp_path: Path) -> None:
    contents = files(form, batches())
    cut = list(contents)[-1]
    contents[cut] = contents[cut][:left]
    with pytest.raises(CheckpointError, match=f"{Path(cut).name} in .*(cut short|0 images)"):
        cifar10(write_archive(tmp_path / "cifar.tar.gz", contents))


def test_labels_of_other_data_are_refused(tmp_path: Path) -> None:
    images, labels = batches()["test_batch"]
    for wrong in ([10, *labels[1:]], labels[1:]):
        contents = files("python", batches()) | {"cifar-10-batches-py/test_batch": as_today(images, wrong)}
        with pytest.raises(CheckpointError, match="must be 0 to 9"):
            cifar10(write_archive(tmp_path / "cifar.tar.gz", contents))


class Evil:
    """What a pickle that runs code holds."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('it ran')",)


@pytest.mark.parametrize(
    "payload", [Evil(), {"data": Evil(), "labels": [1]}, [1, 2], {"data": b"0" * 6144, "labels": [1, 2]}]
)
def test_a_pickle_of_something_else_is_refused_and_not_run(payload: object, tmp_path: Path) -> None:
    contents = files("python", batches()) | {"cifar-10-batches-py/data_batch_1": pickle.dumps(payload)}
    with pytest.raises(CheckpointError, match=r"data_batch_1 in .* is not a batch of CIFAR-10"):
        cifar10(write_archive(tmp_path / "cifar.tar.gz", contents))


def test_a_foreign_file_gets_one_sentence(tmp_path: Path) -> None:
    for name, content in (("text", b"hello"), ("empty", b""), ("gzip", b"\x1f\x8b\x08\x00" + b"0" * 40)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=f"{name} cannot be read"):
            cifar10(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"other\.tar\.gz is not CIFAR-10"):
        cifar10(write_archive(tmp_path / "other.tar.gz", {"readme.txt": b"hello"}))
    with pytest.raises(CheckpointError, match="No such file"):
        cifar10(tmp_path / "nowhere.tar.gz")


@pytest.mark.parametrize("ending", ["", "gz", "bz2", "xz"])
def test_an_archive_may_be_packed_in_any_way_and_a_damaged_one_gets_one_sentence(ending: str, tmp_path: Path) -> None:
    data, path = batches(), tmp_path / "cifar"
    with tarfile.open(path, f"w:{ending}") as archive:  # type: ignore[call-overload]
        for name, content in files("python", data).items():
            entry = tarfile.TarInfo(f"{'long/' * 99}{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    check(cifar10(path), data)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CheckpointError, match="cifar"):
        cifar10(path)
