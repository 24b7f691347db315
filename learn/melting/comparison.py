"""A comparison, as data: the ways in which a CNN is trained further, and what came of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from ..data.images import ImageData, Loaders
from ..training.evaluate import Loss
from ..training.folders import Record
from ..training.recipe import Recipe


@dataclass(frozen=True)
class Arm:
    """A way in which the CNN is trained further.

    Attributes:
        build: Makes the network from a trained CNN, whose own it may be.
        lr: The rate, where none is chosen.
        longer: Epochs, in multiples of the others'.
        rate_of: The arm whose rate it takes, where none is chosen for it.
    """

    title: str
    build: Callable[[nn.Module], nn.Module]
    lr: float
    longer: float = 1.0
    rate_of: str | None = None


def unchanged(cnn: nn.Module) -> nn.Module:
    """Lets the CNN go on as it is."""
    return cnn


@dataclass(frozen=True)
class Comparison:
    """A comparison: data, CNN and recipes.

    Attributes:
        name: Name of the file that marks the folder.
        what: Description of the data, for people.
        data: Data of a seed; every stage of a run has a seed of its own.
        score: Tests a network: each measure by its name.
        arms: The ways to continue; the others are compared with "cnn".
        start: Recipe of a round of the CNN's training.
        onward: Recipe of the fine-tuning, apart from the rate; its seed is the first one.
        new: Makes an untrained CNN.
        cnn: A trained one, in place of those that ``new`` makes.
        loss: As for ``fit``.
        rates: Learning rates to try where they are chosen.
        controls: More arms, and with them all rates are chosen.
        tables: Titles of tables, and for each its columns: their titles, and the measures that they show.
        rounds: Largest number of rounds of the CNN's training, which ends when it gains no more.
        one_start: Whether all seeds start from one CNN, where training it takes long.
        watched: Inputs with which attention layers are recorded; None records none.
    """

    name: str
    what: str
    data: Callable[[int], ImageData | Loaders]
    score: Callable[[nn.Module], dict[str, float]]
    arms: Mapping[str, Arm]
    start: Recipe
    onward: Recipe
    new: Callable[[], nn.Module]
    cnn: nn.Module | None = None
    loss: Loss | None = None
    rates: tuple[float, ...] = ()
    controls: Mapping[str, Arm] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rounds: int = 1
    one_start: bool = False
    watched: Tensor | None = None


@dataclass(frozen=True)
class ArmResult:
    """Result of an arm for one seed.

    Attributes:
        scores: Scores of the best epoch's network on the test data, by measure.
        validation: Its loss, and its accuracy where there is one; of the start, after its last epoch.
        lr: The learning rate.
        best_epoch: The epoch that the validation data chose; of the start, how many it had.
        parameters: Numbers that are trained.
        gained: For the start, what each round after the first gained, in dB on the validation data.
        layers: Record of each attention layer after the best epoch.
    """

    scores: dict[str, float]
    validation: dict[str, float]
    lr: float
    best_epoch: int
    parameters: int
    gained: tuple[float, ...] = ()
    layers: Record = field(default_factory=dict)


@dataclass(frozen=True)
class Outcomes:
    """Results of all seeds.

    Attributes:
        results: For each seed, what came of each arm and of the CNN at the start.
        networks: The first seed's networks, by arm, with the CNN at the start.
        seconds: Of the processor, for a step of each of these; medians of steps in turn. Empty for images with labels.
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
