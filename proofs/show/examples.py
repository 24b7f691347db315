"""``conv2attn melt --example NAME``: fine-tunes a trained CNN as attention and as a CNN, and compares the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from ...convert.files.architecture import Architecture
from ...convert.files.folder import NETWORK, save_converted
from ...convert.files.write import write_file
from ...learn.melting.comparison import Comparison, Outcomes
from ...learn.melting.run import run_comparison
from ...learn.training.folders import write_json
from ...learn.training.recipe import Session
from ..terminal.outcome import Done
from ..terminal.output import Table
from .trained.results import spread

RESULT = "result.json"


def show_example(example: Comparison, out: Path, *, full: bool, seeds: int, session: Session) -> Done:
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
    arms = [name for name in next(iter(outcomes.results.values())) if name not in ("start", "cnn")]
    measures = [measure for columns in example.tables.values() for measure in columns.values()]
    gains = {arm: {each: outcomes.gains(arm, each) for each in measures} for arm in arms}
    found = {"folder": str(out), **outcomes.to_json(), "gain": gains}
    write_json(out / RESULT, found)
    pictures = PICTURES[example.name]
    with drawn_in_style():
        for name, draw in pictures.items():
            drawn = draw(outcomes).save(Path(name).suffix[1:])
            write_file(out / name, partial(Path.write_bytes, data=drawn), force=True)
    tables = [_table(example, outcomes, arms, title, columns) for title, columns in example.tables.items()]
    told = ["The CNN's rows are its own numbers; the other rows are gains over the fine-tuned CNN"]
    start = outcomes.results[0]["start"]
    if start.gained:  # where the CNN's own training ended by itself
        gained = ", ".join(f"{gain:+.2f}" for gain in start.gained)
        told.append(f"The CNN was trained for {start.best_epoch} epochs; each round after the first gained {gained} dB")
    title, columns = next(iter(example.tables.items()))
    each = (
        f"{column}: {', '.join(f'{gain:+.2f}' for gain in gains['content'][measure])}"
        for column, measure in columns.items()
    )
    told.append(f"Attention minus CNN for each seed, {title}; {'; '.join(each)}")
    told.append(f"Seeds {', '.join(map(str, outcomes.results))}. Wrote {out}; {', '.join(pictures)} show the results")
    return Done(found, [*tables, *told])


def _table(
    example: Comparison, outcomes: Outcomes, arms: Sequence[str], title: str, columns: Mapping[str, str]
) -> Table:
    """The CNN's scores, and the gain of each other arm."""
    titles = {"start": "the CNN at the start"}
    titles |= {name: arm.title for name, arm in {**example.arms, **example.controls}.items()}
    digits, rows = 2 if "dB" in title else 4, []
    for name in ("start", "cnn", *arms):
        found = [seed[name] for seed in outcomes.results.values()]
        cells = [
            spread(outcomes.gains(name, measure), digits, signed=True)
            if name in arms
            else spread([each.scores[measure] for each in found], digits)
            for measure in columns.values()
        ]
        more = outcomes.seconds[name] / outcomes.seconds["cnn"]
        rows.append((titles[name], *cells, f"{found[0].lr:g}", f"{found[0].parameters:,}", f"{more:.1f}"))
    return Table((title, *columns, "rate", "parameters", "step / CNN's"), tuple(rows))
