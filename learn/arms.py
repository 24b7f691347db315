"""Records of a comparison: the ways to train a CNN further, their scores, and the results of all seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import nn

from .data.images import ImageData, Loaders
from .training.recipe import Loss, Recipe


@dataclass(frozen=True)
class Arm:
    """A way in which the CNN is trained further.

    Attributes:
        build: Makes the network from a trained CNN, whose own it may be.
        lr: The rate, where none is chosen.
        rate_of: The arm whose rate it takes, where none is chosen for it.
        as_long_as: The arm whose time it takes, by more epochs; None takes the recipe's epochs.
    """

    title: str
    build: Callable[[nn.Module], nn.Module]
    lr: float
    rate_of: str | None = None
    as_long_as: str | None = None


@dataclass(frozen=True)
class Measure:
    """A score as tables and sentences have it; higher is better.

    Attributes:
        name: Its key among the scores.
        title: Heading of its columns.
        unit: Unit of differences.
        factor: Factor by which numbers are multiplied to be shown.
        digits: Number of digits behind the point.
    """

    name: str
    title: str
    unit: str
    factor: float = 1.0
    digits: int = 2


ACCURACY = "accuracy"
STAGE = 1000
"""From the seed of a stage of a run to that of the next."""


def unchanged(cnn: nn.Module) -> nn.Module:
    """Lets the CNN go on as it is."""
    return cnn


@dataclass(frozen=True)
class Comparison:
    """A comparison: data, CNN and recipes.

    Attributes:
        name: Name of the file that marks the folder.
        what: Description of the data, for people.
        data: Data of a seed; the stages of a run have seeds ``STAGE`` apart.
        score: Tests a network of a seed: each score by its name.
        arms: The ways to continue; the others are compared with "cnn".
        start: Recipe of a round of the CNN's training.
        onward: Recipe of the fine-tuning, apart from the rate; its seed is the first one.
        new: Makes an untrained CNN.
        cnn: A trained one, in place of those that ``new`` makes.
        loss: As for ``fit``.
        rates: Learning rates to choose from for each arm; with fewer than two, arms keep theirs.
        measures: The scores that are shown; the first decides.
        rounds: Largest number of rounds of the CNN's training, which ends when it gains no more.
        one_start: Whether all seeds start from one CNN, where training it takes long.
        follows_ends: Whether a chosen rate at an end of the list is followed further, until a rate within it is best.
    """

    name: str
    what: str
    data: Callable[[int], ImageData | Loaders]
    score: Callable[[nn.Module, int], dict[str, float]]
    arms: Mapping[str, Arm]
    start: Recipe
    onward: Recipe
    new: Callable[[], nn.Module]
    cnn: nn.Module | None = None
    loss: Loss | None = None
    rates: tuple[float, ...] = ()
    measures: tuple[Measure, ...] = ()
    rounds: int = 1
    one_start: bool = False
    follows_ends: bool = False


@dataclass(frozen=True)
class ArmResult:
    """Result of an arm for one seed.

    Attributes:
        scores: Scores of the best epoch's network on the test data, by measure.
        validation: Its loss, and its accuracy where there is one; of the start, after its last epoch.
        lr: The learning rate.
        best_epoch: The epoch that the validation data chose; of the start, how many it had.
        parameters: Numbers that are trained.
        epochs: Number of epochs; 0 for the start.
        steps: Number of steps of these; 0 for the start.
        is_improving: Whether the last epoch was the best on the validation data, and better than before training.
        gained: For the start, what each round after the first gained, in dB on the validation data.
        begun: Scores before the first step, on the test data.
    """

    scores: dict[str, float]
    validation: dict[str, float]
    lr: float
    best_epoch: int
    parameters: int
    epochs: int = 0
    steps: int = 0
    is_improving: bool = False
    gained: tuple[float, ...] = ()
    begun: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcomes:
    """Results of all seeds.

    Attributes:
        results: For each seed, what came of each arm and of the CNN at the start.
        networks: The first seed's networks, by arm, with the CNN at the start.
        seconds: Seconds of a step of each arm, as ``step_seconds`` has them.
    """

    results: dict[int, dict[str, ArmResult]]
    networks: dict[str, nn.Module]
    seconds: dict[str, float]

    def gains(self, arm: str, score: str) -> list[float]:
        """A score of an arm minus that of the CNN that went on, for each seed."""
        return [found[arm].scores[score] - found["cnn"].scores[score] for found in self.results.values()]

    def to_json(self) -> dict[str, Any]:
        """All results as plain data."""
        seeds = {seed: {name: asdict(each) for name, each in found.items()} for seed, found in self.results.items()}
        return {"seeds": {str(seed): found for seed, found in seeds.items()}, "seconds": self.seconds}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Outcomes:
        """Results from ``to_json``'s data, without networks."""
        results = {
            int(seed): {name: ArmResult(**{**each, "gained": tuple(each["gained"])}) for name, each in found.items()}
            for seed, found in data["seeds"].items()
        }
        return cls(results, {}, data["seconds"])
