"""Where two graphs part: each operation of A is computed again in float64 on B's values.

B's values are noted as B computes them. A is walked through in float64, twice at once: plainly, and with noise as large
as B's rounding usually is. Where the result is as near to B's as noise explains, B's value takes its place: so what
follows is held against B on B's own inputs, and one wrong operation does not blame its successors. Where it is not, the
walk goes on with A's value, and the operation is under suspicion until those that read it agree again: a batch norm
that was folded into its convolution clears the convolution. What reaches an output under suspicion is named.

A partner of an operation is the one at the same place of both lists of operations (longest common subsequence of names
and shapes); else one of the same shape nearby, whose values are near enough.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

from ..certificate.network.program import name_of
from .sides import Inputs
from .truth import Graph, evaluated, first_of, lift, plainly
from .typical import Noise, Precision, Scale, Typical, noisy

_NEARBY = 12  # operations on either side of the own place that may be a partner
_PROBED = 256  # numbers that tell quickly that two tensors are not near
_NAMED = 8  # operations that are listed
_WORDS = {
    "_native_batch_norm_legit_no_training": "batch norm",
    "batch_norm": "batch norm",
    "layer_norm": "layer norm",
    "native_layer_norm": "layer norm",
    "group_norm": "group norm",
    "native_group_norm": "group norm",
    "scaled_dot_product_attention": "attention",
}


@dataclass(frozen=True)
class Parted:
    """An operation at which the two sides part.

    Attributes:
        name: Its module, or the operation where it is in no module of its own.
        kind: The operation.
        ratio: Its difference, on the same inputs, in units of what rounding does there.
        why: What differs there.
    """

    name: str
    kind: str
    ratio: float
    why: str

    def __str__(self) -> str:
        """The place, the operation and what differs."""
        return f"`{self.name}` ({self.kind}): {self.why}"


@dataclass(frozen=True)
class _Twin:
    """A value of A on B's inputs, plain and with noise; the suspects that it depends on."""

    plain: Any
    noisy: Any
    suspects: frozenset[fx.Node] = frozenset()


