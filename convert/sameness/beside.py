"""A on B's values: each operation of A is computed again in float64 on what B computed before.

B's values are noted as B computes them. A is walked through in float64, twice at once: plainly, and with noise as large
as B's rounding typically is. Where the result is as near to B's as noise explains, B's value takes its place: so what
follows is held against B on B's own inputs, and one wrong operation does not blame its successors. Where it is not, the
operation is computed on what its partner reads in B. If that gives the partner's result, the operation is right: what
it reads differs, by rounding or by operations that only B has. Else the walk goes on with A's value, and the operation
is under suspicion until one that reads it agrees again. If that one makes up for it, as a batch norm for the
convolution that it was folded into, it does not give B's result on B's own values, and the suspects are cleared. If it
does, the difference is merely too small to be seen behind it, and its suspects are named, as is what reaches an output
under suspicion.

What is named in one walk takes B's value in the next, where its partner is known for certain (``causes.py``); so faults
behind it are found on B's own inputs, too.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..programs.float64 import evaluated, lift
from ..programs.noise import Noise, Precision, noisy
from ..programs.walk import VALUE, Walk, copies_of_written, in_place_of, standing
from .causes import Causes, Reading
from .pairing import Pairs, read_by
from .runs import Cause
from .typical import Scale, distance, over_pools

_PROBED = 256  # numbers that tell quickly that two tensors are not near
_MOST = 32  # times typical that a kernel's own rounding may be: gelu and products of few terms reach 20
_MOVED = 6  # runs with other operands, where no number of a channel changed by noise


@dataclass(frozen=True)
class _Twin:
    """A value of A on B's inputs, plain and with noise; the suspects that it depends on; what noise does to it."""

    plain: Any
    noisy: Any
    suspects: frozenset[fx.Node] = frozenset()
    scale: Scale | None = None


