"""``conv2attn melt --example NAME``: fine-tunes a trained CNN as attention and as a CNN, and compares the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ...convert.files.architecture import Architecture
from ...convert.files.folder import NETWORK, save_converted
from ...convert.files.write import write_file
from ...learn.melting.comparison import Comparison, Outcomes
from ...learn.melting.run import run_comparison
from ...learn.training.folders import write_json
from ...learn.training.recipe import Session
from ..terminal.output import Table
from .trained.table import spread

RESULT = "result.json"


@dataclass(frozen=True)
class ExampleRun:
    """Results of an example.

    Attributes:
        folder: Where its runs, pictures and numbers are.
        example: The example.
        outcomes: Its outcomes.
        pictures: Names of the picture files.
    """

    folder: Path
    example: Comparison
    outcomes: Outcomes
    pictures: tuple[str, ...]
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        measures = [measure for columns in self.example.tables.values() for measure in columns.values()]
        return {
            "folder": str(self.folder),
            **self.outcomes.to_json(),
            "gain": {arm: {each: self.outcomes.gains(arm, each) for each in measures} for arm in self._arms()},
        }

    def shown(self) -> list[Table | str]:
        """The outcome as tables and lines."""
        seeds = ", ".join(map(str, self.outcomes.results))
        return [
            *(self._table(title, columns) for title, columns in self.example.tables.items()),
            "The CNN's rows are its own numbers; the other rows are gains over the fine-tuned CNN",
            *self._start(),
            self._each_seed(),
            f"Seeds {seeds}. Wrote {self.folder}; {', '.join(self.pictures)} show the results",
        ]

    def _arms(self) -> list[str]:
        return [name for name in next(iter(self.outcomes.results.values())) if name not in ("start", "cnn")]

    def _start(self) -> list[str]:
        """A line on how the CNN's own training ended, where it was to end by itself."""
        start = self.outcomes.results[0]["start"]
        if not start.gained:
            return []
        gained = ", ".join(f"{gain:+.2f}" for gain in start.gained)
        return [f"The CNN was trained for {start.best_epoch} epochs; each round after the first gained {gained} dB"]

    def _each_seed(self) -> str:
        """Gain from content for each seed, in the first table's measures."""
        title, columns = next(iter(self.example.tables.items()))
        gains = {column: self.outcomes.gains("content", measure) for column, measure in columns.items()}
        told = (f"{column}: {', '.join(f'{gain:+.2f}' for gain in each)}" for column, each in gains.items())
        return f"Attention minus CNN for each seed, {title}; {'; '.join(told)}"

    def _table(self, title: str, columns: Mapping[str, str]) -> Table:
        titles = {"start": "the CNN at the start"}
        titles |= {name: arm.title for name, arm in {**self.example.arms, **self.example.controls}.items()}
        digits = 2 if "dB" in title else 4
        rows = []
        for name in ("start", "cnn", *self._arms()):
            found = [seed[name] for seed in self.outcomes.results.values()]
            against = name not in ("start", "cnn")
            cells = [
                spread(self.outcomes.gains(name, measure), digits, signed=True)
                if against
                else spread([each.scores[measure] for each in found], digits)
                for measure in columns.values()
            ]
            more = self.outcomes.seconds[name] / self.outcomes.seconds["cnn"]
            rows.append((titles[name], *cells, f"{found[0].lr:g}", f"{found[0].parameters:,}", f"{more:.1f}"))
        header = (title, *columns, "rate", "parameters", "step / CNN's")
        return Table(header, tuple(rows))


def show_example(example: Comparison, out: Path, *, full: bool, seeds: int, session: Session) -> ExampleRun:
    """Runs an example, and writes its numbers and pictures. The arguments are the command's options.

    Raises:
        ConversionError: The folder cannot be written, holds something else, or something that is needed is missing.
    """
    from .pictures.examples import PICTURES
    from .pictures.style import drawn_in_style

    outcomes = run_comparison(example, out, full=full, seeds=seeds, session=session)
    new = type(outcomes.networks["start"])
    save_converted(
        outcomes.networks["content"],
        out / NETWORK,
        architecture=Architecture(f"{new.__module__}:{new.__qualname__}"),
        force=True,
    )
    pictures = PICTURES[example.name]
    found = ExampleRun(out, example, outcomes, tuple(pictures))
    write_json(out / RESULT, found.to_json())
    with drawn_in_style():
        for name, draw in pictures.items():
            write_file(out / name, partial(_save, draw(outcomes).save(Path(name).suffix[1:])), force=True)
    return found


def _save(picture: bytes, path: Path) -> None:
    path.write_bytes(picture)
