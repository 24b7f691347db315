"""Where two graphs part: each operation of A is computed again in float64 on B's values.

B's values are noted as B computes them. A is walked through in float64, twice at once: plainly, and with noise as large
as B's rounding typically is. Where the result is as near to B's as noise explains, B's value takes its place: so what
follows is held against B on B's own inputs, and one wrong operation does not blame its successors. Where it is not, the
walk goes on with A's value, and the operation is under suspicion until one that reads it agrees again. If that one
makes up for it, as a batch norm for the convolution that it was folded into, it does not give B's result on B's own
values, and the suspects are cleared. If it does, the difference is merely too small to be seen behind it, and its
suspects are named, as is what reaches an output under suspicion.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

from ..programs.float64 import evaluated, lift, plainly
from ..programs.noise import Noise, Precision, noisy
from ..programs.program import Program
from ..programs.walk import Walk
from .differences import Parted, is_named_for_itself, parted
from .pairing import Operations, Pairs, Traced, source_of
from .sides import Inputs
from .typical import Scale, Typical

_PROBED = 256  # numbers that tell quickly that two tensors are not near
_BESIDE = 0.1  # of the largest ratio: below it, a library's own exp or sigmoid is less exact than its last digit


class Parts(NamedTuple):
    """Where two graphs part.

    Attributes:
        found: Operations whose results rounding does not explain, in the order in which they run.
        largest: The largest difference of an operation on the same inputs, in units of what rounding does there;
            None where operations are not compared.
    """

    found: tuple[Parted, ...]
    largest: float | None


@dataclass(frozen=True)
class _Twin:
    """A value of A on B's inputs, plain and with noise; the suspects that it depends on."""

    plain: Any
    noisy: Any
    suspects: frozenset[fx.Node] = frozenset()


class _Beside(Walk):
    """A on B's values.

    Args:
        pairs: Partners.
        precision: B's.
        threshold: Units that rounding may reach.
        seed: Of the noise.
        is_eager: Whether a suspect with a partner takes the partner's value at once.
    """

    def __init__(self, pairs: Pairs, precision: Precision, threshold: float, seed: int, *, is_eager: bool) -> None:
        super().__init__(pairs.a.program.graph, pairs.a.program.tensors)
        self._pairs, self._threshold, self._is_eager = pairs, threshold, is_eager
        self._noise = Noise(precision, seed, has_exact=False)
        self.suspects: dict[fx.Node, float] = {}
        self.largest = 0.0  # ratio of what agrees
        self.cleared: set[fx.Node] = set()
        self.hidden: set[fx.Node] = set()  # suspects whose difference rounding covers further on
        self.partners: dict[fx.Node, fx.Node] = {}
        self.left: frozenset[fx.Node] = frozenset()
        # results of operations that give several, on B's values and on moved ones
        self._several: dict[fx.Node, tuple[Any, Any]] = {}

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The outputs, which tell the suspects that are left."""
        self.left = _suspects(args)
        return super().output(target, args, kwargs)

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """A's value on B's, and with noise."""
        suspects = _suspects((args, kwargs))
        plain = evaluated(node, *_side((args, kwargs), "plain"))
        moved_args, moved_kwargs = _side((args, kwargs), "noisy")
        moved = noisy(node, moved_args, moved_kwargs, self._noise)
        if not isinstance(plain, Tensor) or not plain.is_floating_point() or not plain.numel():
            if suspects and isinstance(plain, list | tuple):
                self._several[node] = self._on_theirs(node), evaluated(node, moved_args, moved_kwargs)
            return _Twin(plain, moved, suspects)
        return self._held(node, _Twin(plain, moved, suspects))

    def _held(self, node: fx.Node, twin: _Twin) -> _Twin:
        """B's value where it is as near as noise explains; else A's, with one suspect more."""
        ratio, partner, value = self._nearest(node, twin)
        if partner is not None and ratio <= self._threshold:
            self.partners[node] = partner
            self.largest = max(self.largest, ratio)
            if twin.suspects and (self._is_eager or self._moves(node, twin)):
                (self.cleared if self._makes_up(node, twin, value) else self.hidden).update(twin.suspects)
            return _Twin(value, value)
        if twin.suspects and not self._is_eager:
            return twin
        self.suspects[node] = ratio
        own = self._pairs.at.get(node)
        if self._is_eager and own is not None and own in self._pairs.b.values:
            value = self._pairs.b.values[own]
            if isinstance(value, Tensor) and value.shape == twin.plain.shape:
                self.partners[node] = own
                return _Twin(lift(value), lift(value))
        return replace(twin, suspects=frozenset([node]))

    def _makes_up(self, node: fx.Node, twin: _Twin, value: Tensor) -> bool:
        """Whether an operation that agrees with B on A's values does not on B's, or has none of B's to be tried on."""
        found = self._on_theirs(node)
        if not isinstance(found, Tensor) or found.shape != value.shape:
            return True
        scale = Scale.like(twin.plain)
        scale.add(twin.noisy, twin.plain)
        return not max(scale.ratios(_apart(found, value))) <= self._threshold

    def _moves(self, node: fx.Node, twin: _Twin) -> bool:
        """Whether the result moves with what it reads; behind a factor of 0, agreement says nothing of suspects."""
        if node.target is operator.getitem:
            _, several = self._several[node.all_input_nodes[0]]
            return not torch.equal(several[node.args[1]], twin.plain)
        moved = {each: getattr(self.env[each], "noisy", self.env[each]) for each in node.all_input_nodes}
        found = evaluated(node, *fx.node.map_arg((node.args, node.kwargs), moved.__getitem__))
        return not torch.equal(found, twin.plain)

    def _on_theirs(self, node: fx.Node) -> Any:
        """The result of an operation on B's values of what is under suspicion, or None where B has none."""
        if node.target is operator.getitem:
            several, _ = self._several.get(node.all_input_nodes[0], (None, None))
            return None if several is None else several[node.args[1]]
        theirs: dict[fx.Node, Any] = {}
        for each in node.all_input_nodes:
            known = self.env[each]
            theirs[each] = known.plain if isinstance(known, _Twin) else known
            if isinstance(known, _Twin) and known.suspects:
                value = self._pairs.b.values.get(self._pairs.at.get(each))
                if not isinstance(value, Tensor) or value.shape != getattr(known.plain, "shape", None):
                    return None
                theirs[each] = lift(value)
        return evaluated(node, *fx.node.map_arg((node.args, node.kwargs), theirs.__getitem__))

    def _nearest(self, node: fx.Node, twin: _Twin) -> tuple[float, fx.Node | None, Any]:
        """The ratio of the partner, or of the first of those nearby that is near enough."""
        scale = Scale.like(twin.plain)
        scale.add(twin.noisy, twin.plain)
        own: tuple[float, fx.Node | None, Any] = (math.inf, None, None)
        for place, other in enumerate(self._pairs.nearby(node)):
            value = self._pairs.b.values.get(other)
            if not isinstance(value, Tensor) or value.shape != twin.plain.shape or not value.is_floating_point():
                continue
            if place and not _is_near(value, twin, self._threshold):
                continue
            wide = lift(value)
            ratio = max(scale.ratios(_apart(wide, twin.plain)))
            if ratio <= self._threshold:
                return ratio, other, wide
            if other is self._pairs.at.get(node):
                own = ratio, other, wide
        return own


