"""CIFAR-10 is read packed and unpacked, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from conv2attn.convert.errors import CheckpointError
from conv2attn.learn.data.datasets import cifar10
from tests.learn.cifar10 import batches, write_archive

FOLDER = "cifar-10-batches-bin"


def test_an_archive_and_its_folders_hold_the_images_that_were_packed(tmp_path: Path) -> None:
    files = batches()
    archive = write_archive(tmp_path / "cifar.tar.gz", files)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    *known, test = (np.frombuffer(content, np.uint8).reshape(-1, 3073) for content in files.values())
    whole = np.concatenate(known)[:, 1:]
    for path in (archive, tmp_path, tmp_path / FOLDER):
        found = cifar10(path)
        assert torch.equal(found.test.images, torch.from_numpy(test[:, 1:].reshape(-1, 3, 32, 32).copy()))
        assert found.test.labels.tolist() == test[:, 0].tolist()
        assert (len(found.train.labels), len(found.validation.labels)) == (90, 10)
        read = torch.cat([found.train.images, found.validation.images]).flatten(1)
        assert sorted(map(tuple, read.tolist())) == sorted(map(tuple, whole.tolist()))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "lacks data_batch_3.bin"),
        (b"0" * 3000, "data_batch_3.bin in .* is cut short"),
        (b"\x0a" + b"0" * 3072, "has the label 10"),
    ],
)
def test_a_batch_that_is_missing_or_damaged_is_named(content: bytes | None, said: str, tmp_path: Path) -> None:
    files = batches()
    name = f"{FOLDER}/data_batch_3.bin"
    if content is None:
        del files[name]
    else:
        files[name] = content
    with pytest.raises(CheckpointError, match=said):
        cifar10(write_archive(tmp_path / "cifar.tar.gz", files))


def test_a_foreign_file_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"hello")
    with pytest.raises(CheckpointError, match="text cannot be read"):
        cifar10(tmp_path / "text")
