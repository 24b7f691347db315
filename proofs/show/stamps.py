"""``conv2attn melt --example stamps``: a task on which a CNN that went on as attention beats the CNN that went on."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ...convert.files.architecture import Architecture
from ...convert.files.folder import NETWORK, save_converted
from ...convert.files.write import write_file
from ...convert.plain import json_text
from ...learn.stamps.arms import ARMS, CONTROLS
from ...learn.stamps.experiment import Stamps, copies, gains, run_stamps
from ...learn.stamps.pages import KINDS
from ..terminal.table import Table

RESULT = "result.json"
PICTURES = "pages.png", "looks.png", "recurring.svg"
_RARE = 12


@dataclass(frozen=True)
class Stamped:
    """The experiment, made.

    Attributes:
        folder: Where its runs, pictures and numbers are.
        stamps: What came of it.
    """

    folder: Path
    stamps: Stamps
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        return {
            "folder": str(self.folder),
            "seeds": {str(seed): {k: asdict(v) for k, v in found.items()} for seed, found in self.results.items()},
            "gain": {name: gains(self.stamps, name) for name in self._arms()},
            "seconds": self.stamps.seconds,
        }

    @property
    def results(self) -> dict[int, Any]:
        """What came of each seed."""
        return self.stamps.results

    def shown(self) -> list[Table | str]:
        """The outcome as a table and lines."""
        content = gains(self.stamps, "content")
        return [
            self._table(),
            f"Attention minus CNN, for each seed: {', '.join(f'{gain:+.2f}' for gain in content)} dB, where each digit "
            f"is on the page {copies(KINDS)} times",
            f"Seeds {', '.join(map(str, self.results))}. Wrote {self.folder}; {', '.join(PICTURES)} show what was made",
        ]

    def _arms(self) -> list[str]:
        return [name for name in next(iter(self.results.values())) if name not in ("start", "cnn")]

    def _table(self) -> Table:
        titles = {"start": "the CNN at the start", **{name: arm.title for name, arm in (ARMS | CONTROLS).items()}}
        rows = []
        for name in ("start", "cnn", *self._arms()):
            found = [seed[name] for seed in self.results.values()]
            against = name not in ("start", "cnn")
            rows.append(
                (
                    titles[name],
                    _spread([each.psnr[KINDS] for each in found]),
                    _spread(gains(self.stamps, name), signed=True) if against else "",
                    _spread(gains(self.stamps, name, kinds=_RARE), signed=True) if against else "",
                    f"{found[0].lr:g}",
                    f"{found[0].parameters:,}",
                    f"{self.stamps.seconds[name] / self.stamps.seconds['cnn']:.1f}",
                )
            )
        header = (
            "the trained CNN goes on",
            "test PSNR, dB",
            "minus the CNN",
            "minus the CNN, nothing recurs",
            "rate",
            "parameters",
            "step / CNN's",
        )
        return Table(header, tuple(rows))


def show_stamps(
    out: Path, *, full: bool, seeds: int, resume: bool, progress: bool, say: Callable[[str], None], **sizes: Any
) -> Stamped:
    """Runs the experiment, and writes its numbers and pictures.

    Args:
        out: The folder.
        full: Every control, and a sweep of rates for each.
        seeds: How many.
        resume: Go on with what a killed run left.
        progress: Show bars on standard error.
        say: Told what begins.
        sizes: More arguments of ``run_stamps``, by which it is made smaller.

    Raises:
        ConversionError: The folder cannot be written, holds something else, or something that is needed is missing.
    """
    from .pictures.stamps import draw_looks, draw_pages, draw_recurring
    from .pictures.style import drawn_in_style

    arms = ARMS | CONTROLS if full else ARMS
    stamps = run_stamps(out, arms=arms, seeds=seeds, sweep=full, resume=resume, progress=progress, say=say, **sizes)
    architecture = Architecture("conv2attn.learn.stamps.denoiser:Denoiser")
    save_converted(stamps.networks["content"], out / NETWORK, architecture=architecture, force=True)
    found = Stamped(out, stamps)
    text = json_text(found.to_json()) + "\n"
    write_file(out / RESULT, lambda path: path.write_text(text, "utf-8"), force=True)
    with drawn_in_style():
        for name, draw in zip(PICTURES, (draw_pages, draw_looks, draw_recurring), strict=True):
            write_file(out / name, partial(_save, draw(stamps).save(Path(name).suffix[1:])), force=True)
    return found


def _save(picture: bytes, path: Path) -> None:
    path.write_bytes(picture)


def _spread(values: list[float], *, signed: bool = False) -> str:
    """Mean and standard deviation over seeds."""
    mean = f"{statistics.fmean(values):{'+' if signed else ''}.2f}"
    return mean if len(values) == 1 else f"{mean} \u00b1 {statistics.stdev(values):.2f}"
