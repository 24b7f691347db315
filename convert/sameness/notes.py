"""Notes on the sides of a comparison: what they write, read, round, and hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from torch import fx, nn

from ..errors import listed
from ..layer.layer import SelfAttention
from .both import narrowed
from .sides import Played, Side
from .verdict import Sameness


def notes_of(
    found: Sameness, sides: tuple[Side, Side], played: Sequence[Played], narrowing: Mapping[int, fx.Node]
) -> Iterator[str]:
    """Sentences beside a verdict.

    Args:
        found: The verdict.
        sides: A and B.
        played: Their runs.
        narrowing: The side that alone rounds to fewer digits than it declares, and where.
    """
    if found.verdict == "not rounding":
        yield from (note for side in sides for note in _soft(side))
    if found.outputs and found.verdict != "same bits":
        for place, node in narrowing.items():
            yield narrowed(sides[place].name, node, sides[1 - place].name)
    for side, run in zip(sides, played, strict=True):
        if run.writes:
            yield f"{side.name} writes to its inputs."
        if run.settled:
            own = listed(list(run.settled[:3]))
            yield f"{side.name} writes to its own {own} in its first run, which was put back."
    if found.outputs:
        yield from (note for side in sides for note in side.notes)


def unfair(sides: tuple[Side, Side], played: Sequence[Played]) -> Sameness | None:
    """The verdict on a side that gives two results or changes, or None."""
    for side, run in zip(sides, played, strict=True):
        if run.changed:
            what = f"{side.name} changes while it runs: {', '.join(run.changed[:3])}"
            return Sameness("cannot say", what, remedy="give a function that puts these back before each run")
        if run.spread is not None:
            is_nan = math.isnan(run.spread)
            how = "give NaN at other places" if is_nan else f"differ by {run.spread:.2g}"
            what = f"{side.name} is not deterministic: two runs on the same inputs {how}"
            return Sameness("cannot say", what, remedy="give a function that sets its seed before each run")
    return None


def _soft(side: Side) -> list[str]:
    """Note that a side holds attention which is another function than its convolution, if so."""
    if not isinstance(side.network, nn.Module):
        return []
    layers = [(name, one) for name, one in side.network.named_modules() if isinstance(one, SelfAttention)]
    soft = [(name, one) for name, one in layers if not one.regime.is_exact]
    if not soft:
        return []
    name, layer = soft[0]
    which = f"{len(soft)} of its {len(layers)} attention layers" if len(layers) > 1 else "its attention"
    at = f", `{name}` with alpha {float(layer.alpha.min()):g}" if name else ""
    return [f"{side.name} is soft at {which}{at}: no convolution exactly; alpha_for gives the alpha of a tolerance."]