@dataclass
class _Pairs:
    """Partners of A's operations among B's."""

    a: Graph
    b: Graph
    values: dict[fx.Node, Any]
    names: tuple[str, str] = ("A", "B")
    at: dict[fx.Node, fx.Node] = field(default_factory=dict)
    places: dict[fx.Node, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ours, theirs = self.a.nodes, self.b.nodes
        keys = [[_key(node) for node in nodes] for nodes in (ours, theirs)]
        matcher = difflib.SequenceMatcher(None, keys[0], keys[1], autojunk=False)
        for _, i, i_end, j, j_end in matcher.get_opcodes():
            for place in range(i, i_end):
                self.places[ours[place]] = min(j + place - i, len(theirs) - 1)
            if i_end - i == j_end - j:
                self.at |= zip(ours[i:i_end], theirs[j:j_end], strict=True)
            else:
                self._unequal(ours[i:i_end], theirs[j:j_end])

    def _unequal(self, ours: list[fx.Node], theirs: list[fx.Node]) -> None:
        """Pairs operations of blocks of unequal lengths, in their order, by module and operation."""
        left = list(theirs)
        for node in ours:
            same = [one for one in left if (self.b.path(one), _key(one)[1]) == (self.a.path(node), _key(node)[1])]
            if same and name_of(same[0]) == name_of(node):
                self.at[node] = same[0]
                left = left[left.index(same[0]) + 1 :]

    def both(self, one: object, other: object) -> str:
        """The values of A and B, in this order."""
        ordered = (one, other) if self.names[0] == "A" else (other, one)
        return f"{ordered[0]} and {ordered[1]}"

    def nearby(self, node: fx.Node) -> list[fx.Node]:
        """B's operations of the same shape, its partner first, then the nearest."""
        place, theirs = self.places.get(node, 0), self.b.nodes
        around = theirs[max(0, place - _NEARBY) : place + _NEARBY]
        around.sort(key=lambda one: abs(theirs.index(one) - place))
        first = [self.at[node]] if node in self.at else []
        return first + [one for one in around if one not in first and _key(one)[1] == _key(node)[1]]


def _key(node: fx.Node) -> tuple[str, tuple[int, ...]]:
    value = first_of(node.meta.get("val"))
    shape = tuple(int(size) for size in value.shape) if isinstance(value, Tensor) else ()
    return ("getitem" if node.target is operator.getitem else name_of(node)), shape


class _Walk(fx.Interpreter):
    """A on B's values.

    Args:
        pairs: Partners.
        precision: B's.
        threshold: Units that rounding may reach.
        seed: Of the noise.
        is_eager: Whether a suspect with a partner takes the partner's value at once.
    """

    def __init__(self, pairs: _Pairs, precision: Precision, threshold: float, seed: int, *, is_eager: bool) -> None:
        super().__init__(pairs.a.exported.graph_module)
        self.extra_traceback = False
        self._pairs, self._threshold, self._is_eager = pairs, threshold, is_eager
        self._noise = Noise(precision, seed)
        self.suspects: dict[fx.Node, float] = {}
        self.cleared: set[fx.Node] = set()
        self.partners: dict[fx.Node, fx.Node] = {}
        self.left: frozenset[fx.Node] = frozenset()

    def run_node(self, n: fx.Node) -> Any:
        if n.op == "output":
            args, _ = self.fetch_args_kwargs_from_env(n)
            self.left = _suspects(args)
            return args
        if n.op != "call_function":
            return super().run_node(n)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        suspects = _suspects((args, kwargs))
        plain = evaluated(n, *_side((args, kwargs), "plain"))
        moved_args, moved_kwargs = _side((args, kwargs), "noisy")
        moved = noisy(n, moved_args, moved_kwargs, self._noise)
        if not isinstance(plain, Tensor) or not plain.is_floating_point() or not plain.numel():
            return _Twin(plain, moved, suspects)
        return self._held(n, _Twin(plain, moved, suspects))

    def _held(self, node: fx.Node, twin: _Twin) -> _Twin:
        """B's value where it is as near as noise explains; else A's, with one suspect more."""
        ratio, partner, value = self._nearest(node, twin)
        if partner is not None and ratio <= self._threshold:
            self.partners[node] = partner
            self.cleared |= twin.suspects
            return _Twin(value, value)
        if twin.suspects and not self._is_eager:
            return twin
        self.suspects[node] = ratio
        own = self._pairs.at.get(node)
        if self._is_eager and own is not None and own in self._pairs.values:
            value = self._pairs.values[own]
            if isinstance(value, Tensor) and value.shape == twin.plain.shape:
                self.partners[node] = own
                return _Twin(lift(value), lift(value))
        return replace(twin, suspects=frozenset([node]))

    def _nearest(self, node: fx.Node, twin: _Twin) -> tuple[float, fx.Node | None, Any]:
        """The ratio of the partner, or of the first of those nearby that is near enough."""
        scale = Scale.like(twin.plain)
        scale.add(twin.noisy, twin.plain)
        own: tuple[float, fx.Node | None, Any] = (math.inf, None, None)
        for place, other in enumerate(self._pairs.nearby(node)):
            value = self._pairs.values.get(other)
            if not isinstance(value, Tensor) or value.shape != twin.plain.shape or not value.is_floating_point():
                continue
            if place and not _is_near(value, twin, self._threshold):
                continue
            wide = lift(value)
            ratio = max(scale.ratios((wide - twin.plain).nan_to_num(math.inf)))
            if ratio <= self._threshold:
                return ratio, other, wide
            if other is self._pairs.at.get(node):
                own = ratio, other, wide
        return own


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
    a: Graph,
    b: Graph,
    inputs: tuple[Inputs, Inputs],
    precision: Precision,
    threshold: float,
    *,
    seed: int = 0,
    names: tuple[str, str] = ("A", "B"),
) -> tuple[Parted, ...]:
    """The operations of A whose results on B's values rounding does not explain, in the order in which they run.

    Args:
        a: The graph that says the truth.
        b: The other.
        inputs: The inputs of each.
        precision: B's.
        threshold: Units that rounding may reach.
        seed: Of the noise.
        names: Those of the two sides.
    """
    pairs = _Pairs(a, b, b.unlifted(inputs[1].args, inputs[1].kwargs), names)
    walk = _walked(pairs, inputs[0], precision, threshold, seed, is_eager=False)
    left = [node for node in walk.suspects if node in walk.left]
    if left and not walk.cleared:  # so operations are the same one by one, and each can be held against its partner
        walk = _walked(pairs, inputs[0], precision, threshold, seed, is_eager=True)
        left = list(walk.suspects)
    return tuple(_parted(node, walk, pairs) for node in left[:_NAMED])


def _walked(
    pairs: _Pairs, inputs: Inputs, precision: Precision, threshold: float, seed: int, *, is_eager: bool
) -> _Walk:
    walk = _Walk(pairs, precision, threshold, seed, is_eager=is_eager)
    with torch.no_grad(), plainly():
        walk.run(*pairs.a.inputs(inputs.args, inputs.kwargs))
    return walk


def where_modules_part(
    graph: Graph, typical: Typical, blocks: Mapping[str, Tensor], threshold: float
) -> tuple[Parted, ...]:
    """The first module of a black box whose output leaves rounding, of those that the graph has by the same name."""
    for name, node in graph.module_ends.items():
        if name not in blocks or node not in typical.inner:
            continue
        truth, scale = typical.inner[node]
        if blocks[name].shape == truth.shape:
            ratio = max(scale.ratios((blocks[name].double() - truth).nan_to_num(math.inf)))
            if not ratio <= threshold:
                return (Parted(name, _kind(node), ratio, "the first module whose output leaves rounding"),)
    return ()


