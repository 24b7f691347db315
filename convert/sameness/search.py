"""What is known where the cause of a difference is searched for: partners, B's operations nearby, A's values on B's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ..programs.float64 import evaluated, lift, lifted_arguments
from ..programs.noise import Noise, Precision, noisy
from ..programs.walk import arguments_of
from .pairing import Held, Pairs, source_of

REACH = 20  # operations on either side that may belong to one function
LIKELY = 1.5  # times the distance of the nearest variant: among these, the usual one


class Search:
    """Two graphs, and B's precision.

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
        placeholders = pairs.a.program.graph.graph.find_nodes(op="placeholder")
        self.inputs = dict(zip(placeholders, inputs, strict=True))
        self.places = {node: place for place, node in enumerate(pairs.a.nodes)}
        self.dependent = pairs.a.program.dependent()

    def name(self, node: fx.Node) -> str:
        """The module of one of A's operations, or the operation outside all modules."""
        return self.pairs.a.path(node) or source_of(node).name

    def numbers_near(self, node: fx.Node) -> list[float]:
        """Numbers that B's operations nearby have."""
        place = self.pairs.places.get(node, 0)
        around = self.pairs.b.nodes[max(0, place - REACH) : place + REACH]
        return list(dict.fromkeys(abs(c) for one in around for c in self.pairs.b.numbers(one)))[:REACH]

    def candidates(self, node: fx.Node, shape: torch.Size) -> list[Any]:
        """B's operations whose results may be that of a run which ends with one of A, the likeliest first."""
        b, path, place = self.pairs.b, self.pairs.a.path(node), self.pairs.places.get(node, 0)
        first = [self.pairs.at[node]] if node in self.pairs.at else []
        around = b.nodes[max(0, place - REACH) : place + REACH]
        of_module = [one for one in b.nodes if path and b.path(one) == path][::-1]
        found = dict.fromkeys((*first, *of_module, *around, *self.held(node)))
        values = ((one, b.values.get(one)) for one in found)
        return [
            one
            for one, value in values
            if isinstance(value, Tensor) and value.shape == shape and value.is_floating_point()
        ]

    def held(self, node: fx.Node) -> list[Held]:
        """Tensors that B holds, where an operation reads no input, so that its result may be one of them."""
        return [] if node in self.dependent else [one for one in self.pairs.b.values if isinstance(one, Held)]

    def is_inner(self, node: fx.Node) -> bool:
        """Whether an operation reads no input, and only such ones read it: it may be done before the network runs."""
        return self.dependent.isdisjoint((node, *node.users))

    def others(self, node: fx.Node, shape: torch.Size, x: Tensor) -> list[Any]:
        """The same, without those that give what is read as it is."""
        found = ((one, lift(self.pairs.b.values[one])) for one in self.candidates(node, shape))
        return [one for one, value in found if x.shape != shape or not torch.equal(value, x)]


class Local:
    """Values of A's operations on B's: plain in float64, and with noise.

    Args:
        search: Whose graphs and inputs.
        partners: Operations of B whose values are taken.
        inside: Operations of A that are computed although they have a partner.
    """

    def __init__(
        self, search: Search, partners: Mapping[fx.Node, Any], inside: frozenset[fx.Node] = frozenset()
    ) -> None:
        self._search, self._partners, self._inside = search, partners, inside
        self._noise = Noise.of_one_run(search.precision, search.seed)
        self._plain: dict[fx.Node, Any] = {}
        self._noisy: dict[fx.Node, Any] = {}

    def within(self, region: Sequence[fx.Node]) -> Local:
        """The same, where a run of operations is computed by A alone."""
        return Local(self._search, self._partners, frozenset(region))

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
        """The value of a node, after those that it needs, in the order in which they run."""
        needed, queue = dict[fx.Node, Tensor | None](), [node]
        while queue:
            one = queue.pop()
            if one not in known and one not in needed:
                needed[one] = self._taken(one)
                queue += one.all_input_nodes if needed[one] is None else []
        for one in sorted(needed, key=lambda each: self._search.places.get(each, -1)):
            taken = needed[one]
            if taken is None:
                taken = apply(one, fx.node.map_arg((one.args, one.kwargs), known.__getitem__))
            known[one] = taken
        return known[node]

    def _taken(self, node: fx.Node) -> Any:
        """The value of a node that is not computed: B's, an input, or a tensor of the network; None of others."""
        if node.op == "placeholder":
            return lift(self._search.inputs[node])
        if node.op == "get_attr":
            return lift(self._search.pairs.a.program.tensor(node))
        other = None if node in self._inside else self._partners.get(node)
        value = self._search.pairs.b.values.get(other)
        return lift(value) if isinstance(value, Tensor) else None

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


def after(node: fx.Node, region: Sequence[fx.Node]) -> list[fx.Node]:
    """An operation and those of a run that depend on it, the last one first."""
    found = {node}
    for one in region:
        if not found.isdisjoint(one.all_input_nodes):
            found.add(one)
    return [one for one in reversed(region) if one in found]
