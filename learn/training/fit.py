"""Training a network: the one way in, which needs Lightning only when it is called.

    trained = fit(network, load_data("digits"), Recipe(epochs=10), Path("run"))
    evaluate(trained.network, data.test)

The folder then holds ``records.json``, an entry for each epoch, ``best.ckpt``, ``last.ckpt`` and ``tensorboard/``. A
killed run continues with ``session=Session(resume=True)``.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...convert.errors import CheckpointError, ConversionError, ToolError, first_line, importing, refusing
from ...convert.inputs import class_scores
from ..data.images import ImageData, Loaders
from .folders import Record, Recorder, begin_or_resume, nothing_more
from .recipe import ALONE, Groups, Loss, Machine, Order, Recipe, Session, cross_entropy, plain_groups

RUN = "run.json"
PACKAGES = {"lightning": "Lightning", "tensorboard": "TensorBoard", "sklearn": "scikit-learn"}
"""Packages of the extra ``learn`` without which some training ends, by the names by which they are imported."""
_TRAINING = "lightning", "tensorboard"
_NAMED = 8  # classes that an error lists
_WANTED = (
    "melting here takes a score for each class; for another loss, conv2attn.melt(network) gives the attention to train"
)


@dataclass(frozen=True)
class Trained:
    """A network that was trained.

    Attributes:
        network: With the weights of its best epoch on the validation images, in eval mode, on the CPU.
        best_epoch: The first epoch of the highest accuracy on these, or of the lowest loss where one was given; 1 is
            the first that was trained.
        records: What was recorded before training and after each epoch.
    """

    network: nn.Module
    best_epoch: int
    records: tuple[Record, ...]


def fit(
    network: nn.Module,
    data: ImageData | Loaders,
    recipe: Recipe,
    folder: Path,
    *,
    loss: Loss | None = None,
    groups: Callable[[nn.Module], Groups] | None = None,
    recorder: Recorder = nothing_more,
    session: Session = ALONE,
) -> Trained:
    """Trains a copy of a network; the same arguments give the same weights on the same machine.

    Args:
        network: From images [batch, channels, rows, columns] to class scores [batch, classes], or to what ``loss``
            takes. Of more scores than the data have classes, the first are theirs.
        data: The images; its test images are not looked at. Or the caller's batches, for which the recipe's batch
            size and augmentation mean nothing.
        recipe: How it is trained.
        folder: Where the run is kept; its parent must exist.
        loss: Of an output and its target, such as ``F.mse_loss``; for several processes it must be picklable. None
            means the cross entropy of class scores, and records accuracy, too.
        groups: Makes the optimizer's parameter groups; ``plain_groups`` by default.
        recorder: What else is recorded of the network before training and after each epoch.
        session: Where the run is made, and whether an interrupted one is continued.

    Raises:
        ToolError: Lightning or TensorBoard is not installed.
        LibraryError: One of them cannot be imported.
        OptionError: Lightning cannot train so on this machine.
        RunExistsError: The folder holds a run, which is not to be resumed.
        OutputError: The folder holds something else, or cannot be written.
        ConversionError: The network does not fit the data, the folder holds another run, or a loss is not
            finite.
    """
    network = copy.deepcopy(network)
    check_run(network, data, recipe, machine=session.machine, loss=loss)
    from .loop import Training, run

    described = {"recipe": asdict(recipe), "data": _described(data), "network": _fingerprint(network)}
    begin_or_resume(folder / RUN, described, resume=session.resume, what="run")
    made = groups or partial(plain_groups, weight_decay=recipe.weight_decay)
    training = Training(network, data, recipe, loss, made, recorder, folder)
    run(training, folder, recipe, session)
    return trained_in(folder, network)


def check_packages(data: str = "") -> None:
    """Refuses to train without the packages that training needs, naming all that are missing.

    Args:
        data: Kind of the data, as ``load_data`` takes it, whose packages are needed, too.

    Raises:
        ToolError: Some are not installed.
    """
    needed = (*_TRAINING, "sklearn") if data.partition(":")[0] == "digits" else _TRAINING
    missing = [title for name, title in PACKAGES.items() if name in needed and find_spec(name) is None]
    if missing:
        named = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
        are = "are" if missing[1:] else "is"
        raise ToolError(f'training needs {named}, which {are} not installed: pip install "conv2attn[learn]"')


def check_machine(machine: Machine) -> int:
    """Refuses what Lightning cannot do here, before anything is written; returns how many processes are to train.

    Raises:
        ToolError: Lightning or TensorBoard is not installed.
        LibraryError: One of them cannot be imported.
        OptionError: Lightning cannot train so on this machine.
    """
    check_packages()
    for name in _TRAINING:
        with importing(name, ToolError(f"training needs {PACKAGES[name]}, which is not installed")):
            importlib.import_module(name)
    from .loop import make_trainer

    return make_trainer(machine, logger=False, enable_checkpointing=False).num_devices


def trained_in(folder: Path, network: nn.Module) -> Trained:
    """Returns a run's result, after loading the best epoch's weights into the network, in eval mode.

    Raises:
        CheckpointError: The folder holds no epoch of this network.
    """
    from .loop import BEST, LAST, RECORDS_KEY

    best, last = _epoch(folder, BEST, network), _epoch(folder, LAST, copy.deepcopy(network))
    return Trained(network.cpu().eval(), best["epoch"] + 1, tuple(last[RECORDS_KEY]))


def last_epoch(folder: Path, network: nn.Module) -> nn.Module:
    """The network after a run's last epoch, which validation images have not chosen, in eval mode, on the CPU.

    Raises:
        CheckpointError: The folder holds no epoch of this network.
    """
    from .loop import LAST

    _epoch(folder, LAST, network)
    return network.cpu().eval()


def _epoch(folder: Path, name: str, network: nn.Module) -> dict[str, Any]:
    """Loads an epoch's weights into the network, and returns all that was kept of the epoch."""
    from .loop import PREFIX, STATE, read_epoch

    found = read_epoch(folder / name)
    try:
        network.load_state_dict({key.removeprefix(PREFIX): value for key, value in found[STATE].items()})
    except RuntimeError as error:
        raise CheckpointError(f"{folder} holds no epoch of this network: {first_line(error)}") from error
    return found


