"""Why an operation of A is not B's: what its partner has otherwise, what B has before it, or another function.

Tried in this order: attributes and weights of a partner of the same kind; forms of functions that a run of operations
computes, in A and in B (``forms.py``); operations that B alone has before what the partner reads; variants of a single
operation. All that is tried is tried on B's own values.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from ..programs.float64 import CASTS, evaluated, first_of, lift, lifted_arguments
from ..programs.noise import UNITS, Noise, Precision, noisy
from ..programs.walk import arguments_of, name_of
from .differences import UNKNOWN, Differences, Parted, differences, folded, is_one_kind
from .forms import EPS, EXACT, LARGEST_EPS, Form, Probe, forms, layout, moved, resized
from .pairing import Pairs, read_by, source_of

_REACH = 20  # operations on either side that may belong to one function
_CHAIN = 6  # operations that B may have before what an operation reads
_OPERANDS = 4  # of a run of operations, which are tried
_LIKELY = 1.5  # times the distance of the nearest variant: among these, the usual one
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
_WINDOWS = ("convolution", "max pool2d", "avg pool2d")
_ROTATED = 64  # units that lengths of rotated pairs may be off


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


@dataclass(frozen=True)
class Cause:
    """Why an operation is not B's.

    Attributes:
        name: The module, or the operation outside all modules.
        kind: The operation or function.
        why: What differs.
        is_certain: As in ``Parted``.
        is_sure: Whether no later operation can make up for it.
        at: An operation of A, and that of B which has its place: behind it, both read the same.
        ratio: The difference there, in units of rounding, where it is not that of the operation itself.
    """

    name: str
    kind: str
    why: str
    is_certain: bool = False
    is_sure: bool = False
    at: tuple[fx.Node, Any] | None = None
    ratio: float | None = None

    def parted(self, ratio: float) -> Parted:
        """The operation as it is told, with its difference in units of rounding."""
        own = ratio if self.ratio is None else self.ratio
        return Parted(self.name, self.kind, own, self.why, is_certain=self.is_certain)


class Causes:
    """Causes of differences between two graphs.

    Args:
        pairs: Partners by place and name.
        inputs: A's inputs, in the order of its graph.
        precision: B's.
        threshold: Units that rounding may reach.
        seed: Of the noise.
    """

    def __init__(
        self, pairs: Pairs, inputs: Sequence[Tensor], precision: Precision, threshold: float, seed: int
    ) -> None:
        self.pairs, self.precision, self.threshold, self.seed = pairs, precision, threshold, seed
        self.are_weights_sure = False
        placeholders = pairs.a.program.graph.graph.find_nodes(op="placeholder")
        self._inputs = dict(zip(placeholders, inputs, strict=True))
        self._places = {node: place for place, node in enumerate(pairs.a.nodes)}
        self._theirs = {node: place for place, node in enumerate(pairs.b.nodes)}

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
        basis = Cause(self._name(node), self.pairs.a.kind(node), "")
        norm = folded(node, self.pairs)
        own, local = self.pairs.partner(node), _Local(self, partners)
        if norm is not None:
            with torch.no_grad():
                return self._of_folded(node, norm, basis, local)
        is_one = is_one_kind(node, own, self.pairs) and (
            self.pairs.a.path(node) == self.pairs.b.path(own) or self._is_as_large(node, own)
        )
        found = differences(node, own, self.pairs, partners) if is_one else Differences()
        at = (node, self.pairs.at.get(node)) if is_one and node in self.pairs.at else None
        with torch.no_grad():
            if found.attributes and self.pairs.a.kind(node) not in _WINDOWS:
                return replace(basis, why=found.text, is_certain=True, is_sure=True, at=at)
            variant = next(self._variants(node, local), None) if ratio >= _LARGE else None
            if variant is not None:
                why, other, apart = variant
                return replace(basis, why=why, is_certain=True, is_sure=True, at=(node, other), ratio=apart)
            if found.attributes or found.weights:
                is_sure = self.are_weights_sure or bool(found.attributes)
                return replace(basis, why=found.text, is_certain=True, is_sure=is_sure, at=at)
            written = self._written_out(node, local) if ratio >= self.threshold else None
            if written is not None:
                return written
        if reading is not None and is_one:
            chain = self._chain(reading.other, partners.get(reading.mine))
            if chain:
                why = f"{self.pairs.names[1]} has {chain} before it"
                return replace(basis, why=why, is_certain=True, is_sure=True, at=at)
        if is_one:
            is_typed, told = bool(found.types), self.pairs.b.described(own)
            unknown = f"{UNKNOWN} ({self.pairs.names[1]}: {told})" if told else UNKNOWN
            return replace(basis, why=found.text or unknown, is_certain=is_typed, is_sure=is_typed, at=at)
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
        basis = Cause(self._name(suspect), self.pairs.a.kind(suspect), "")
        cause = self._of_folded(suspect, node, basis, _Local(self, partners))
        return None if cause.at is None else (suspect, cause)

    def behind(self, node: fx.Node, other: Any, ratio: float, partners: Mapping[fx.Node, Any]) -> Parted:
        """What B has behind A's last operation."""
        chain = self._chain(other, partners.get(node)) or self._described([other])
        why = f"{self.pairs.names[1]} has {chain} behind it"
        name, kind = (self._name(node), self.pairs.a.kind(node)) if node.op == "call_function" else ("output", "input")
        return Parted(name, kind, ratio, why, is_certain=True)

    def _name(self, node: fx.Node) -> str:
        return self.pairs.a.path(node) or source_of(node).name

    def _of_folded(self, node: fx.Node, norm: fx.Node, basis: Cause, local: _Local) -> Cause:
        """The cause at a product and the normalisation behind it, which B has in one operation."""
        where = self.pairs.a.path(norm) or norm.name
        why = f"{self.pairs.names[1]} has both in one operation, whose result differs"
        own = self.pairs.at.get(node)
        is_one = self.pairs.is_of_kind(node, own) and self._is_as_large(node, own)
        result = next((one for one in norm.users if one.target is operator.getitem), norm)
        kind = f"{basis.kind} and {self.pairs.a.kind(norm)} `{where}`"
        found = self._of_another_eps(norm, result, local)
        if found is not None:
            eps, own, apart = found
            why = f"{eps} ({self.pairs.names[1]} has both in one operation)"
            return replace(basis, kind=kind, why=why, is_certain=True, is_sure=True, at=(result, own), ratio=apart)
        return replace(basis, kind=kind, why=why, is_certain=True, at=(result, own) if is_one else None)

    def _of_another_eps(self, norm: fx.Node, result: fx.Node, local: _Local) -> tuple[str, Any, float] | None:
        """The eps of a batch norm, in words, with which it gives the result of an operation of B; None where none does."""
        given, plain = arguments_of(norm), local.plain(result)
        own, others = float(given.get("eps") or 0.0), self._candidates(result, plain.shape)
        noise = float((local.noisy(result) - plain).square().mean().sqrt())
        for eps in dict.fromkeys((*EPS, *self._numbers_near(norm))):
            value = first_of(local.with_arguments(norm, {"eps": eps})) if 0 < eps < LARGEST_EPS and eps != own else None
            for other in others if value is not None else ():
                theirs = lift(self.pairs.b.values[other])
                distance, apart = (float((theirs - one).square().mean().sqrt()) for one in (value, plain))
                if distance <= self.threshold * noise and distance < apart / _LIKELY:
                    return f"eps {self.pairs.both(f'{own:g}', f'{eps:g}')}", other, apart / noise
        return None

    def _is_as_large(self, node: fx.Node, own: Any) -> bool:
        """Whether the weights of two operations have the same shape."""
        weights = [side.arguments(one).get("weight") for side, one in ((self.pairs.a, node), (self.pairs.b, own))]
        shapes = {one.shape for one in weights if isinstance(one, Tensor)}
        return len(shapes) <= 1

    def _of_another_kind(self, node: fx.Node, own: Any) -> dict[str, Any]:
        """What is said where no operation of the same kind is at its place in B."""
        names, b, kind = self.pairs.names, self.pairs.b, self.pairs.a.kind(node)
        if own is not None:
            told = b.described(own)
            said = f" ({names[1]}: {told})" if told else ""
            at = (node, self.pairs.at[node]) if node in self.pairs.at else None
            return {
                "why": f"{kind} in {names[0]}, {b.kind(own)} in {names[1]}{said}",
                "is_certain": not told,
                "at": at if not told else None,
            }
        path, shape = self.pairs.a.path(node), self.pairs.a.key(node)[1]
        place = self.pairs.places.get(node, 0)
        taken = set(self.pairs.at.values())
        around = b.nodes[max(0, place - _REACH) : place + _REACH]
        others = [
            one for one in around if one not in taken and (b.path(one) == path if path else b.key(one)[1] == shape)
        ]
        return {"why": f"{names[1]} computes it in other operations" if others else f"{names[1]} has no such operation"}

    def _missed(self, node: fx.Node, partners: Mapping[fx.Node, Any]) -> Cause | None:
        """The cause at the operation that reads a result which B does not compute, and reads another operand twice."""
        for user in _after(node, self.pairs.a.nodes[self._places[node] : self._places[node] + _REACH])[::-1]:
            own = self.pairs.at.get(user)
            if user is not node and self.pairs.is_of_kind(user, own):
                again = [text for text in differences(user, own, self.pairs, partners).operands if " again in " in text]
                if again:
                    kind = self.pairs.a.kind(user)
                    return Cause(self._name(user), kind, again[0], is_certain=True, is_sure=True, at=(user, own))
        return None

    # Operations that only B has.

    def _chain(self, other: Any, expected: Any) -> str:
        """The operations of B that lead from one of them to another, in words; "" where none do."""
        paths: list[list[Any]] = [[other]]
        for _ in range(_CHAIN):
            longer: list[list[Any]] = []
            for path in paths:
                if path[-1] is expected:
                    return self._described(path[-2::-1])
                before = [None] if path[-1] is None else self.pairs.b.operands(path[-1])
                longer += [[*path, one] for one in before if one is not None or expected is None]
            paths = longer[:_REACH]
        return ""

    def _described(self, nodes: Sequence[Any]) -> str:
        """Operations of B in words: casts by what they cast to, others with their numbers."""
        found: list[str] = []
        for node in nodes:
            if self._is_cast(node):
                found.append(f"a cast to {str(self.pairs.b.dtype(node)).removeprefix('torch.')}")
            else:
                numbers = ", ".join(f"{one:g}" for one in self.pairs.b.numbers(node))
                found.append(f"{self.pairs.b.kind(node)}{f' ({numbers})' if numbers else ''}")
        casts = [one for one in found if one.startswith("a cast")]
        if len(casts) == len(found) and len(casts) > 1:
            found = casts[:1]  # and back
        return ", ".join(found)

    def _is_cast(self, node: Any) -> bool:
        return name_of(node) in CASTS if isinstance(node, fx.Node) else self.pairs.b.kind(node) == "cast"

    # Variants of one operation.

    def _variants(self, node: fx.Node, local: _Local) -> Iterator[tuple[str, Any, float]]:
        """What differs in words, B's operation and its difference, for variants of an operation that B computes."""
        tried = list(self._tried(node, local))
        if not tried:
            return
        plain = local.plain(node)
        noise = float((local.noisy(node) - plain).square().mean().sqrt())
        for why, value in tried:
            for other in self._candidates(node, plain.shape):
                theirs = lift(self.pairs.b.values[other])
                distance, apart = (float((theirs - one).square().mean().sqrt()) for one in (value, plain))
                if distance <= self.threshold * noise:
                    yield why, other, apart / noise

    def _tried(self, node: fx.Node, local: _Local) -> Iterator[tuple[str, Tensor]]:
        """Variants of an operation, in words, and what they give."""
        kind, given = self.pairs.a.kind(node), arguments_of(node)
        if kind in _WINDOWS and isinstance(given.get("padding"), list | tuple) and given.get("ceil_mode") is not True:
            x, fill = local.plain(node.all_input_nodes[0]), 0.0 if kind != "max pool2d" else -torch.inf
            padding = [int(one) for one in given["padding"]]
            padding = padding * (x.ndim - 2) if len(padding) == 1 else padding
            for words, value in moved(x, padding, lambda one: local.without_padding(node, one), fill):
                is_moved = words.startswith("the map")
                yield words if is_moved else f"padded {self.pairs.both('with zeros', words)}", value
        elif kind.startswith("upsample") and not self._is_named(node, "upsample"):
            yield from self._resized(node, local)
        elif kind in ("add", "sub") and len(read_by(node)) == 2:
            one, two = (local.plain(each) for each in read_by(node))
            own, sign = float(given.get("alpha", 1)), 1.0 if kind == "add" else -1.0
            for alpha in dict.fromkeys((1.0, *self._numbers_near(node), 0.0)):
                if alpha != own:
                    yield f"alpha {self.pairs.both(f'{own:g}', f'{alpha:g}')}", one + sign * alpha * two
        elif kind == "attention":
            yield from self._attended(node, given, local)

    def _is_named(self, node: fx.Node, kind: str) -> bool:
        """Whether the partner has a name of its own for another operation of this kind."""
        own = self.pairs.at.get(node)
        return own is not None and self.pairs.b.kind(own).startswith(kind) and not self.pairs.is_of_kind(node, own)

    def _resized(self, node: fx.Node, local: _Local) -> Iterator[tuple[str, Tensor]]:
        """An interpolation by another kernel, coefficient or grid."""
        plain = local.plain(node)
        variants = list(resized(local.plain(node.all_input_nodes[0]), plain.shape[2:]))
        own = next((words for words, value in variants if _is_exact(value, plain)), None)
        if own is None:
            return
        for words, value in variants:
            names = [name for name in own if words.get(name, own[name]) != own[name]]
            if names:
                yield "; ".join(f"{name} {self.pairs.both(own[name], words[name])}" for name in names), value

    def _attended(self, node: fx.Node, given: Mapping[str, Any], local: _Local) -> Iterator[tuple[str, Tensor]]:
        """Attention with another scale or mask."""
        query, key, value = (local.plain(given[name]) for name in ("query", "key", "value"))
        if given.get("attn_mask") is not None or given.get("enable_gqa"):
            return
        usual = query.shape[-1] ** -0.5
        own = usual if given.get("scale") is None else float(given["scale"])
        for scale in dict.fromkeys(
            (usual, 1.0, *self._numbers_near(node), *(1 / c for c in self._numbers_near(node) if c))
        ):
            if scale != own:
                found = F.scaled_dot_product_attention(
                    query, key, value, is_causal=bool(given["is_causal"]), scale=scale
                )
                yield f"scale {self.pairs.both(f'{own:g}', f'{scale:g}')}", found
        found = F.scaled_dot_product_attention(query, key, value, is_causal=not given["is_causal"], scale=own)
        yield f"is_causal {self.pairs.both(given['is_causal'], not given['is_causal'])}", found

    def _numbers_near(self, node: fx.Node) -> list[float]:
        """Numbers that B's operations nearby have."""
        place = self.pairs.places.get(node, 0)
        around = self.pairs.b.nodes[max(0, place - _REACH) : place + _REACH]
        return list(dict.fromkeys(abs(c) for one in around for c in self.pairs.b.numbers(one)))[:_REACH]

    def _candidates(self, node: fx.Node, shape: torch.Size) -> list[Any]:
        """B's operations whose results may be that of a run which ends with one of A, the likeliest first."""
        b, path, place = self.pairs.b, self.pairs.a.path(node), self.pairs.places.get(node, 0)
        first = [self.pairs.at[node]] if node in self.pairs.at else []
        around = b.nodes[max(0, place - _REACH) : place + _REACH]
        of_module = [one for one in b.nodes if path and b.path(one) == path][::-1]
        found = dict.fromkeys((*first, *of_module, *around))
        values = ((one, b.values.get(one)) for one in found)
        return [
            one
            for one, value in values
            if isinstance(value, Tensor) and value.shape == shape and value.is_floating_point()
        ]

    def _others(self, node: fx.Node, shape: torch.Size, x: Tensor) -> list[Any]:
        """The same, without those that give what is read as it is."""
        found = ((one, lift(self.pairs.b.values[one])) for one in self._candidates(node, shape))
        return [one for one, value in found if x.shape != shape or not torch.equal(value, x)]

    # Functions that are written out.

    def _written_out(self, node: fx.Node, local: _Local) -> Cause | None:
        """The cause where a run of operations around one of A is a function of the vocabulary, and another in B."""
        region = self._region(node)
        local = local.within(region)
        found = self._function(node, region, local)
        if found is None:
            return self._rotated(node, region, local)
        read, end, form = found
        x, plain = local.plain(read), local.plain(end)
        probe = Probe(plain.shape, plain.device)
        noise = float((probe(local.noisy(end)) - probe(plain)).square().mean().sqrt())
        others = self._others(end, plain.shape, x)
        if not others or not noise:
            return None
        theirs = torch.stack([probe(lift(self.pairs.b.values[one])) for one in others])
        constants = [*self._constants(region), *self._numbers_near(end)]
        near: list[tuple[float, Form, Any]] = []
        for other_form, value in forms(x, probe, constants, self._tensors(region), form):
            distances = (theirs - value).square().mean(1).sqrt() / (self.threshold * noise)
            near += [
                (float(distances[place]), other_form, others[place]) for place in distances.le(1).nonzero().flatten()
            ]
        if not near:
            return None
        least = min(distance for distance, *_ in near)
        _, other_form, other = next(one for one in near if one[0] <= max(_LIKELY * least, 1e-3))
        why = form.beside(other_form, self.pairs.both)
        if not why:
            return None
        kind = self.pairs.a.kind(node) if end is node else form.name
        apart = float((probe(lift(self.pairs.b.values[other])) - probe(plain)).square().mean().sqrt()) / noise
        return Cause(self._name(end), kind, why, is_certain=True, is_sure=True, at=(end, other), ratio=apart)

    def _region(self, node: fx.Node) -> list[fx.Node]:
        """The operations around one that run one after another in the same module."""
        nodes, place, path = self.pairs.a.nodes, self._places[node], self.pairs.a.path(node)
        start = end = place
        while start > max(0, place - _REACH) and self.pairs.a.path(nodes[start - 1]) == path:
            start -= 1
        while end < min(len(nodes), place + _REACH) - 1 and self.pairs.a.path(nodes[end + 1]) == path:
            end += 1
        return nodes[start : end + 1]

    def _function(
        self, node: fx.Node, region: Sequence[fx.Node], local: _Local
    ) -> tuple[fx.Node, fx.Node, Form] | None:
        """What a run of operations that holds one of A reads, its end, and the function that it is; None of others."""
        ends = [end for end in _after(node, region) if _is_map(local.shown(end))]
        found: tuple[fx.Node, fx.Node, Form] | None = None
        for read in self._read(node, region):
            shape = local.shown(read)
            fitting = [end for end in ends if end is not read and _shape(local.shown(end)) == _shape(shape)]
            if not _is_map(shape) or not fitting:
                continue
            x = local.plain(read)
            probe = Probe(x.shape, x.device)
            values = torch.stack([probe(local.plain(end)) for end in fitting])
            allowed = values.abs().amax(1).clamp_min(1e-300) * EXACT
            for form, value in forms(x, probe, self._constants(region), self._tensors(region)):
                if form.name == "no activation":
                    continue
                fits = ((values - value).abs().amax(1) <= allowed).nonzero().flatten().tolist()
                for place in fits:
                    end = fitting[place]
                    if found is None or self._places[end] > self._places[found[1]]:
                        found = read, end, form
        return found

    def _read(self, node: fx.Node, region: Sequence[fx.Node]) -> list[fx.Node]:
        """What a run of operations up to one of A reads from outside, and the operations in it, the nearest first."""
        before, queue = dict.fromkeys(read_by(node)), list(read_by(node))
        inside = set(region)
        while queue:
            one = queue.pop(0)
            if one in inside:
                more = [each for each in read_by(one) if each not in before]
                before |= dict.fromkeys(more)
                queue += more
        large = [one for one in before if _is_map(one.meta.get("val"))]
        return large[: 2 * _OPERANDS]

    def _constants(self, region: Sequence[fx.Node]) -> list[float]:
        return list(dict.fromkeys(c for one in region for c in self.pairs.a.numbers(one)))

    def _tensors(self, region: Sequence[fx.Node]) -> list[Tensor]:
        """Tensors of the network that operations read."""
        held = self.pairs.a.program.tensors
        names = dict.fromkeys(one.name for node in region for one in node.all_input_nodes if one.op == "get_attr")
        found = [held[name] for name in names if isinstance(held.get(name), Tensor)]
        return [one for one in found if one.ndim and one.is_floating_point()][:_OPERANDS]

    def _rotated(self, node: fx.Node, region: Sequence[fx.Node], local: _Local) -> Cause | None:
        """The cause where channels are rotated in other pairs."""
        unit = UNITS.get(self.precision.dtype or self.pairs.a.dtype(node) or torch.float32, UNITS[torch.float32])
        for end in _after(node, region):
            value = local.shown(end)
            if not _is_map(value):
                continue
            for read in self._read(node, region):
                if _shape(local.shown(read)) != _shape(value) or read is end:
                    continue
                x = local.plain(read)
                own = layout(x, local.plain(end), EXACT)
                if own is None:
                    continue
                for other in self._candidates(end, x.shape):
                    theirs = layout(x, lift(self.pairs.b.values[other]), _ROTATED * unit)
                    if theirs is not None and theirs != own:
                        words = f"pairs of channels are {self.pairs.both(own, theirs)}, the other RoPE layout"
                        at = (end, other)
                        return Cause(self._name(end), "rotary positions", words, is_certain=True, is_sure=True, at=at)
        return None