class Beside(Walk):
    """A on B's values.

    Args:
        pairs: Partners.
        precision: B's.
        threshold: Units that rounding may reach.
        seed: Of the noise.
        causes: Causes of differences, by which the walk goes on with B's value at once; None where it does not.
        taken: Operations of A in whose place B's values are taken.
    """

    def __init__(
        self,
        pairs: Pairs,
        precision: Precision,
        threshold: float,
        seed: int,
        *,
        causes: Causes,
        taken: dict[fx.Node, Any],
        is_eager: bool,
    ) -> None:
        super().__init__(pairs.a.program.graph, pairs.a.program.tensors)
        self._pairs, self._threshold, self._causes, self._is_eager = pairs, threshold, causes, is_eager
        self._noise = Noise.of_one_run(precision, seed)
        self._taken = taken
        self.suspects: dict[fx.Node, float] = {}
        self.largest = 0.0  # ratio of what agrees
        self.cleared: set[fx.Node] = set()
        self.hidden: set[fx.Node] = set()  # suspects whose difference rounding covers further on
        self.partners: dict[fx.Node, Any] = {}
        self.readings: dict[fx.Node, Reading] = {}  # what operations read in B that they do not in A
        self.left: frozenset[fx.Node] = frozenset()
        self.named: dict[fx.Node, Cause] = {}
        self.behind: dict[fx.Node, tuple[Any, float]] = {}  # B's outputs that are not the partners of A's
        # results of operations that give several, on B's values and on moved ones
        self._several: dict[fx.Node, tuple[Any, Any]] = {}

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The outputs, which tell the suspects that are left, and what only B has behind them."""
        self.left = _suspects(args)
        (node,) = self._pairs.a.program.graph.graph.find_nodes(op="output")
        for own, twin, other in zip(node.args[0], args[0], self._pairs.b.results, strict=False):
            if isinstance(twin, _Twin) and not twin.suspects and self.partners.get(own, other) is not other:
                ratio = self._distance(twin, other)
                if ratio > self._threshold:
                    self.behind[own] = other, ratio
        return super().output(target, args, kwargs)

    def _distance(self, twin: _Twin, other: Any) -> float:
        """The distance of a value from that of an operation of B, in units of rounding; 0 where it has none."""
        value = self._pairs.b.values.get(other)
        if not isinstance(value, Tensor) or value.shape != twin.plain.shape:
            return 0.0
        if twin.scale is None:
            return 0.0 if bool((value == twin.plain).all()) else math.inf
        return max(twin.scale.ratios(distance(lift(value), twin.plain)))

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """A's value on B's, and with noise."""
        suspects = _suspects((args, kwargs))
        plain = evaluated(node, *in_place_of((args, kwargs), _Twin, lambda one: one.plain))
        moved_args, moved_kwargs = in_place_of((args, kwargs), _Twin, lambda one: one.noisy)
        moved = noisy(node, moved_args, moved_kwargs, self._noise)
        twin = _Twin(plain, moved, suspects)
        if not isinstance(plain, Tensor) or plain.is_complex() or not plain.numel():
            if suspects and isinstance(plain, list | tuple):
                self._several[node] = self._on_theirs(node), evaluated(node, moved_args, moved_kwargs)
            return twin
        return self._held(node, twin) if plain.is_floating_point() else self._counted(node, twin)

    def _held(self, node: fx.Node, twin: _Twin) -> _Twin:
        """B's value where it is as near as noise explains; else A's, with one suspect more."""
        scale = Scale.like(twin.plain)
        scale.add(twin.noisy, twin.plain)
        ratio, partner, value = self._nearest(node, twin, scale)
        if partner is not None and ratio <= self._threshold:
            self.partners[node] = partner
            self.largest = max(self.largest, ratio)
            if twin.suspects and self._moves(node, twin):
                (self.cleared if self._makes_up(node, twin, value, scale) else self.hidden).update(twin.suspects)
            return _Twin(value, value, scale=self._kept(node, scale))
        own, found = self._pairs.at.get(node), None
        if not twin.suspects and self._pairs.is_of_kind(node, own):
            found = self._on_own(node, own, scale)
        if found == "right":
            self.partners[node], value = own, lift(self._pairs.b.values[own])
            return _Twin(value, value, scale=self._kept(node, scale))
        return self._suspected(node, ratio, replace(twin, scale=self._kept(node, scale)), is_wrong=found == "wrong")

    def _suspected(self, node: fx.Node, ratio: float, twin: _Twin, *, is_wrong: bool = False) -> _Twin:
        """A's value under suspicion, or B's, where the cause of the difference and its place in B are known.

        Args:
            node: The operation.
            ratio: Its difference, in units of rounding.
            twin: Its value.
            is_wrong: Whether it differs from its partner on what that one reads.
        """
        own = self._pairs.at.get(node)
        is_apart = node not in self._taken and not self._pairs.is_of_kind(node, own)
        if not twin.suspects and is_apart and self._causes.search.is_inner(node):
            return twin
        if not twin.suspects:
            self.suspects[node] = ratio
            if node not in self._taken and (
                self._is_eager or (is_wrong and self._causes.is_final(node, self.partners))
            ):
                cause = self._causes.of(node, ratio, self.partners, self.readings.get(node))
                if cause.at is not None and (cause.is_sure or not self._is_eager):
                    self.named[node] = cause
                    self._taken[cause.at[0]] = cause.at[1]
        elif self._is_eager:
            behind = self._causes.of_norm(node, twin.suspects, self.partners)
            if behind is not None and behind[1].at is not None:
                self.named[behind[0]] = behind[1]
                self._taken[node] = behind[1].at[1]
        if node in self._taken:
            other = self._taken[node]
            value = lift(self._pairs.b.values[other])
            if isinstance(value, Tensor) and value.shape == twin.plain.shape:
                self.partners[node] = other
                return _Twin(value, value, scale=twin.scale)
        return twin if twin.suspects else replace(twin, suspects=frozenset([node]))

    def _counted(self, node: fx.Node, twin: _Twin) -> _Twin:
        """B's integers or truth values where they are A's, or noise changes them, too; else A's, under suspicion."""
        own = self._pairs.at.get(node)
        value = self._pairs.b.values.get(own)
        if not self._pairs.is_of_kind(node, own) or not isinstance(value, Tensor) or twin.suspects:
            return twin
        if value.shape != twin.plain.shape or value.is_floating_point():
            return twin
        theirs = value.to(twin.plain.dtype)
        if (
            not bool(((theirs != twin.plain) & (twin.noisy == twin.plain)).any())
            or self._on_own(node, own, None) == "right"
        ):
            self.partners[node] = own
            return _Twin(theirs, theirs)
        return twin if node.target is operator.getitem else self._suspected(node, math.inf, twin)

    def _on_own(self, node: fx.Node, own: Any, scale: Scale | None) -> str:
        """What an operation is on what its partner reads.

        Returns:
            "right" where it gives the partner's result, and both read the same but for rounding; "moved" where they
            read something else, which is noted; "wrong" where the result is another; "" where it cannot be tried.
        """
        theirs, value = self._pairs.b.operands(own), self._pairs.b.values.get(own)
        leaves, spec = tree_flatten((node.args, dict(node.kwargs)))
        places = [place for place, one in enumerate(leaves) if one in read_by(node)]
        if node.target is operator.getitem or len(theirs) != len(places) or not isinstance(value, Tensor):
            return ""
        apart: list[Reading] = []
        given = [self.env[one] if isinstance(one, fx.Node) else one for one in leaves]
        given = [one.plain if isinstance(one, _Twin) else one for one in given]
        for place, other in zip(places, theirs, strict=True):
            read = None if other is None else self._pairs.b.values.get(other)
            if read is None and leaves[place].op == "placeholder":
                continue
            if not isinstance(read, Tensor) or read.shape != getattr(given[place], "shape", None):
                return ""
            known, wide = self.env[leaves[place]], lift(read).to(given[place].dtype)
            if not torch.equal(wide, given[place]):
                of = known.scale if isinstance(known, _Twin) else None
                ratio = math.inf if of is None else max(of.ratios(distance(wide, given[place])))
                if ratio > self._threshold:
                    apart.append(Reading(place, leaves[place], other))
            given[place] = wide
        args, kwargs = tree_unflatten(given, spec)
        found = evaluated(node, args, kwargs)
        if not isinstance(found, Tensor) or found.shape != value.shape:
            return ""
        if scale is None:
            is_same = torch.equal(found, value.to(found.dtype))
        else:
            ratio = max(scale.ratios(distance(lift(value), found)))
            is_same = ratio <= self._threshold
            if not is_same and not apart and ratio <= self._threshold * _MOST:
                mine = self._as_run(node, args, kwargs)
                is_same = mine is not None and ratio <= self._threshold * max(scale.ratios(distance(mine, found)))
        if is_same and apart:
            self.readings[node] = apart[0]
        return ("moved" if apart else "right") if is_same else "" if apart else "wrong"

    def _as_run(self, node: fx.Node, args: Any, kwargs: Any) -> Tensor | None:
        """The result of A's own kernel on operands in float64 that are numbers of its own types, or None."""
        leaves, spec = tree_flatten((args, kwargs))
        narrow = []
        for value, one in zip(leaves, tree_flatten((node.args, dict(node.kwargs)))[0], strict=True):
            shown = self._recorded(one) if isinstance(one, fx.Node) else None
            narrow.append(value.to(shown.dtype) if isinstance(value, Tensor) and isinstance(shown, Tensor) else value)
        target: Any = node.target
        try:
            args, kwargs = copies_of_written(node, *tree_unflatten(narrow, spec))
            found = target(*args, **kwargs)
        except (RuntimeError, TypeError):  # other types, or another place in memory, than the kernel takes
            return None
        return lift(found) if isinstance(found, Tensor) else None

    def _recorded(self, node: fx.Node) -> Any:
        """A value of the shape and type that was recorded; a tensor of the network, as it is."""
        return self._pairs.a.program.tensor(node) if node.op == "get_attr" else node.meta.get(VALUE)

    def _makes_up(self, node: fx.Node, twin: _Twin, value: Tensor, scale: Scale) -> bool:
        """Whether an operation that agrees with B on A's values does not on B's, or has none of B's to be tried on."""
        found = self._on_theirs(node)
        if not isinstance(found, Tensor) or found.shape != value.shape:
            return True
        return not max(scale.ratios(distance(found, value))) <= self._threshold

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
                other = self._pairs.at.get(each)
                value = self._pairs.b.values.get(other)
                is_one = self._pairs.is_of_kind(each, other)
                if not is_one or not isinstance(value, Tensor) or value.shape != getattr(known.plain, "shape", None):
                    return None
                theirs[each] = lift(value)
        return evaluated(node, *fx.node.map_arg((node.args, node.kwargs), theirs.__getitem__))

    def _nearest(self, node: fx.Node, twin: _Twin, scale: Scale) -> tuple[float, fx.Node | None, Any]:
        """The ratio of the partner, or of the first of those nearby that is near enough."""
        mine: tuple[float, fx.Node | None, Any] = (math.inf, None, None)
        own = self._pairs.at.get(node)
        others = self._pairs.nearby(node)
        if self._pairs.is_of_kind(node, own) and self._does_nothing(node, twin, scale):
            others = [own]
        others += self._causes.search.held(node)
        for place, other in enumerate(others):
            value = self._pairs.b.values.get(other)
            if not isinstance(value, Tensor) or value.shape != twin.plain.shape or not value.is_floating_point():
                continue
            if (place or other is not own) and not _is_near(value, twin, self._threshold):
                continue
            wide = lift(value)
            apart = distance(wide, twin.plain)
            ratio = max(scale.ratios(apart))
            if ratio == math.inf and self._fills(node, scale, apart):
                ratio = max(scale.ratios(apart))
            if ratio <= self._threshold:
                return ratio, other, wide
            if other is own:
                mine = ratio, other, wide
        return mine

    def _does_nothing(self, node: fx.Node, twin: _Twin, scale: Scale) -> bool:
        """Whether an operation gives what it reads, but for rounding."""
        for each in node.all_input_nodes:
            known = self.env[each]
            value = known.plain if isinstance(known, _Twin) else known
            if isinstance(value, Tensor) and value.shape == twin.plain.shape and value.is_floating_point():
                wide = lift(value)
                if (
                    _is_near(wide, twin, self._threshold)
                    and max(scale.ratios(distance(wide, twin.plain))) <= self._threshold
                ):
                    return True
        return False

    def _kept(self, node: fx.Node, scale: Scale) -> Scale:
        """The scale of a result; that of the operands where the operation rounds nothing, as it moves numbers alone."""
        if bool((scale.squares > 0).any()):
            return scale
        known = [self.env[each] for each in node.all_input_nodes]
        scales = [one.scale for one in known if isinstance(one, _Twin) and one.scale is not None]
        if not scales:
            return scale
        rms, largest = max(float(x.rms.max()) for x in scales), max(float(x.top.max()) for x in scales)
        return Scale(torch.full_like(scale.squares, rms**2), torch.full_like(scale.largest, largest), 1, scale.count)

    def _fills(self, node: fx.Node, scale: Scale, apart: Tensor) -> bool:
        """Whether moved operands give a scale to channels that noise left as they are, as a rectifier's that are 0.

        The operands are moved by as much as the largest number of a channel may be off, not only by what the one noisy
        run drew.
        """
        if not bool(apart.isfinite().all()):
            return False
        generator = torch.Generator(apart.device).manual_seed(len(self.env))
        found = Scale.like(apart)
        plain = {each: getattr(self.env[each], "plain", self.env[each]) for each in node.all_input_nodes}
        truth = evaluated(node, *fx.node.map_arg((node.args, node.kwargs), plain.__getitem__))
        for _ in range(_MOVED):
            moved = {each: _moved(self.env[each], generator) for each in plain}
            found.add(evaluated(node, *fx.node.map_arg((node.args, node.kwargs), moved.__getitem__)), truth)
        dead = scale.squares == 0
        if not bool((found.squares[dead] > 0).any()):
            return False
        scale.squares[dead] = found.squares[dead] * (scale.runs / found.runs)
        scale.largest[dead] = found.largest[dead]
        return True


def _moved(known: Any, generator: torch.Generator) -> Any:
    """A value moved by normal numbers, as large as the largest that rounding gives its channel."""
    if not isinstance(known, _Twin) or known.scale is None:
        return getattr(known, "plain", known)
    plain: Tensor = known.plain
    top = over_pools(known.scale.top, plain)
    return plain + top * torch.empty_like(plain).normal_(generator=generator)


def _is_near(value: Tensor, twin: _Twin, threshold: float) -> bool:
    """Whether a few numbers do not tell already that two tensors are not near."""
    step = max(1, value.numel() // _PROBED)
    probed, plain, moved = (one.reshape(-1)[::step].double() for one in (value, twin.plain, twin.noisy))
    allowed = (moved - plain).square().mean().sqrt() * (4 * threshold) + plain.abs().max() * 1e-6
    return bool((probed - plain).square().mean().sqrt() <= allowed)


def _suspects(values: Any) -> frozenset[fx.Node]:
    return frozenset().union(*(one.suspects for one in standing(values, _Twin)))
