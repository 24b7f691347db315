"""The fuzzer's corpus, as ordinary tests: every input that once was new is read or refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz import target
from tests.fuzz.target import one_input

CORPUS = sorted((Path(__file__).parent / "corpus").iterdir())


def test_every_input_of_the_corpus_is_read_or_refused() -> None:
    assert CORPUS
    for path in CORPUS:
        one_input(path.read_bytes())


@pytest.mark.parametrize("seed", range(4))
def test_inputs_with_a_few_bytes_changed_are_read_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    for path in chance.choices(CORPUS, k=150):
        content = bytearray(path.read_bytes())
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        one_input(bytes(content))


def test_the_target_sees_an_error_that_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr(target, "read_checkpoint", fail)
    with pytest.raises(RecursionError):
        one_input(CORPUS[0].read_bytes())


def test_the_target_sees_an_input_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "SECONDS", 0.0)
    with pytest.raises(AssertionError):
        one_input(CORPUS[0].read_bytes())