class _Local:
    """Values of A's operations on B's: plain in float64, and with noise.

    Args:
        causes: Whose graphs and inputs.
        partners: Operations of B whose values are taken.
        inside: Operations of A that are computed although they have a partner.
    """

    def __init__(
        self, causes: Causes, partners: Mapping[fx.Node, Any], inside: frozenset[fx.Node] = frozenset()
    ) -> None:
        self._causes, self._partners, self._inside = causes, partners, inside
        self._noise = Noise(causes.precision, causes.seed)
        self._plain: dict[fx.Node, Any] = {}
        self._noisy: dict[fx.Node, Any] = {}

    def within(self, region: Sequence[fx.Node]) -> _Local:
        """The same, where a run of operations is computed by A alone."""
        return _Local(self._causes, self._partners, frozenset(region))

    def shown(self, node: fx.Node) -> Any:
        """A value of the shape and type of an operation's, as it was recorded."""
        return node.meta.get("val")

    def plain(self, node: fx.Node) -> Any:
        """The value in float64."""
        return self._value(node, self._plain, lambda one, given: evaluated(one, given[0], given[1]))

    def noisy(self, node: fx.Node) -> Any:
        """The value, moved by noise."""
        return self._value(node, self._noisy, lambda one, given: noisy(one, given[0], given[1], self._noise))

    def _value(self, node: fx.Node, known: dict[fx.Node, Any], apply: Any) -> Any:
        if node in known:
            return known[node]
        values, program = self._causes.pairs.b.values, self._causes.pairs.a.program
        other = self._partners.get(node)
        taken = values.get(other) if other is not None and node not in self._inside else None
        if isinstance(taken, Tensor):
            found = lift(taken)
        elif node.op == "placeholder":
            found = lift(self._causes._inputs[node])
        elif node.op == "get_attr":
            found = lift(program.tensors.get(node.name, getattr(program.graph, str(node.target), None)))
        else:
            found = apply(node, fx.node.map_arg((node.args, node.kwargs), lambda one: self._value(one, known, apply)))
        known[node] = found
        return found

    def without_padding(self, node: fx.Node, x: Tensor) -> Tensor:
        """The result of a window that slides over a map which is padded already."""
        name = node.target._schema.arguments[0].name  # type: ignore[union-attr]
        found: Tensor = self.with_arguments(node, {name: x, "padding": [0] * (x.ndim - 2)})
        return found

    def with_arguments(self, node: fx.Node, changed: Mapping[str, Any]) -> Any:
        """The result of an operation with other arguments."""
        target: Any = node.target
        given = fx.node.map_arg(arguments_of(node), self.plain) | dict(changed)
        schema = target._schema.arguments
        placed = [lift(given[one.name]) for one in schema if not one.kwarg_only]
        return lifted_arguments(
            target(*placed, **{one.name: lift(given[one.name]) for one in schema if one.kwarg_only})
        )


def _after(node: fx.Node, region: Sequence[fx.Node]) -> list[fx.Node]:
    """An operation and those of a run that depend on it, the last one first."""
    found = {node}
    for one in region:
        if not found.isdisjoint(one.all_input_nodes):
            found.add(one)
    return [one for one in reversed(region) if one in found]


def _is_map(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1


def _shape(value: Any) -> torch.Size | None:
    return value.shape if isinstance(value, Tensor) else None


def _is_exact(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= EXACT * other.abs().max())
