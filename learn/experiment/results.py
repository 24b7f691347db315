"""What an experiment came to: a row for each run, a line for each encoding."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """A run that is over.

    Attributes:
        encoding: An encoding, or a residual network.
        seed: Its seed.
        parameters: Numbers that it trained.
        best_epoch: The first epoch of its highest accuracy on the validation images.
        validation: That accuracy.
        test: The accuracy of that epoch's network on the test images.

    Raises:
        ValueError: An accuracy is no share.
    """

    encoding: str
    seed: int
    parameters: int
    best_epoch: int
    validation: float
    test: float

    def __post_init__(self) -> None:
        if not (0 <= self.validation <= 1 and 0 <= self.test <= 1):
            raise ValueError(f"an accuracy is between 0 and 1; got {self.validation:g} and {self.test:g}")

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Line:
    """An encoding over its seeds.

    Attributes:
        encoding: Its name.
        parameters: Of a network.
        seeds: Runs.
        mean: Mean accuracy on the test images.
        deviation: Its standard deviation over the seeds, or NaN of one run.
        lowest: Of the worst seed.
    """

    encoding: str
    parameters: int
    seeds: int
    mean: float
    deviation: float
    lowest: float


def lines(results: Sequence[Result]) -> list[Line]:
    """A line for each encoding, in the order in which they come."""
    found = []
    for encoding in dict.fromkeys(result.encoding for result in results):
        own = [result for result in results if result.encoding == encoding]
        accuracies = [result.test for result in own]
        deviation = statistics.stdev(accuracies) if len(own) > 1 else math.nan
        mean = statistics.mean(accuracies)
        found.append(Line(encoding, own[0].parameters, len(own), mean, deviation, min(accuracies)))
    return found
