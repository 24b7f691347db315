"""Why an operation of A is not B's: what its partner has otherwise, what B has before it, or another function.

Tried in this order: attributes and weights of a partner of the same kind; forms of functions that a run of operations
computes, in A and in B (``forms.py``); operations that B alone has before what the partner reads; variants of a single
operation. All that is tried is tried on B's own values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from ..programs.float64 import lift
from .chains import chain, described
from .differences import ELSEWHERE, UNKNOWN, Differences, Parted, differences, folded, is_one_kind
from .pairing import Held, read_by
from .runs import Cause, written_out
from .search import REACH, Local, Search, after
from .variants import WINDOWS, of_another_eps, variants

_FEW = 4  # numbers that a tensor must have at least to be known again
_NEAR = 0.2  # of the largest number: tensors nearer than that are meant to be the same
_LARGE = 20.0  # units of rounding from which an operation may be another one, and not only less exact
_FINAL = (
    "norm",
    "gelu",
    "relu",
    "silu",
    "softmax",
    "pool",
    "convolution",
    "upsample",
    "attention",
    "hardtanh",
    "clamp",
)


class Reading(NamedTuple):
    """An operand that an operation of B reads in place of the partner of A's operand.

    Attributes:
        place: Its place among the leaves of the arguments.
        mine: A's operand.
        other: B's.
    """

    place: int
    mine: fx.Node
    other: Any


class Causes:
    """Causes of differences between two graphs.

    Args:
        search: The two graphs.

    Attributes:
        are_weights_sure: Whether no operation made up for another in an earlier walk, so that weights do not cancel.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.pairs, self.threshold = search, search.pairs, search.threshold
        self.are_weights_sure = False

    def is_final(self, node: fx.Node, partners: Mapping[fx.Node, Any]) -> bool:
        """Whether nothing can make up for an operation that differs from its partner on the same operands.

        So it is where both are the same, and where a norm or an activation has another attribute; but another factor
        or weight may be made up for.
        """
        found = differences(node, self.pairs.partner(node), self.pairs, partners)
        kind = self.pairs.a.kind(node)
        if found.weights or folded(node, self.pairs) is not None:
            return False
        return not found.text or (bool(found.attributes) and any(one in kind for one in _FINAL))

    def of(self, node: fx.Node, ratio: float, partners: Mapping[fx.Node, Any], reading: Reading | None) -> Cause:
        """The cause of a difference at an operation of A.

        Args:
            node: The operation, whose operands are B's values.
            ratio: Its difference, in units of rounding.
            partners: The operations of B whose values are near those of A's.
            reading: What its partner reads otherwise, if that alone differs.
        """
        basis = Cause(self.search.name(node), self.pairs.a.kind(node), "")
        norm = folded(node, self.pairs)
        own, local = self.pairs.partner(node), Local(self.search, partners)
        if self._is_part(node, own):
            return replace(basis, why=f"{UNKNOWN}: {self.pairs.names[1]} runs it on parts of the batch")
        if norm is not None:
            with torch.no_grad():
                return self._of_folded(node, norm, basis, local)
        is_one = is_one_kind(node, own, self.pairs) and (
            self.pairs.a.path(node) == self.pairs.b.path(own) or self._is_as_large(node, own)
        )
        found = differences(node, own, self.pairs, partners) if is_one else Differences()
        at = (node, self.pairs.at.get(node)) if is_one and node in self.pairs.at else None
        with torch.no_grad():
            if found.attributes and self.pairs.a.kind(node) not in WINDOWS:
                return replace(basis, why=found.text, is_certain=True, is_sure=True, at=at)
            variant = next(variants(self.search, node, local), None) if ratio >= _LARGE else None
            if variant is not None:
                why, other, apart = variant
                why += self._as_described(other)
                return replace(basis, why=why, is_certain=True, is_sure=True, at=(node, other), ratio=apart)
            if found.attributes or found.weights:
                is_sure = self.are_weights_sure or bool(found.attributes)
                return replace(basis, why=found.text, is_certain=True, is_sure=is_sure, at=at)
            written = written_out(self.search, node, local) if ratio >= self.threshold else None
            if written is not None:
                return written
        if reading is not None and is_one:
            between = chain(self.pairs, reading.other, partners.get(reading.mine))
            if between:
                why = f"{self.pairs.names[1]} has {between} before it"
                return replace(basis, why=why, is_certain=True, is_sure=True, at=at)
        if is_one:
            is_typed = bool(found.types)
            return replace(
                basis,
                why=found.text or f"{UNKNOWN}{self._as_described(own)}",
                is_certain=is_typed,
                is_sure=is_typed,
                at=at,
            )
        with torch.no_grad():
            stored = self._stored(node, local, basis)
        if stored is not None:
            return stored
        missed = self._missed(node, partners) if own is None else None
        return replace(basis, **self._of_another_kind(node, own)) if missed is None else missed

    def of_norm(
        self, node: fx.Node, suspects: frozenset[fx.Node], partners: Mapping[fx.Node, Any]
    ) -> tuple[fx.Node, Cause] | None:
        """The cause at a normalisation behind a single suspect which B has in one operation with it; else None."""
        if len(suspects) != 1:
            return None
        (suspect,) = suspects
        if folded(suspect, self.pairs) is not node:
            return None
        basis = Cause(self.search.name(suspect), self.pairs.a.kind(suspect), "")
        cause = self._of_folded(suspect, node, basis, Local(self.search, partners))
        return None if cause.at is None else (suspect, cause)

    def behind(self, node: fx.Node, other: Any, ratio: float, partners: Mapping[fx.Node, Any]) -> Parted:
        """What B has behind A's last operation."""
        between = chain(self.pairs, other, partners.get(node)) or described(self.pairs, [other])
        why = f"{self.pairs.names[1]} has {between} behind it"
        name, kind = (
            (self.search.name(node), self.pairs.a.kind(node)) if node.op == "call_function" else ("output", "input")
        )
        return Parted(name, kind, ratio, why, is_certain=True)

    def _of_folded(self, node: fx.Node, norm: fx.Node, basis: Cause, local: Local) -> Cause:
        """The cause at a product and the normalisation behind it, which B has in one operation."""
        where = self.pairs.a.path(norm) or norm.name
        why = f"{self.pairs.names[1]} has both in one operation, whose result differs"
        own = self.pairs.at.get(node)
        is_one = self.pairs.is_of_kind(node, own) and self._is_as_large(node, own)
        result = next((one for one in norm.users if one.target is operator.getitem), norm)
        kind = f"{basis.kind} and {self.pairs.a.kind(norm)} `{where}`"
        found = of_another_eps(self.search, norm, result, local)
        if found is not None:
            eps, own, apart = found
            why = f"{eps} ({self.pairs.names[1]} has both in one operation)"
            return replace(basis, kind=kind, why=why, is_certain=True, is_sure=True, at=(result, own), ratio=apart)
        variant = next(variants(self.search, node, local, norm), None)
        if variant is not None:
            words, own, apart = variant
            return replace(basis, kind=kind, why=words, is_certain=True, is_sure=True, at=(result, own), ratio=apart)
        return replace(basis, kind=kind, why=why, is_certain=is_one, at=(result, own) if is_one else None)

    def _as_described(self, other: Any) -> str:
        """An operation of B with its attributes, where they have no name in torch, in brackets; else ""."""
        told = "" if isinstance(other, Held) else self.pairs.b.described(other)
        return f" ({self.pairs.names[1]}: {told})" if told else ""

    def _is_part(self, node: fx.Node, own: Any) -> bool:
        """Whether an operation of B has the result of fewer rows of the batch."""
        if own is None:
            return False
        mine, theirs = self.pairs.a.key(node)[1], self.pairs.b.key(own)[1]
        return len(mine) == len(theirs) > 0 and mine[1:] == theirs[1:] and mine[0] > theirs[0]

    def _is_as_large(self, node: fx.Node, own: Any) -> bool:
        """Whether the weights of two operations have the same shape."""
        weights = [side.arguments(one).get("weight") for side, one in ((self.pairs.a, node), (self.pairs.b, own))]
        shapes = {one.shape for one in weights if isinstance(one, Tensor)}
        return len(shapes) <= 1

    def _of_another_kind(self, node: fx.Node, own: Any) -> dict[str, Any]:
        """What is said where no operation of the same kind is at its place in B."""
        names, b, kind = self.pairs.names, self.pairs.b, self.pairs.a.kind(node)
        if own is not None:
            told = self._as_described(own)
            at = (node, self.pairs.at[node]) if node in self.pairs.at else None
            return {
                "why": f"{kind} in {names[0]}, {b.kind(own)} in {names[1]}{told}",
                "is_certain": not told,
                "at": at if not told else None,
            }
        path, shape = self.pairs.a.path(node), self.pairs.a.key(node)[1]
        place = self.pairs.places.get(node, 0)
        taken = set(self.pairs.at.values())
        around = b.nodes[max(0, place - REACH) : place + REACH]
        others = [
            one for one in around if one not in taken and (b.path(one) == path if path else b.key(one)[1] == shape)
        ]
        return {"why": f"{names[1]} {ELSEWHERE if others else 'has no such operation'}"}

    def _stored(self, node: fx.Node, local: Local, basis: Cause) -> Cause | None:
        """The cause where A computes from its own tensors what B holds, and B's numbers are others."""
        held = self.search.held(node)
        plain = local.plain(node) if held else None
        if not isinstance(plain, Tensor) or not plain.is_floating_point() or plain.numel() < _FEW:
            return None
        found = [(one, self.pairs.b.values[one]) for one in held]
        apart = {one: float((lift(value) - plain).abs().max()) for one, value in found if value.shape == plain.shape}
        nearest = min(apart, key=lambda one: apart[one], default=None)
        if nearest is None or apart[nearest] > _NEAR * float(plain.abs().max()):
            return None
        why = f"{self.pairs.names[1]} holds its result, which differs by {apart[nearest]:.2g} at most"
        noise = float((local.noisy(node) - plain).square().mean().sqrt())
        ratio = (
            float((lift(self.pairs.b.values[nearest]) - plain).square().mean().sqrt()) / noise if noise else math.inf
        )
        return replace(basis, why=why, is_certain=True, is_sure=True, at=(node, nearest), ratio=ratio)

    def _missed(self, node: fx.Node, partners: Mapping[fx.Node, Any]) -> Cause | None:
        """The cause at the operation that reads a result which B does not compute, and reads another operand twice."""
        for user in after(node, self.pairs.a.nodes[self.search.places[node] : self.search.places[node] + REACH])[::-1]:
            own, mine = self.pairs.at.get(user), read_by(user)
            if user is node or len(mine) != 2 or not self.pairs.is_of_kind(user, own):
                continue
            theirs = self.pairs.b.operands(own)
            if len(theirs) == 2 and theirs[0] is theirs[1] and mine[0] is not mine[1]:
                is_second = partners.get(mine[0]) is theirs[0]
                names = ("other", "self") if is_second else ("self", "other")
                why = f"{names[0]} is {names[1]} again in {self.pairs.names[1]}"
                name, kind = self.search.name(user), self.pairs.a.kind(user)
                return Cause(name, kind, why, is_certain=True, is_sure=True, at=(user, own))
        return None
