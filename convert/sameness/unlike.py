"""Attributes and weights that two networks have otherwise, where rounding covers it in the outputs: does it matter?

Half precision hides a wrong form of GELU, or an eps. So the operation is computed in float64 on B's values, once with
A's attributes and weights and once with B's. The difference matters if it exceeds ``MATTERS`` typical roundings of
float32 there. They may cancel: a norm times s, and what reads it divided by s. Then both operations are computed
together, and what they give together differs by far less than what one of them gives alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from ..programs.float64 import evaluated, lift, plainly
from ..programs.noise import Noise, Precision, noisy
from ..programs.walk import arguments_of
from .differences import Differences, Parted, differences, folded
from .pairing import Pairs, read_by
from .typical import Scale, distance

MATTERS = 3.0
_LISTED = 3  # operations whose differences are rounding all the same
_BEHIND = 16  # operations that may lie between two whose weights cancel
_CANCELS = 0.25  # of what one alone does, two together may do: half precision rounds the weights of both
_EVEN = 0.05  # relative spread of a factor that weights are multiplied by
_FIXED = ("norm", "gelu", "silu", "relu", "softmax", "pool", "convolution", "linear", "upsample")  # not scales


@dataclass(frozen=True)
class Unlike:
    """What two networks have otherwise.

    Attributes:
        mattering: Operations whose differences exceed a few roundings of float32.
        small: Other ones, at most three of them.
        notes: What cancels, in words.
    """

    mattering: tuple[Parted, ...] = ()
    small: tuple[Parted, ...] = ()
    notes: tuple[str, ...] = ()


def unlike(pairs: Pairs) -> dict[fx.Node, Differences]:
    """Operations of A whose attributes or weights their partners have otherwise.

    Where both programs have the same operations one by one, these are all operations; else those of modules of the
    same names, whose partner is certain.

    Args:
        pairs: Partners.
    """
    sides = [[(side.kind(node), side.key(node)[1]) for node in side.nodes] for side in (pairs.a, pairs.b)]
    found: dict[fx.Node, Differences] = {}
    for node, own in pairs.at.items():
        if node.target is operator.getitem or not pairs.is_of_kind(node, own):
            continue
        path, kind = pairs.a.path(node), pairs.a.kind(node)
        if folded(node, pairs) is not None or not _reads_alike(node, own, pairs):
            continue
        if sides[0] == sides[1] or (path and path == pairs.b.path(own) and any(one in kind for one in _FIXED)):
            told = differences(node, own, pairs, {})
            if told.attributes or told.weights:
                found[node] = told
    return {node: found[node] for node in pairs.a.nodes if node in found}


def _reads_alike(node: fx.Node, own: Any, pairs: Pairs) -> bool:
    """Whether two operations read results of the same shapes, as they do not where one of them reads a padded map."""
    mine = [one.meta.get("val") for one in read_by(node) if one.op == "call_function"]
    theirs = [pairs.b.values.get(one) for one in pairs.b.operands(own) if one is not None]
    shapes = [[one.shape if isinstance(one, Tensor) else None for one in each] for each in (mine, theirs)]
    return shapes[0] == shapes[1]


def weighed(
    pairs: Pairs,
    found: Mapping[fx.Node, Differences],
    *,
    cleared: Collection[fx.Node] = (),
    hidden_by: str = "",
    seed: int = 0,
) -> Unlike:
    """Tells which differences of attributes and weights matter, which do not, and which cancel.

    Args:
        pairs: Partners; those of B have values.
        found: The differences.
        cleared: Operations of A for which a later one is known to make up.
        hidden_by: The precision that hides what matters, in words; "" where nothing is hidden and all is small.
        seed: Of the noise.
    """
    with torch.no_grad(), plainly():
        groups = _groups(list(found), pairs)
        together = {node for group in groups for node in group}
        notes = tuple(_cancelling(group, found, pairs) for group in groups)
        left = [node for node in found if node not in together and node not in cleared]
        effects = {node: _effect(node, pairs, seed) if hidden_by else 0.0 for node in left}
    mattering, small = list[Parted](), list[Parted]()
    for node in left:
        why, ratio = "; ".join((*found[node].attributes, *found[node].weights)), effects[node]
        name, kind = pairs.a.path(node) or node.name, pairs.a.kind(node)
        if ratio > MATTERS:
            mattering.append(Parted(name, kind, ratio, f"{why}, hidden by {hidden_by} at the outputs", is_certain=True))
        else:
            small.append(Parted(name, kind, 0.0, why))
    return Unlike(tuple(mattering), tuple(small[:_LISTED]), notes)


def _effect(node: fx.Node, pairs: Pairs, seed: int) -> float:
    """What B's attributes and weights change in an operation's result, in units of typical rounding of float32."""
    values = _Values(pairs, frozenset([node]))
    mine, theirs = values.of(node, frozenset()), values.of(node, frozenset([node]))
    if not isinstance(mine, Tensor) or not isinstance(theirs, Tensor) or not mine.is_floating_point():
        return 0.0
    if mine.shape != theirs.shape:
        return math.inf
    scale = Scale.like(mine)
    scale.add(noisy(node, *values.operands(node, frozenset()), Noise.of_one_run(Precision(torch.float32), seed)), mine)
    return max(scale.ratios(distance(theirs, mine)))


def _groups(nodes: Sequence[fx.Node], pairs: Pairs) -> list[list[fx.Node]]:
    """Operations whose other attributes and weights cancel: each first one with all that reads it."""
    chosen, found = set(nodes), list[list[fx.Node]]()
    taken: set[fx.Node] = set()
    for first in nodes:
        readers, between = _readers(first, chosen, pairs)
        if first in taken or not readers:
            continue
        if all(_is_cancelled(first, last, between, pairs) for last in readers):
            found.append([first, *readers])
            taken |= {first, *readers}
    return found


def _readers(first: fx.Node, chosen: Collection[fx.Node], pairs: Pairs) -> tuple[list[fx.Node], frozenset[fx.Node]]:
    """The next operations behind one that differ, too, and all that lies between."""
    nodes = pairs.a.nodes
    place = nodes.index(first)
    between, readers = {first}, list[fx.Node]()
    for node in nodes[place + 1 : place + 1 + _BEHIND]:
        if not between.isdisjoint(read_by(node)):
            if node in chosen:
                readers.append(node)
            else:
                between.add(node)
    return readers, frozenset(between)


def _is_cancelled(first: fx.Node, last: fx.Node, between: frozenset[fx.Node], pairs: Pairs) -> bool:
    """Whether two operations with A's numbers give what they give with B's, but for far less than one alone changes."""
    values = _Values(pairs, between | {last})
    a, b, mixed = (values.of(last, theirs) for theirs in (frozenset(), frozenset([first, last]), frozenset([last])))
    if any(not isinstance(one, Tensor) or one.shape != b.shape for one in (a, b, mixed)):
        return False
    together, alone = (float((one - b).square().mean().sqrt()) for one in (a, mixed))
    return together <= _CANCELS * alone


def _cancelling(group: Sequence[fx.Node], found: Mapping[fx.Node, Differences], pairs: Pairs) -> str:
    """What cancels, in words."""
    names = [pairs.a.path(node) or node.name for node in group]
    first = _factor(group[0], pairs, 0)
    if first is not None and all(_undoes(node, first, pairs) for node in group[1:]):
        told = [f"`{names[0]}` times s", *(f"`{name}` divided by s" for name in names[1:])]
        return f"The networks hold other weights that cancel: {', '.join(told)}."
    what = "numbers" if any(found[node].attributes for node in group) else "weights"
    return f"The networks hold other {what} that cancel: those of {' and '.join(f'`{name}`' for name in names)}."


def _weights(node: fx.Node, pairs: Pairs) -> tuple[Tensor, Tensor] | None:
    """Both sides' weight of an operation."""
    found = [side.arguments(each).get("weight") for side, each in ((pairs.a, node), (pairs.b, pairs.at[node]))]
    one, other = found
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.shape != other.shape:
        return None
    return one.double(), other.double()