def _apart(one: Tensor, other: Tensor) -> Tensor:
    """The difference; 0 where both are infinite alike, and infinite where one is NaN."""
    return torch.where(one == other, 0.0, one - other).nan_to_num(math.inf)


def _is_near(value: Tensor, twin: _Twin, threshold: float) -> bool:
    """Whether a few numbers do not tell already that two tensors are not near."""
    step = max(1, value.numel() // _PROBED)
    probed, plain, moved = (one.reshape(-1)[::step].double() for one in (value, twin.plain, twin.noisy))
    allowed = (moved - plain).square().mean().sqrt() * (4 * threshold) + plain.abs().max() * 1e-6
    return bool((probed - plain).square().mean().sqrt() <= allowed)


def _suspects(values: Any) -> frozenset[fx.Node]:
    found = (leaf.suspects for leaf in _leaves(values) if isinstance(leaf, _Twin))
    return frozenset().union(*found)


def _leaves(values: Any) -> list[Any]:
    return tree_leaves(values, is_leaf=lambda one: isinstance(one, _Twin))


def _side(values: Any, which: str) -> Any:
    """The values with one of both in place of each twin."""
    return tree_map(
        lambda one: getattr(one, which) if isinstance(one, _Twin) else one,
        values,
        is_leaf=lambda one: isinstance(one, _Twin),
    )


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
    walk = _walked(pairs, inputs, precision, threshold, seed, is_eager=False)
    left = [node for node in walk.suspects if node in walk.left | walk.hidden and node not in walk.cleared]
    if left and not walk.cleared:  # so operations are the same one by one, and each can be held against its partner
        walk = _walked(pairs, inputs, precision, threshold, seed, is_eager=True)
        left = [node for node in walk.suspects if node not in walk.cleared]
    named = [node for place, node in enumerate(left) if not place or is_named_for_itself(node, pairs)]
    named = list({source_of(node): node for node in reversed(named)}.values())[::-1]  # one result of several
    found = [parted(node, walk.suspects[node], pairs, walk.partners) for node in named]
    largest = max((one.ratio for one in found), default=0.0)
    told = [one for one in found if one.why_is_known or one.ratio >= _BESIDE * largest]
    paired = (walk.suspects[node] for node in named if pairs.partner(node) is not None)
    return Parts(tuple(told), max(walk.largest, *paired, 0.0))


def _walked(
    pairs: Pairs, inputs: Inputs, precision: Precision, threshold: float, seed: int, *, is_eager: bool
) -> _Beside:
    walk = _Beside(pairs, precision, threshold, seed, is_eager=is_eager)
    with torch.no_grad(), plainly():
        walk.run(*pairs.a.program.inputs(inputs.args, inputs.kwargs))
    return walk


def where_modules_part(
    graph: Program, typical: Typical, blocks: Mapping[str, Tensor], threshold: float
) -> tuple[Parted, ...]:
    """The first module of a black box whose output leaves rounding, of those that the graph has by the same name."""
    for name, node in graph.module_ends.items():
        if name not in blocks or node not in typical.inner:
            continue
        truth, scale = typical.inner[node]
        if blocks[name].shape == truth.shape:
            ratio = max(scale.ratios(_apart(blocks[name].double(), truth)))
            if not ratio <= threshold:
                return (Parted(name, Traced(graph).kind(node), ratio, "the first module whose output leaves rounding"),)
    return ()
