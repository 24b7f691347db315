"""A folder whose texts say something else than ``save_converted`` wrote is loaded or refused."""

from __future__ import annotations

import random

import pytest

from conv2attn.convert import load_converted
from tests.fuzz import folders
from tests.fuzz.folders import one_folder, seeds
from tests.fuzz.texts import mutated

SEEDS = tuple(seeds())


@pytest.mark.parametrize("seed", range(4))
def test_folders_with_a_few_values_changed_are_loaded_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    for number in range(100):
        one_folder(mutated(SEEDS[number % len(SEEDS)], chance))


def test_the_seeds_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(folders, "load_converted", lambda *a, **k: loaded.append(load_converted(*a, **k)))
    for seed in SEEDS:
        one_folder(seed)
    assert len(loaded) == len(SEEDS)


def test_the_fuzzer_sees_an_error_that_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OverflowError

    monkeypatch.setattr(folders, "load_converted", fail)
    with pytest.raises(OverflowError):
        one_folder(SEEDS[0])
