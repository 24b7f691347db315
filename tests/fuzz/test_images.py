"""An image file that says something else than a library wrote is read or refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from torch import Tensor

from conv2attn.proofs.evidence import image_folder
from tests.fuzz import images
from tests.fuzz.images import ENDINGS, one_image, seeds

SEEDS = tuple(seeds())


def test_the_seeds_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Tensor] = []

    def reading(folder: Path, *, channels: int) -> Tensor:
        read.append(image_folder.read_images(folder, channels=channels))
        return read[-1]

    monkeypatch.setattr(images, "read_images", reading)
    for seed in SEEDS:
        one_image(seed)
    assert len(read) == len(SEEDS) > len(ENDINGS)


@pytest.mark.parametrize("seed", range(4))
def test_files_with_a_few_bytes_changed_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    for number in range(200):
        data = bytearray(SEEDS[number % len(SEEDS)])
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(1, len(data))] = chance.randrange(256)
        one_image(bytes(data))


def test_the_fuzzer_sees_an_error_that_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OverflowError

    monkeypatch.setattr(images, "read_images", fail)
    with pytest.raises(OverflowError):
        one_image(SEEDS[0])
