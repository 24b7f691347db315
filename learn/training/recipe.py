"""Everything that a training depends on beside the network: recipe, machine, batches, evaluation.

A seed and the epoch decide which images make each batch, in which order, and how they are shifted. Every process draws
the same order, and takes every n-th image of each batch, n being the number of processes. So the batches of n processes
together are those of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from ...convert.arguments import as_integer
from ...convert.errors import ConversionError
from ...convert.inputs import class_scores
from ...convert.subclasses.computed import in_eval_mode
from ..data.images import ImageData, Pairs, Split

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
        batch_size: Global batch size.
        lr: Peak learning rate.
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
        """The course of the learning rate over this number of steps: it rises linearly, and falls as a cosine."""
        return torch.optim.lr_scheduler.LambdaLR(optimizer, partial(self._factor, steps=steps))

    def _factor(self, step: int, *, steps: int) -> float:
        """The share of the peak rate that a step has."""
        rise = round(self.warmup * steps)
        if step < rise:
            return (step + 1) / (rise + 1)
        return 0.5 + 0.5 * math.cos(math.pi * min(1.0, (step - rise) / max(1, steps - rise)))


@dataclass(frozen=True)
class Machine:
    """Where a network is trained; each is passed to Lightning's ``Trainer``.

    Attributes:
        accelerator: "auto", "cpu", "gpu", ...
        devices: How many. Several are trained on by a process each.
        precision: "32-true", "bf16-mixed", ...
    """

    accelerator: str = "auto"
    devices: int = 1
    precision: str = "32-true"

    @property
    def device(self) -> torch.device:
        """Where networks are run beside their training: a GPU where one is trained on."""
        is_gpu = self.accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
        return torch.device("cuda" if is_gpu else "cpu")


def silent(_: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Session:
    """How runs are made.

    Attributes:
        machine: Where; one process by default.
        resume: Continue interrupted runs, which are refused otherwise.
        progress: Show bars on standard error.
        say: Called with a line when a run begins or ends, and with warnings.
        jobs: Runs of a comparison at a time, each in another process; with several, data, scores, networks and
            ``say`` must be picklable.
    """

    machine: Machine = field(default_factory=Machine)
    resume: bool = False
    progress: bool = False
    say: Callable[[str], object] = silent
    jobs: int = 1


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


DRAWS = 3  # numbers from 0 to 1 for each image: shifts along rows and columns, mirror
_SHIFT = 8  # an image is shifted by up to this part of its sides
Key = tuple[Tensor, Tensor | None]


class Order(Sampler[Key]):
    """For each batch of an epoch, the indices of a process's images and what their augmentation draws."""

    def __init__(self, count: int, recipe: Recipe, *, process: int = 0, processes: int = 1) -> None:
        if recipe.batch_size % processes:
            raise ConversionError(
                f"batches of {recipe.batch_size} images cannot be shared equally by {processes} processes"
            )
        self._count, self._recipe, self._process, self._processes = count, recipe, process, processes
        self._size = min(recipe.batch_size, count // processes * processes)
        if not self._size:
            raise ConversionError(f"{count} images are too few for {processes} processes")
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; Lightning calls it."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._count // self._size

    def __iter__(self) -> Iterator[Key]:
        generator = torch.Generator().manual_seed(self._recipe.seed * MOST_EPOCHS + self._epoch)
        order = torch.randperm(self._count, generator=generator, device="cpu")
        draws = torch.rand(self._count, DRAWS, generator=generator, dtype=torch.float32, device="cpu")
        for batch in range(len(self)):
            places = slice(batch * self._size + self._process, (batch + 1) * self._size, self._processes)
            yield order[places], draws[places] if self._recipe.augment else None


class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """The images of a key, and their labels."""

    def __init__(self, data: ImageData) -> None:
        self._data = data

    def __getitem__(self, key: Key) -> tuple[Tensor, Tensor]:
        indices, draws = key
        taken = self._data.train.taken(indices)
        images = taken.numbers()
        return images if draws is None else augmented(images, draws, flips=self._data.flips), taken.labels


def batches(
    data: ImageData, recipe: Recipe, *, process: int = 0, processes: int = 1
) -> DataLoader[tuple[Tensor, Tensor]]:
    """A loader of a process's training batches, for Lightning.

    Raises:
        ConversionError: The processes cannot share the batches equally.
    """
    order = Order(len(data.train.labels), recipe, process=process, processes=processes)
    return DataLoader(_Batches(data), sampler=order, batch_size=None)


def augmented(images: Tensor, draws: Tensor, *, flips: bool) -> Tensor:
    """Images [batch, channels, rows, columns], each shifted by up to an eighth of its sides, its border repeated.

    With ``flips`` half of them are mirrored. ``draws``, [batch, ``DRAWS``] from 0 to 1, decide.
    """
    rows, columns = images.shape[2:]
    most = rows // _SHIFT, columns // _SHIFT
    padded = F.pad(images, (most[1], most[1], most[0], most[0]), mode="replicate")
    shifts = [(draws[:, axis] * (2 * far + 1)).long().clamp(max=2 * far) for axis, far in enumerate(most)]
    at_rows = shifts[0][:, None] + torch.arange(rows, device="cpu")
    at_columns = shifts[1][:, None] + torch.arange(columns, device="cpu")
    if flips:
        mirrored = (draws[:, 2] < 0.5)[:, None]
        at_columns = torch.where(mirrored, at_columns.flip(1), at_columns)
    batch = torch.arange(len(images), device="cpu")[:, None, None]
    taken = padded.permute(0, 2, 3, 1)[batch, at_rows[:, :, None], at_columns[:, None, :]]
    return taken.permute(0, 3, 1, 2).contiguous()


_BATCH = 32  # content attention over all pairs takes memory in proportion
Loss = Callable[[Any, Tensor], Tensor]
"""From what a network returns and what that is to be, to one number, the mean over a batch."""


def cross_entropy(output: Any, labels: Tensor) -> Tensor:
    """The mean cross entropy of class scores: the loss, where none is given."""
    return F.cross_entropy(class_scores(output), labels)


@torch.no_grad()
def evaluate(network: nn.Module, part: Split | Pairs, loss: Loss | None = None) -> dict[str, float]:
    """Runs a network in eval mode on all images, in the precision and on the device of its weights.

    Args:
        network: The network.
        part: Images with labels, or batches of inputs and targets.
        loss: Of an output and its target; None means the cross entropy of class scores.

    Returns:
        The mean "loss"; without ``loss`` also "accuracy", the share of images whose class scores highest.
    """
    weight = next(network.parameters())
    total, right, count = 0.0, 0, 0
    if isinstance(part, Split):
        part = ((batch.numbers(), batch.labels) for batch in part.batches(_BATCH))
    with in_eval_mode(network):
        for inputs, target in part:
            target = target.to(weight.device)
            output = network(inputs.to(weight))
            if loss is None:
                output = class_scores(output).float()
                right += int((output.argmax(1) == target).sum())
            total += float((loss or cross_entropy)(output, target)) * len(target)
            count += len(target)
    return {"loss": total / count} | ({"accuracy": right / count} if loss is None else {})


def accuracy(network: nn.Module, split: Split) -> float:
    """The share of images whose class has the highest score; the network is run as ``evaluate`` does."""
    return evaluate(network, split)["accuracy"]
