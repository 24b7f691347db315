"""How a network is trained, and on what machine: all that a run depends on beside the network and the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from ...convert.arguments import as_integer
from ...convert.errors import ConversionError

OPTIMIZERS = "adamw", "sgd"
MOST_EPOCHS = 1_000_000  # of one seed, whose orders of images no other seed has
LARGEST_SEED = 2**24 - 1  # with an epoch and a process, what torch's generators take is made of it
LARGEST_RATE, LARGEST_DECAY = 1e30, 1e6  # their product, and ten times it, are numbers in single precision
Groups = list[dict[str, Any]]


@dataclass(frozen=True)
class Recipe:
    """Training recipe of a network.

    Attributes:
        epochs: Times that every image is seen, but for those that do not fill a batch.
        batch_size: Images of a step, over all processes.
        lr: Learning rate at its highest.
        weight_decay: Of the parameters that decay.
        optimizer: "adamw", or "sgd" with momentum 0.9.
        warmup: Share of the steps in which the learning rate rises; from there it falls to 0 as a cosine.
        seed: Of the order of the images and their augmentation; a caller draws weights from it, too.
        augment: Shift images, and mirror them where that means the same.
        batch_statistics: Whether batch normalisation takes each batch's own statistics, and learns them. Without,
            it keeps those it has, so that the network that is trained is the one that is evaluated.
        clip: Largest norm of a step's gradient; None leaves it.
    """

    epochs: int = 10
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.01
    optimizer: str = "adamw"
    warmup: float = 0.05
    seed: int = 0
    augment: bool = True
    batch_statistics: bool = True
    clip: float | None = None

    def __post_init__(self) -> None:
        as_integer(self.epochs, "epochs", least=1, most=MOST_EPOCHS)
        as_integer(self.batch_size, "batch_size", least=1)
        as_integer(self.seed, "seed", least=0, most=LARGEST_SEED)
        if not (0 < self.lr <= LARGEST_RATE and 0 <= self.weight_decay <= LARGEST_DECAY and 0 <= self.warmup < 1):
            raise ConversionError(
                f"lr must be positive and at most {LARGEST_RATE:g}, weight_decay 0 to {LARGEST_DECAY:g}, and warmup a "
                f"share below 1; got {self.lr!r:.20}, {self.weight_decay!r:.20} and {self.warmup!r:.20}"
            )
        if self.optimizer not in OPTIMIZERS:
            raise ConversionError(f"optimizer must be one of {', '.join(OPTIMIZERS)}; got {self.optimizer!r}")

    def make_optimizer(self, groups: Iterable[dict[str, Any]]) -> torch.optim.Optimizer:
        """The optimizer of parameter groups, which may have their own rates and decay."""
        if self.optimizer == "sgd":
            return torch.optim.SGD(list(groups), lr=self.lr, momentum=0.9, weight_decay=self.weight_decay)
        return torch.optim.AdamW(list(groups), lr=self.lr, weight_decay=self.weight_decay)

    def make_schedule(self, optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        """The course of the learning rate over so many steps: it rises linearly, and falls as a cosine."""
        return torch.optim.lr_scheduler.LambdaLR(optimizer, partial(self._factor, steps=steps))

    def _factor(self, step: int, *, steps: int) -> float:
        """The share of the highest rate that a step has."""
        rise = round(self.warmup * steps)
        if step < rise:
            return (step + 1) / (rise + 1)
        return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (step - rise) / max(1, steps - rise)))


@dataclass(frozen=True)
class Machine:
    """Where a network is trained; each is passed to Lightning's ``Trainer``.

    Attributes:
        accelerator: "auto", "cpu", "gpu", ...
        devices: How many, or "auto".
        strategy: "auto", "ddp", ...
        precision: "32-true", "bf16-mixed", ...
    """

    accelerator: str = "auto"
    devices: int | str = 1
    strategy: str = "auto"
    precision: str = "32-true"


@dataclass(frozen=True)
class Session:
    """How runs are made, whatever is trained.

    Attributes:
        machine: Where; one process by default.
        resume: Continue interrupted runs, which are refused otherwise.
        progress: Show bars on standard error.
        say: Called with a line when a run begins or ends, and with warnings.
    """

    machine: Machine = field(default_factory=Machine)
    resume: bool = False
    progress: bool = False
    say: Callable[[str], object] = lambda _: None


ALONE = Session()
"""One process, from the beginning, in silence."""


def plain_groups(
    network: nn.Module, *, weight_decay: float, apart: Iterable[nn.Parameter] = (), apart_lr: float | None = None
) -> Groups:
    """Weights of at least two dimensions, which decay; biases and scales, which do not; parameters with a rate apart.

    Parameters that need no gradient are in no group.
    """
    places = {id(parameter) for parameter in apart}
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    still = [parameter for parameter in trained if id(parameter) not in places]
    groups: Groups = [
        {"params": [each for each in still if each.ndim > 1], "weight_decay": weight_decay},
        {"params": [each for each in still if each.ndim <= 1], "weight_decay": 0.0},
        {"params": [each for each in trained if id(each) in places], "weight_decay": 0.0, "lr": apart_lr},
    ]
    return [group for group in groups if group["params"]]