def _factor(node: fx.Node, pairs: Pairs, axis: int) -> Tensor | None:
    """The factor of each slice of a weight along an axis, where B's weight is A's times such factors: [slices]."""
    both = _weights(node, pairs)
    if both is None or both[0].ndim <= axis:
        return None
    one, other = (each.movedim(axis, 0).flatten(1) if each.ndim > 1 else each[:, None] for each in both)
    factor = (one * other).sum(1) / one.square().sum(1).clamp_min(1e-300)
    rest = (other - factor[:, None] * one).square().sum().sqrt()
    return factor if rest <= _EVEN * other.square().sum().sqrt() else None


def _undoes(node: fx.Node, factor: Tensor, pairs: Pairs) -> bool:
    """Whether columns of a weight are divided by these factors."""
    own = _factor(node, pairs, 1)
    return own is not None and own.shape == factor.shape and bool((own * factor - 1).abs().max() <= _EVEN)


class _Values:
    """Values of A's operations on B's, in float64, some of them with B's attributes and weights.

    Args:
        pairs: Partners.
        inside: Operations that are computed; of all others B's values are taken.
    """

    def __init__(self, pairs: Pairs, inside: frozenset[fx.Node]) -> None:
        self._pairs, self._inside = pairs, inside

    def of(self, node: fx.Node, theirs: frozenset[fx.Node]) -> Any:
        """The value of an operation; None where B has no value that it needs."""
        try:
            return evaluated(node, *self.operands(node, theirs))
        except LookupError:
            return None

    def operands(self, node: fx.Node, theirs: frozenset[fx.Node]) -> tuple[Any, Any]:
        """An operation's arguments, with B's attributes and weights where it is one of ``theirs``."""
        own = self._pairs.at[node] if node in theirs else None
        given = self._pairs.b.arguments(own) if own is not None else {}
        place = iter(self._pairs.b.operands(self._pairs.at[node]) if node in self._pairs.at else ())
        read = {each: next(place, None) for each in read_by(node)}

        def value(each: fx.Node) -> Any:
            return self._value(each, read.get(each), theirs)

        args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
        if not given:
            return args, kwargs
        names = [one.name for one in node.target._schema.arguments]  # type: ignore[union-attr]
        named = arguments_of(node) | dict(zip(names, args, strict=False)) | dict(kwargs)
        for name, one in given.items():
            if isinstance(one, Tensor):
                named[name] = lift(one)
            elif not any(
                isinstance(each, Tensor | fx.Node) or each in self._pairs.b.values for each in tree_leaves(one)
            ):
                named[name] = one
        schema = node.target._schema.arguments  # type: ignore[union-attr]
        placed = [named[one.name] for one in schema if not one.kwarg_only]
        return tuple(placed), {one.name: named[one.name] for one in schema if one.kwarg_only}

    def _value(self, node: fx.Node, read: Any, theirs: frozenset[fx.Node]) -> Any:
        program = self._pairs.a.program
        if node.op == "get_attr":
            return lift(program.tensor(node))
        if node in self._inside:
            return self.of(node, theirs)
        value = self._pairs.b.values.get(read if read is not None else self._pairs.at.get(node))
        if value is None and node.op == "placeholder":
            value = self._pairs.a.inputs.get(node)
        if value is None:
            raise LookupError(node.name)
        return lift(value)
