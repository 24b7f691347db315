"""Progress of a comparison: its trainings in the order in which they begin, and the time that those left will take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ..convert.arguments import format_seconds


class Expected(NamedTuple):
    """Forecast of a training: seconds of all its steps, and epochs."""

    seconds: float
    epochs: int


class Progress:
    """Numbers trainings, and estimates the time left from those that are done.

    An epoch takes longer than its steps: it validates and writes files. So the estimate adds to the steps that are left
    what the epochs done took beyond theirs, on average. Where they took less, as on several cores, whose processor time
    was expected, it scales the steps by the ratio seen.

    Args:
        expected: The trainings, in the order in which they begin.
        say: Called with a line when a training begins.
    """

    def __init__(self, expected: Sequence[Expected], say: Callable[[str], object]) -> None:
        self._expected, self._say = list(expected), say
        self._done: list[tuple[Expected, float]] = []  # with the seconds that it took

    @property
    def total(self) -> int:
        """Number of trainings that are known of."""
        return len(self._expected)

    @property
    def expected(self) -> float:
        """Seconds that the steps of all trainings take."""
        return sum(each.seconds for each in self._expected)

    def insert(self, place: int, expected: Sequence[Expected]) -> None:
        """Adds trainings that turned out to be needed, after the first ``place`` ones."""
        self._expected[place:place] = expected

    @contextmanager
    def training(self, place: int, title: str, *, resumed: bool = False) -> Iterator[None]:
        """Announces a training, and times it within the context.

        Args:
            place: Its number, from 1.
            title: Description of the training.
            resumed: Whether it was begun before, so that its time says nothing of others.
        """
        left = self.left(place)
        more = "" if left is None else f", about {format_seconds(left)} left"
        self._say(f"Training {place} of {self.total}{more}: {title}")
        began = time.perf_counter()
        yield
        if not resumed:
            self._done.append((self._expected[place - 1], time.perf_counter() - began))

    def left(self, place: int) -> float | None:
        """Seconds that the trainings from this one on will take; None before one was timed."""
        if not self._done:
            return None
        expected, taken = sum(each.seconds for each, _ in self._done), sum(took for _, took in self._done)
        left = self._expected[place - 1 :]
        seconds = sum(each.seconds for each in left)
        if taken < expected:
            return seconds * taken / expected
        beyond = (taken - expected) / sum(each.epochs for each, _ in self._done)
        return seconds + beyond * sum(each.epochs for each in left)
