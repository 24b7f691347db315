"""The training loop, which is Lightning's: its trainer on this machine, what a step does, what is kept of an epoch.

A run keeps its last epoch, to go on from, and its best one, to be used. After a kill, ``last.ckpt`` holds the last
whole epoch: weights, optimizer, course of the learning rate, records. Every epoch draws its random numbers anew, from
the seed and its own number, so a run that was killed and resumed trains the network of one that never was.
"""

from __future__ import annotations

import logging
import math
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies.launchers.multiprocessing import _MultiProcessingLauncher
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from torch import Tensor, nn
from torch.multiprocessing.spawn import ProcessException
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader, RandomSampler

from ...convert.errors import CheckpointError, ConversionError, DivergedError, OptionError, refusing
from ...convert.subclasses.computed import in_eval_mode
from ..data.images import ImageData, Loaders
from .folders import Record, Recorder, scalars, write_records
from .recipe import Groups, Loss, Machine, Recipe, Session, batches, cross_entropy, evaluate


def make_trainer(machine: Machine, **options: Any) -> lightning.Trainer:
    """A trainer for this machine, with more options of ``Trainer``.

    For several devices it starts a process each, by ``ddp_spawn``: by "ddp" Lightning would run the caller's whole
    program again in each of them.

    Raises:
        OptionError: Lightning cannot train so here.
    """
    known: dict[str, Any] = {
        "accelerator": machine.accelerator,
        "devices": machine.devices,
        "precision": machine.precision,
    }
    try:
        with quiet():
            trainer = lightning.Trainer(strategy=machine.strategy, **known, **options)
            if isinstance(trainer.strategy.launcher, _SubprocessScriptLauncher):
                if machine.strategy not in ("auto", "ddp"):
                    raise OptionError(f"several devices are trained on by ddp; got the strategy {machine.strategy!r}")
                trainer = lightning.Trainer(strategy="ddp_spawn", **known, **options)
            if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
                trainer.strategy._launcher = _QuietProcesses(cast(Any, trainer.strategy))
            return trainer
    except (ValueError, TypeError, RuntimeError, ImportError, MisconfigurationException) as error:
        raise OptionError(f"Lightning cannot train so: {' '.join(str(error).split())}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's remarks on the machine, on workers that load, and on products of its makers."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")
            warnings.filterwarnings("ignore", message="`isinstance.treespec, LeafSpec", category=FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class _QuietProcesses(_MultiProcessingLauncher):
    """Lightning's processes, as quiet as this one."""

    def _wrapping_function(self, *arguments: Any, **options: Any) -> None:
        with quiet():
            super()._wrapping_function(*arguments, **options)


LAST, BEST = "last.ckpt", "best.ckpt"
STATE, RECORDS_KEY = "state_dict", "records"
PREFIX = "network."  # precedes the network's own keys in the state of Lightning's module
_KEYS = {STATE, RECORDS_KEY, "epoch", "optimizer_states", "lr_schedulers", "loops", "pytorch-lightning_version"}


class Kept(ModelCheckpoint):
    """Finds the best epoch even if the folder was moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the paths of a killed run as they are now."""

        def moved(path: str) -> str:
            return str(Path(str(self.dirpath), Path(path).name)) if path else ""

        paths = {
            name: moved(state_dict[name]) for name in ("best_model_path", "kth_best_model_path", "last_model_path")
        }
        best = {moved(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict({**state_dict, **paths, "best_k_models": best, "dirpath": self.dirpath})


def read_epoch(path: Path) -> dict[str, Any]:
    """Reads a run's checkpoint of an epoch.

    Raises:
        CheckpointError: The file cannot be read, or holds something else.
    """
    state = _read(path)
    if not isinstance(state, dict) or not state.keys() >= _KEYS:
        raise CheckpointError(f"{path} is no checkpoint of a run")
    return state


def _read(path: Path) -> Any:
    """Tensors and plain data, on the CPU."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # torch's reader may raise anything for a damaged file
        raise CheckpointError(f"{path} is damaged, or no checkpoint of a run") from error


_SEEDS = 1_000_003
_FAILS = "the network cannot be trained"


class Training(lightning.LightningModule):
    """A network, its data and its recipe, as Lightning takes them; ``fit`` has the arguments."""

    def __init__(
        self,
        network: nn.Module,
        data: ImageData | Loaders,
        recipe: Recipe,
        loss: Loss | None,
        groups: Callable[[nn.Module], Groups],
        recorder: Recorder,
        folder: Path,
    ) -> None:
        super().__init__()
        self.network = network
        self.records: list[Record] = []
        self._data, self._recipe, self._groups, self._recorder, self._folder = data, recipe, groups, recorder, folder
        self._loss = loss
        self._losses: list[Tensor] = []

    def train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """The batches of this process."""
        if isinstance(self._data, Loaders):
            return self._data.train
        return batches(self._data, self._recipe, process=self.global_rank, processes=self.trainer.world_size)

    def configure_optimizers(self) -> Any:
        """The optimizer, and a learning rate that changes with each step."""
        optimizer = self._recipe.make_optimizer(self._groups(self.network))
        schedule = self._recipe.make_schedule(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_start(self) -> None:
        """Records the network as it is before the first step."""
        if not self.records:
            self._record(0, {})

    def on_train_epoch_start(self) -> None:
        """Reseeds, and puts all layers but frozen batch norms in train mode."""
        seed = (self._recipe.seed * _SEEDS + self.current_epoch) * _SEEDS + self.global_rank
        torch.manual_seed(seed)
        sampler = getattr(self.trainer.train_dataloader, "sampler", None)
        if isinstance(sampler, RandomSampler):  # which would otherwise draw after what else was drawn
            sampler.generator = torch.Generator().manual_seed(seed)
        self._losses = []
        self.network.train()  # which Lightning leaves as it is: a network that was trained before is in eval mode
        if not self._recipe.batch_statistics:
            for module in self.network.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The mean loss of a batch."""
        images, target = batch
        with refusing(_FAILS):
            loss = (self._loss or cross_entropy)(self.network(images), target)
        self._losses.append(loss.detach())
        return loss

    def backward(self, loss: Tensor, *arguments: Any, **options: Any) -> None:
        """The loss's gradients."""
        with refusing(_FAILS):
            super().backward(loss, *arguments, **options)

    def on_train_epoch_end(self) -> None:
        """Records the epoch."""
        loss = float(torch.as_tensor(self.all_gather(torch.stack(self._losses).mean())).mean())
        if not math.isfinite(loss):
            raise DivergedError(f"the loss of epoch {self.current_epoch + 1} is {loss}; a smaller lr keeps it finite")
        self._record(self.current_epoch + 1, {"train_loss": loss})
        for name, value in scalars(self.records[-1]).items():
            self.log(name, value, sync_dist=True)

    @property
    def monitored(self) -> tuple[str, str]:
        """Metric that chooses the best epoch, and its direction: accuracy where there is one, or the loss."""
        return ("validation_accuracy", "max") if self._loss is None else ("validation_loss", "min")

    @property
    def brings_batches(self) -> bool:
        """Whether the batches are one's own."""
        return isinstance(self._data, Loaders)

    def _record(self, epoch: int, known: Record) -> None:
        network = self.network
        with refusing(_FAILS), in_eval_mode(network), torch.no_grad():
            validation = evaluate(network, self._data.validation, self._loss)
            more = self._recorder(network)
        self.records.append({"epoch": epoch, **known, "validation": validation, **more})
        if self.global_rank == 0:
            write_records(self.records, self._folder)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the records with the weights."""
        checkpoint[RECORDS_KEY] = self.records

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the records of the epochs that are not trained again."""
        self.records = list(checkpoint[RECORDS_KEY])


def run(training: Training, folder: Path, recipe: Recipe, session: Session) -> None:
    """Trains, or goes on after the last epoch; every epoch's records, the last and the best are then in the folder.

    Raises:
        CheckpointError: The last epoch is damaged.
        OptionError: Lightning cannot train so here.
        ConversionError: What is trained was refused.
    """
    last = folder / LAST
    resume = last if session.resume and last.exists() else None
    if resume is not None:
        read_epoch(resume)  # before Lightning does, which takes the file at its word
    monitored, mode = training.monitored
    kept = [  # in this order: the last epoch knows the best one
        Kept(
            folder,
            Path(name).stem,
            monitor=watched,
            mode=mode,
            save_on_train_epoch_end=True,
            enable_version_counter=False,
        )
        for name, watched in ((BEST, monitored), (LAST, None))
    ]
    bar = [RichProgressBar(leave=False, console_kwargs={"stderr": True})] if session.progress else []
    with quiet(), _same_state(), torch.random.fork_rng():
        trainer = make_trainer(
            session.machine,
            max_epochs=recipe.epochs,
            gradient_clip_val=recipe.clip,
            logger=TensorBoardLogger(folder, name="", version="tensorboard"),
            log_every_n_steps=1,
            callbacks=[*kept, *bar],
            enable_progress_bar=session.progress,
            enable_model_summary=False,
            limit_val_batches=0,
            use_distributed_sampler=training.brings_batches,
            deterministic="warn",
        )
        with _interrupts(), _processes_of(trainer):
            trainer.fit(training, ckpt_path=resume, weights_only=True)


@contextmanager
def _interrupts() -> Iterator[None]:
    """Raises a KeyboardInterrupt as what it is: Lightning ends the program in its place, and hears no other."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as ended:
        if isinstance(ended.__context__, KeyboardInterrupt):
            signal.signal(signal.SIGINT, before)
            raise KeyboardInterrupt from ended
        raise


@contextmanager
def _processes_of(trainer: lightning.Trainer) -> Iterator[None]:
    """Ends the trainer's processes with the training; an error says what ended one of them."""
    try:
        yield
    except ProcessException as error:  # the others are ended by then
        what = str(error).strip().rpartition("\n")[2]
        raise ConversionError(f"a process of the training ended: {what}") from error
    except BaseException:
        if trainer.strategy.launcher is not None:
            trainer.strategy.launcher.kill(signal.SIGKILL)
        raise


@contextmanager
def _same_state() -> Iterator[None]:
    """Torch's determinism as it was before."""
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)
