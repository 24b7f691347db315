"""``conv2attn melt``: fine-tunes a CNN as attention and as a CNN, and compares the two in a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from ...convert.files.architecture import Architecture
from ...convert.files.checkpoint import Opening
from ...convert.files.folder import NETWORK, save_converted
from ...convert.files.open import open_network
from ...convert.files.write import check_apart
from ...convert.model.convert import is_convolution
from ...convert.model.selection import name_filter
from ...convert.names import names_by_module
from ...convert.preprocessing import Normalization, Preprocessing
from ...convert.size import Size
from ...learn.data.kinds import load_data
from ...learn.melting.compare import CLEAN, compare
from ...learn.melting.comparison import ArmResult, Outcomes
from ...learn.training.folders import write_json
from ...learn.training.recipe import Recipe, Session
from ..terminal.names import layer_name
from ..terminal.output import Table
from .trained.table import spread

COMPARISON = "melt.json"
_ROWS = {"start": "the CNN at the start", "cnn": "fine-tuned as the CNN", "attention": "fine-tuned as attention"}


@dataclass(frozen=True)
class Melted:
    """Results of a comparison.

    Attributes:
        folder: Folder of its runs.
        recipe: Recipe of the fine-tuning.
        outcomes: Its outcomes.
    """

    folder: Path
    recipe: Recipe
    outcomes: Outcomes
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        found = {"folder": str(self.folder), "recipe": asdict(self.recipe), **self.outcomes.to_json()}
        return {**found, "ahead": self.ahead()}

    def shown(self) -> list[Table | str]:
        """The outcome as tables and lines."""
        seeds = list(self.outcomes.results)
        return [
            self._table(),
            *(self._verdict(kind, points) for kind, points in self.ahead().items()),
            self._layers(),
            "A layer with a distance is no longer its original convolution: freeze turns it into a new one, "
            "restore refuses it",
            f"Learning rates: {', '.join(f'{name} {self._of(name)[0].lr:g}' for name in ('cnn', 'attention'))}. "
            f"Seeds {', '.join(map(str, seeds))}. Wrote {self.folder}; show, verify and freeze take it as the "
            f"attention of seed {seeds[0]}",
        ]

    def ahead(self) -> dict[str, list[float]]:
        """Accuracy of attention minus that of the fine-tuned CNN, in points, for each seed: clean, and corrupted."""
        pairs = [(one.scores, other.scores) for one, other in zip(self._of("attention"), self._of("cnn"), strict=True)]
        return {
            CLEAN: [100 * (one[CLEAN] - other[CLEAN]) for one, other in pairs],
            "corrupted": [100 * (_corrupted(one) - _corrupted(other)) for one, other in pairs],
        }

    def _of(self, arm: str) -> list[ArmResult]:
        """Results of an arm, one for each seed."""
        return [found[arm] for found in self.outcomes.results.values()]

    def _table(self) -> Table:
        kinds = list(self._of("start")[0].scores)
        rows = []
        for name, title in _ROWS.items():
            found = [result.scores for result in self._of(name)]
            cells = [spread([100 * each[kind] for each in found], 1) for kind in kinds]
            rows.append((title, *cells, spread([100 * _corrupted(each) for each in found], 1)))
        return Table(("test accuracy, %", *kinds, "mean corrupted"), tuple(rows))

    def _verdict(self, kind: str, points: Sequence[float]) -> str:
        better = sum(each > 0 for each in points), sum(each < 0 for each in points)
        mean = statistics.fmean(points)
        who = "attention is ahead" if mean > 0 else "the CNN is ahead" if mean < 0 else "neither is ahead"
        return (
            f"On {kind} test images {who}: attention minus CNN is {spread(points, 1, signed=True)} points; "
            f"attention is better for {better[0]} of {len(points)} seeds, the CNN for {better[1]}"
        )

    def _layers(self) -> Table:
        rows = []
        for name, layer in self._of("attention")[0].layers.items():
            gates = layer["gate"]
            rows.append(
                (
                    layer_name(name),
                    f"{min(layer['alpha']):.3g} to {max(layer['alpha']):.3g}",
                    "none" if gates is None else f"{min(gates):.2g} to {max(gates):.2g}",
                    f"{layer['nonlocality']:.2f}",
                    f"{layer['distance']:.3g}",
                )
            )
        header = (
            "layer",
            "alpha",
            "gates",
            "mean attended distance, pixels",
            "distance from its convolution at most, on [-1, 1]",
        )
        return Table(header, tuple(rows))


def melt_checkpoint(
    checkpoint: Path | None,
    out: Path,
    *,
    opening: Opening,
    data: str,
    size: Size | None,
    normalization: Normalization | None,
    melting: Mapping[str, Any],
    include: Sequence[str],
    exclude: Sequence[str],
    recipe: Recipe,
    rates: Sequence[float],
    seeds: int,
    session: Session,
) -> Melted:
    """Fine-tunes a CNN and its attention, and keeps both. The arguments are the command's options.

    Raises:
        ConversionError: The checkpoint or the data cannot be opened, or do not fit, or the folder cannot be written.
    """
    cnn: nn.Module | None = None
    architecture: Architecture | None = None
    preprocessing: Preprocessing | None = None
    sources: tuple[Path, ...] = ()
    if checkpoint is not None:
        network = open_network(checkpoint, opening)
        cnn = network.whole().cnn()
        sources = (checkpoint, *network.files)
        architecture, preprocessing = network.architecture, network.preprocessing
    if cnn is not None and (include or exclude):
        chosen = _names(cnn, include, exclude)
        melting = {**melting, "filter_fn": lambda _, name: name in chosen}
    check_apart(out, sources)
    check_apart(out / NETWORK, sources)  # which may be a link
    channels = preprocessing.channels if preprocessing is not None else None if cnn is None else _channels(cnn)
    trained_on = preprocessing and replace(preprocessing, normalization=normalization or preprocessing.normalization)
    images = load_data(data, channels=channels, size=size, preprocessing=trained_on or normalization, out=out)
    if cnn is None:
        arguments = {"channels": images.channels, "classes": len(images.classes)}
        architecture = Architecture("conv2attn.learn.melting.start:small_cnn", arguments)
    outcomes = compare(images, out, cnn=cnn, melting=melting, recipe=recipe, rates=rates, seeds=seeds, session=session)
    attention = outcomes.networks["attention"]
    save_converted(attention, out / NETWORK, architecture=architecture, preprocessing=preprocessing, force=True)
    found = Melted(out, recipe, outcomes)
    write_json(out / COMPARISON, found.to_json(), sources=sources)
    return found


def _names(cnn: nn.Module, include: Sequence[str], exclude: Sequence[str]) -> tuple[str, ...]:
    chosen = name_filter(cnn, include=include, exclude=exclude)
    groups = names_by_module(cnn, is_convolution)
    return tuple(name for names in groups for name in names if chosen(cnn.get_submodule(name), name))


def _channels(cnn: nn.Module) -> int | None:
    """Number of input channels of a network's first convolution."""
    first = next((module for module in cnn.modules() if is_convolution(module)), None)
    return None if first is None else int(getattr(first, "in_channels", 3))


def _corrupted(accuracies: dict[str, float]) -> float:
    return statistics.fmean(value for kind, value in accuracies.items() if kind != CLEAN)
