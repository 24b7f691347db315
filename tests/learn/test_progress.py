"""Trainings are numbered as they begin, and the time left follows from those that are done."""

from __future__ import annotations

import time

import pytest

from conv2attn.learn.progress import Expected, Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that shows the one number in the list."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def run(progress: Progress, clock: list[float], place: int, taken: float, *, resumed: bool = False) -> None:
    with progress.training(place, "one", resumed=resumed):
        clock[0] += taken


def test_the_time_left_has_what_epochs_take_beyond_their_steps(clock: list[float]) -> None:
    said: list[str] = []
    progress = Progress([Expected(1.0, 2), Expected(2.0, 4), Expected(3.0, 1)], said.append)
    run(progress, clock, 1, 0.01, resumed=True)
    assert progress.left(2) is None
    run(progress, clock, 1, 11.0)
    assert progress.left(2) == 2 + 3 + 5 * 5  # five epochs, each five seconds beyond its steps
    progress.insert(1, [Expected(4.0, 1)])
    assert progress.left(2) == 4 + 2 + 3 + 6 * 5
    run(progress, clock, 2, 9.0)
    assert said == [
        "Training 1 of 3: one",
        "Training 1 of 3: one",
        "Training 2 of 4, about 39 seconds left: one",
    ]


def test_steps_that_several_cores_share_take_less(clock: list[float]) -> None:
    progress = Progress([Expected(8.0, 1), Expected(8.0, 1), Expected(16.0, 3)], lambda _: None)
    run(progress, clock, 1, 2.0)
    assert progress.left(2) == pytest.approx(24 / 4)


def test_a_training_that_fails_says_nothing_of_others(clock: list[float]) -> None:
    progress = Progress([Expected(1.0, 1)] * 2, lambda _: None)
    with pytest.raises(ValueError, match="diverged"), progress.training(1, "one"):
        raise ValueError("diverged")
    assert progress.left(2) is None