def _parted(node: fx.Node, walk: _Walk, pairs: _Pairs) -> Parted:
    source = node.all_input_nodes[0] if node.target is operator.getitem else node
    partner = pairs.at.get(source)
    name = pairs.a.path(source) or source.name
    why = f"{pairs.names[1]} has no such operation" if partner is None else _differences(source, partner, walk, pairs)
    return Parted(name, _kind(source), walk.suspects[node], why)


def _kind(node: fx.Node) -> str:
    """An operation in words."""
    source = node.all_input_nodes[0] if node.target is operator.getitem else node
    return _WORDS.get(name_of(source), name_of(source).strip("_").replace("_", " "))


def _differences(one: fx.Node, other: fx.Node, walk: _Walk, pairs: _Pairs) -> str:
    """Differences between an operation of A and its partner of B."""
    if name_of(one) != name_of(other):
        return f"{_kind(one)} in {pairs.names[0]}, {_kind(other)} in {pairs.names[1]}"
    types = [first_of(node.meta.get("val")).dtype for node in (one, other)]
    if types[0] != types[1]:
        return f"computed in {pairs.both(*map(_short, types))}"
    return "; ".join(_arguments(one, other, walk, pairs)) or "the operation is the same, and its result is not"


def _short(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _arguments(one: fx.Node, other: fx.Node, walk: _Walk, pairs: _Pairs) -> list[str]:
    named = [_named(node) for node in (one, other)]
    return [text for name in named[0] for text in _compared(name, named[0][name], named[1].get(name), walk, pairs)]


def _named(node: fx.Node) -> dict[str, Any]:
    """An operation's arguments by name, with defaults."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return {str(place): value for place, value in enumerate(node.args)} | dict(node.kwargs)
    schema = target._schema.arguments
    given = dict(zip((argument.name for argument in schema), node.args, strict=False)) | dict(node.kwargs)
    return {argument.name: given.get(argument.name, argument.default_value) for argument in schema}


def _compared(name: str, one: Any, other: Any, walk: _Walk, pairs: _Pairs) -> list[str]:
    """Differences in an argument: a tensor that a side holds, another operation's result, or an attribute."""
    if (one is None) != (other is None):
        return [f"no {name} in {pairs.names[0 if one is None else 1]}"]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and _holds_nodes(one):
        return _listed(name, list(one), list(other), walk, pairs)
    if isinstance(one, fx.Node) and isinstance(other, fx.Node):
        ours, theirs = pairs.a.tensors.get(one.name), pairs.b.tensors.get(other.name)
        if isinstance(ours, Tensor) and isinstance(theirs, Tensor):
            return _tensors(name, ours, theirs, pairs)
        expected = walk.partners.get(one)
        if expected is None or theirs is not None or _is_same(expected, other, pairs):
            return []
        return [f"{name} is another operation's result"]
    if isinstance(one, fx.Node) or isinstance(other, fx.Node):
        return [f"{name} is computed in one of them only"]
    return [] if one == other else [f"{name} {pairs.both(_shown(one), _shown(other))}"]


def _holds_nodes(values: Any) -> bool:
    return any(isinstance(value, fx.Node) for value in values)


def _is_same(expected: fx.Node, other: fx.Node, pairs: _Pairs) -> bool:
    """Whether two operations of B give the same numbers."""
    a, b = pairs.values.get(expected), pairs.values.get(other)
    return expected is other or (isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b))


def _listed(name: str, one: list[Any], other: list[Any], walk: _Walk, pairs: _Pairs) -> list[str]:
    """Differences in a list of results, such as the parts of a concatenation."""
    if len(one) != len(other):
        return [f"{pairs.both(len(one), len(other))} {name}"]
    expected = [walk.partners.get(node) for node in one]
    if expected != other and set(expected) == set(other):
        return [f"{name} are in another order"]
    return []


def _tensors(name: str, one: Tensor, other: Tensor, pairs: _Pairs) -> list[str]:
    """How many numbers of a tensor differ, and by how much."""
    if one.shape != other.shape:
        return [f"{name} {pairs.both(list(one.shape), list(other.shape))}"]
    apart = (one.detach().double() - other.detach().double()).abs()
    count = int((apart != 0).sum())
    if not count:
        return []
    form = "" if one.dtype == other.dtype else f", {pairs.both(_short(one.dtype), _short(other.dtype))}"
    return [f"{count:,} of {one.numel():,} numbers of {name} differ, by {float(apart.max()):.2g} at most{form}"]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else _short(value)
