"""An example of melting, as data: what is cleaned, by which CNN, how it goes on, and what came of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from ..data.loaders import Pairs
from ..training.recipe import Recipe
from .batches import Draw


@dataclass(frozen=True)
class Arm:
    """A way in which the CNN goes on.

    Attributes:
        title: In a table.
        build: Makes the network from a trained denoiser, whose own it may be.
        lr: The rate that the runs of ``RATE_SEED`` chose.
        longer: Steps, in multiples of the others'.
        scratch: Whether it begins with random weights, not with the trained ones.
        rate_of: The arm whose rate it takes, where none is chosen for it.
    """

    title: str
    build: Callable[[nn.Module], nn.Module]
    lr: float
    longer: float = 1.0
    scratch: bool = False
    rate_of: str | None = None


@dataclass(frozen=True)
class Example:
    """What is cleaned, by which CNN, and how it goes on.

    Attributes:
        name: On the command line.
        new: Makes an untrained denoiser.
        draw: Draws noisy images and clean ones to learn from.
        validation: Those to choose with.
        score: Tests a network: each measure by its name.
        tables: Titles of tables, and for each its columns: their titles, and the measures that they show.
        arms: The ways to go on; the first, "cnn", is what others are held against.
        controls: More ways.
        start: How the denoiser is trained, a round.
        onward: How it goes on; an arm has its own rate and epochs.
        batch: Images of a step.
        steps: Batches of an epoch.
        rates: That are tried where they are swept.
        rounds: How often the denoiser's training begins anew where it was, at most; it ends when it gains no more.
        one_start: Whether all seeds go on from the denoiser of ``RATE_SEED``, where training one takes long.
    """

    name: str
    new: Callable[[], nn.Module]
    draw: Draw
    validation: Callable[[], Pairs]
    score: Callable[[nn.Module], dict[str, float]]
    tables: dict[str, dict[str, str]]
    arms: dict[str, Arm]
    controls: dict[str, Arm]
    start: Recipe
    onward: Recipe
    batch: int
    steps: int
    rates: tuple[float, ...]
    rounds: int = 1
    one_start: bool = False


@dataclass(frozen=True)
class ArmResult:
    """What came of an arm for one seed.

    Attributes:
        scores: Of the best epoch's network, by what is measured.
        lr: The learning rate.
        best_epoch: The epoch that the validation images chose.
        parameters: Numbers that are trained.
        gained: For the start, what each round after the first gained, in dB on the validation images.
    """

    scores: dict[str, float]
    lr: float
    best_epoch: int
    parameters: int
    gained: tuple[float, ...] = ()


@dataclass(frozen=True)
class Outcomes:
    """What came of all seeds.

    Attributes:
        results: For each seed, what came of each arm and of the CNN at the start.
        networks: The first seed's networks, by arm, with the CNN at the start.
        seconds: Of the processor, for a step of each of these; medians of steps in turn.
    """

    results: dict[int, dict[str, ArmResult]]
    networks: dict[str, nn.Module]
    seconds: dict[str, float]

    def gains(self, arm: str, score: str) -> list[float]:
        """A score of an arm minus that of the CNN that went on, for each seed."""
        return [found[arm].scores[score] - found["cnn"].scores[score] for found in self.results.values()]
