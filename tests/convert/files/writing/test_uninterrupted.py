"""Signals that end a run are heard after the steps that they must not leave halfway, and then as always."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from conv2attn.convert.files.writing.uninterrupted import uninterrupted

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that a run's own handlers have heard."""
    found: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, lambda number, _: found.append(number))
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_is_heard_at_the_end_and_at_once_in_between(number: int, heard: list[int]) -> None:
    own = signal.getsignal(number)
    with uninterrupted() as interruptible:
        assert signal.getsignal(number) is not own
        signal.raise_signal(number)
        assert heard == []
        with interruptible():
            assert heard == [number]
            assert signal.getsignal(number) is own
            signal.raise_signal(number)
            assert heard == [number] * 2
        signal.raise_signal(number)
        assert heard == [number] * 2
    assert heard == [number] * 3
    assert signal.getsignal(number) is own


def test_every_signal_that_came_is_heard(heard: list[int]) -> None:
    with uninterrupted():
        for number in ENDING:
            signal.raise_signal(number)
        assert heard == []
    assert sorted(heard) == sorted(ENDING)


def test_a_handler_that_ends_the_run_does_so_and_all_handlers_are_back(heard: list[int]) -> None:
    def end(number: int, frame: object) -> None:
        raise SystemExit(number)

    own = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGTERM, end)
    steps = []

    def run() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGTERM)
            steps.append("done")

    with pytest.raises(SystemExit):
        run()
    assert steps == ["done"]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == (end, own)


def test_in_another_thread_nothing_is_done(heard: list[int]) -> None:
    own, found = [signal.getsignal(number) for number in ENDING], list[object]()

    def run() -> None:
        with uninterrupted() as interruptible, interruptible():
            found.extend(signal.getsignal(number) for number in ENDING)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == own


def test_handlers_that_python_did_not_set_are_left_alone(heard: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: None if number == signal.SIGHUP else signal.SIG_DFL)
    with uninterrupted() as interruptible, interruptible():
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
