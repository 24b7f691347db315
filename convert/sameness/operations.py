"""Where two graphs part: walks of A on B's values (``beside.py``), and what is told of the operations that they name.

What is named in one walk takes B's value in the next, where its partner is known; so faults behind it are found on B's
own inputs, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ..programs.float64 import plainly
from ..programs.noise import Precision
from ..programs.program import Program
from .beside import Beside
from .causes import Causes
from .differences import STRETCH, Parted, is_named_for_itself
from .given import Inputs
from .outputs import THRESHOLD
from .pairing import Operations, Pairs, Traced, source_of
from .runs import Cause
from .search import Search
from .stretches import Compared, Stretch

_BESIDE = 0.1  # of the largest ratio: below it, a library's own exp or sigmoid is less exact than its last digit
_WALKS = 4  # each finds what differs behind what the one before found


class Parts(NamedTuple):
    """Where two graphs part.

    Attributes:
        found: Operations whose results rounding does not explain, in the order in which they run; at most eight.
        largest: The largest difference of an operation on the same inputs, in units of what rounding does there;
            None where operations are not compared.
        cleared: Operations of A whose results are not B's, and for which a later one makes up.
    """

    found: tuple[Parted, ...]
    largest: float | None
    cleared: frozenset[fx.Node] = frozenset()


def where_graphs_part(
    a: Program,
    b: Operations,
    inputs: Inputs,
    precision: Precision,
    threshold: float,
    *,
    seed: int = 0,
    names: tuple[str, str] = ("A", "B"),
) -> Parts:
    """The operations of A whose results on B's values rounding does not explain.

    Args:
        a: The graph that says the truth.
        b: The operations of the other, with what they gave.
        inputs: Inputs of the graph.
        precision: B's.
        threshold: Units that rounding may reach.
        seed: Of the noise.
        names: Those of the two sides.
    """
    pairs = Pairs(Traced(a), b, names)
    causes = Causes(Search(pairs, a.inputs(inputs.args, inputs.kwargs), precision, threshold, seed))
    named: dict[fx.Node, Cause] = {}
    taken: dict[fx.Node, Any] = {}
    largest, ratios, behind = 0.0, dict[fx.Node, float](), list[Parted]()
    for turn in range(_WALKS):
        walk = Beside(pairs, precision, threshold, seed, causes=causes, taken=dict(taken), is_eager=turn > 0)
        with torch.no_grad(), plainly():
            walk.run(*pairs.a.program.inputs(inputs.args, inputs.kwargs))
        largest = max(largest, walk.largest) if turn else walk.largest
        ratios |= {node: ratio for node, ratio in walk.suspects.items() if node not in ratios}
        left = [n for n in walk.suspects if n in walk.left | walk.hidden and n not in walk.cleared | named.keys()]
        found = walk.named | {
            node: causes.of(node, walk.suspects[node], walk.partners, walk.readings.get(node))
            for node in left
            if node not in walk.named
        }
        found = {node: cause for node, cause in found.items() if node not in named}
        behind = [causes.behind(own, other, ratio, walk.partners) for own, (other, ratio) in walk.behind.items()]
        named |= found
        causes.are_weights_sure = not walk.cleared
        taken |= {one.at[0]: one.at[1] for one in found.values() if one.at is not None}
        places = [node for node in left if found[node].at is not None]
        if not places:
            break
    return _parts(named, ratios, behind, pairs, largest, frozenset(walk.cleared))


def _parts(
    named: Mapping[fx.Node, Cause],
    ratios: Mapping[fx.Node, float],
    behind: Sequence[Parted],
    pairs: Pairs,
    largest: float,
    cleared: frozenset[fx.Node],
) -> Parts:
    """What is told of the operations that were named, in the order in which they run."""
    order = [node for node in pairs.a.nodes if node in named]
    order = [node for place, node in enumerate(order) if not place or is_named_for_itself(node, pairs)]
    if any(named[node].is_certain for node in order):  # what can be held against nothing is not told beside it
        order = [node for node in order if named[node].is_certain or pairs.partner(node) is not None]
    order = list({source_of(node): node for node in reversed(order)}.values())[::-1]  # one result of several
    found = [*(named[node].parted(ratios[node]) for node in order), *behind]
    finite = [one.ratio for one in found if math.isfinite(one.ratio)]
    most = max(finite, default=0.0)
    told = [one for one in found if one.why_is_known or one.ratio >= _BESIDE * most]
    told = list({(one.name, one.kind, one.why): one for one in told}.values())
    paired = (ratios[node] for node in order if pairs.partner(node) is not None)
    return Parts(tuple(told), max(largest, *paired, 0.0), cleared)


def where_values_part(
    found: Compared, graph: Program, names: tuple[str, str], threshold: float = THRESHOLD
) -> tuple[Parted, ...]:
    """Stretches between values of a side that rounding does not explain, as operations that end them.

    Args:
        found: The side's values beside the graph.
        graph: The one that says the truth.
        names: Those of the side whose graph that is, and of the one with the values.
        threshold: The most typical roundings that are none such.
    """
    traced = Traced(graph)
    return tuple(
        Parted(one.name, traced.kind(graph.given[one.name]), one.ratio, f"{STRETCH} {_since(one, names)}")
        for one in found.parted(threshold)
    )


def _since(one: Stretch, names: tuple[str, str]) -> str:
    since = " and ".join(f"`{each}`" for each in one.since[:2]) or "the inputs"
    return f"{names[0]} makes of the same values (from {names[1]}'s {since} on)"