def check_run(
    network: nn.Module,
    data: ImageData | Loaders,
    recipe: Recipe,
    *,
    machine: Machine,
    loss: Loss | None = None,
    recorder: Recorder = nothing_more,
    exactly: bool = False,
) -> int | None:
    """Refuses what ``fit`` would refuse, for callers that make a folder first or run others first.

    Args:
        network: As for ``fit``, like all but the last.
        data: The images, or batches.
        recipe: The recipe.
        machine: Where it is trained.
        loss: The loss.
        recorder: What looks at the network.
        exactly: Whether more scores than images have classes are refused, too.

    Returns:
        The number of the network's scores, of which the first are those of the images' classes; None with ``Loaders``.

    Raises:
        ToolError: As ``check_machine``.
        OptionError: As ``check_machine``.
        ConversionError: The network takes other images, or gives other than a score for each class or for more;
            processes cannot share the batches equally; or the recorder cannot look at the network.
    """
    processes = check_machine(machine)
    if isinstance(data, Loaders):
        _check_loss(network, data, loss or cross_entropy)
        return None
    Order(len(data.train.labels), recipe, processes=processes)
    # Run two images.
    weight = next(network.parameters())
    few = data.validation.taken(slice(2)).numbers().to(weight)
    images = f"the images of {data.name}, {data.channels} channels of {data.size} pixels"
    with refusing(f"the network does not take {images}"), torch.no_grad():
        outputs = copy.deepcopy(network).eval()(few)
    # The outputs must be scores, one for each class at least.
    try:
        scores = outputs if isinstance(outputs, torch.Tensor) else class_scores(outputs)
    except ConversionError as error:
        raise ConversionError(f"{error}; {_WANTED}") from error
    given, classes = list(scores.shape[1:]), len(data.classes)
    if scores.ndim != 2 or len(scores) != len(few):
        raise ConversionError(f"the network gives {given} for an image; {_WANTED}")
    if given[0] < classes or (exactly and given[0] > classes):
        named = ", ".join(data.classes[:_NAMED]) + ", ..." * (classes > _NAMED)
        wanted = f"{classes} scores{'' if exactly else ' or more'}"
        raise ConversionError(
            f"the network ({type(network).__name__}) gives {given[0]:,} scores; {data.name} has {classes} classes "
            f"({named}): take a network of {wanted}, by another last layer, or other classes"
        )
    # Record once.
    with refusing("the network cannot be looked at"), torch.no_grad():
        recorder(copy.deepcopy(network).eval())
    return int(given[0])


def _check_loss(network: nn.Module, data: Loaders, loss: Loss) -> None:
    weight = next(network.parameters())
    inputs, target = next(iter(data.validation))
    with refusing(f"the network and the loss do not take the batches of {data.name}"), torch.no_grad():
        found = loss(copy.deepcopy(network).eval()(inputs.to(weight)), target.to(weight.device))
    if found.numel() != 1 or not found.isfinite().all():
        raise ConversionError(f"the loss must be one finite number; on the first batch of {data.name} it is {found}")


def _described(data: ImageData | Loaders) -> dict[str, Any]:
    if isinstance(data, Loaders):
        return {"name": data.name}
    described: dict[str, Any] = {"name": data.name, "images": [len(split.labels) for split in data.parts]}
    if data.train.normalization is not None:
        numbers = asdict(data.train.normalization)
        described["normalization"] = {key: list(value) for key, value in numbers.items()}
    return described


def _fingerprint(network: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        found.update(f"{name} {list(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()
