"""Choices among scores in a program: top k, arg max, a sort; and the program with its choices held."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ..errors import ConversionError, first_line
from ..programs.float64 import Lifted, lift
from ..programs.program import Noted, Program
from ..programs.walk import VALUE, arguments_of, module_of, name_of
from .given import Inputs

_PLACES = {"topk": 1, "sort": 1, "max": 1, "min": 1}  # which of several results has the places
_PLACES_ALONE = ("argmax", "argmin", "argsort")
_SORTS = ("sort", "argsort")


@dataclass(frozen=True)
class Choice:
    """An operation that chooses, of each row of scores.

    Attributes:
        node: The operation.
        index: The node that has the places it chose.
        taken: These places, as the side itself chose.
        scores: What the side itself chose among, in float64.
    """

    node: fx.Node
    index: fx.Node
    taken: Tensor
    scores: Tensor

    @property
    def name(self) -> str:
        """The operation's name."""
        return name_of(self.node)

    @property
    def dim(self) -> int:
        """The axis of the scores, counted from the end."""
        given = arguments_of(self.node).get("dim")
        return -1 if given is None else int(given) - self.scores.ndim * (int(given) >= 0)

    @property
    def _keeps_axis(self) -> bool:
        return self.taken.ndim == self.scores.ndim

    def rows(self, taken: Tensor) -> Tensor:
        """Places as rows, [rows, chosen]."""
        whole = taken if self._keeps_axis else taken.unsqueeze(self.dim)
        return whole.movedim(self.dim, -1).flatten(0, -2)

    def sets(self, taken: Tensor) -> Tensor:
        """The same; of a top k in ascending order, as it is no other choice in another order."""
        return self.rows(taken).sort(-1).values if self.name == "topk" else self.rows(taken)

    def _preferred(self, scores: Tensor) -> Tensor:
        """Scores as rows, of which the largest are chosen, or come first."""
        given = arguments_of(self.node)
        is_least = self.name in ("min", "argmin") or given.get("largest") is False
        is_ascending = self.name in _SORTS and not given.get("descending", False)
        rows = scores.movedim(self.dim, -1).flatten(0, -2)
        return -rows if is_least or is_ascending else rows

    def gaps(self, taken: Tensor, scores: Tensor) -> Tensor:
        """How far scores prefer these places to the next best ones, [rows]; negative where they prefer others."""
        rows, places = self._preferred(scores), self.rows(taken)
        if self.name in _SORTS:
            ordered = rows.gather(-1, places)
            return (
                (ordered[:, :-1] - ordered[:, 1:]).amin(-1)
                if ordered.shape[-1] > 1
                else rows.new_full((len(rows),), torch.inf)
            )
        chosen = torch.zeros_like(rows, dtype=torch.bool).scatter_(-1, places, True)
        return torch.where(chosen, rows, torch.inf).amin(-1) - torch.where(chosen, -torch.inf, rows).amax(-1)

    def turned(self, taken: Tensor, scores: Tensor, row: int) -> Tensor | None:
        """These places with the least preferred one of a row replaced by the next best, or None of a sort."""
        if self.name in _SORTS:
            return None
        rows, places = self._preferred(scores)[row], self.rows(taken).clone()
        is_chosen = torch.zeros_like(rows, dtype=torch.bool).scatter_(-1, places[row], True)
        last = torch.where(is_chosen, rows, torch.inf).argmin()
        best = torch.where(is_chosen, -torch.inf, rows).argmax()
        places[row] = torch.where(places[row] == last, best, places[row])
        moved = taken if self._keeps_axis else taken.unsqueeze(self.dim)
        shape = moved.movedim(self.dim, -1).shape
        found = places.view(shape).movedim(-1, self.dim)
        return found if self._keeps_axis else found.squeeze(self.dim)

    def __str__(self) -> str:
        return f"`{module_of(self.node) or self.node.name}` ({self.name})"


def choices_of(program: Program, given: Inputs) -> list[Choice]:
    """The choices of a run, in their order, on which something further on depends; none that are outputs themselves."""
    depends, ends = program.dependent(), set(program.graph.graph.output_node().all_input_nodes)
    found = [(node, _index_of(node)) for node in program.nodes if node in depends]
    indices = [(node, index) for node, index in found if index is not None and index not in ends]
    if not indices:
        return []
    tensors, noted = program.inputs(given.args, given.kwargs), Noted(program)
    with torch.no_grad():
        noted.run(*tensors)
    values: dict[fx.Node, Any] = {**noted.values, **dict(zip(_placeholders(program), tensors, strict=True))}
    return [
        Choice(node, index, values[index], lift(scores))
        for node, index in indices
        if isinstance(scores := values.get(node.all_input_nodes[0]), Tensor)
        and scores.is_floating_point()
        and scores.ndim > 1
    ]


def _placeholders(program: Program) -> list[fx.Node]:
    return list(program.graph.graph.find_nodes(op="placeholder"))


def _index_of(node: fx.Node) -> fx.Node | None:
    """The node of the places that an operation chooses, where something reads it."""
    name = name_of(node)
    if name in _PLACES_ALONE:
        return node if node.users and (name == "argsort" or arguments_of(node).get("dim") is not None) else None
    of = [user for user in node.users if user.target is operator.getitem and user.args[1] == _PLACES.get(name)]
    return next((one for one in of if one.users), None)


@dataclass(frozen=True)
class Held:
    """A program whose choices are held.

    Attributes:
        program: It.
        of: Its nodes, by those of the program that chooses.
    """

    program: Program
    of: Mapping[fx.Node, fx.Node]


def held(program: Program, choices: Sequence[Choice], taken: Sequence[Tensor]) -> Held:
    """A program that takes these places in the first of its choices."""
    old, graph, of = program.graph, fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(old.graph, of))
    module = fx.GraphModule(old, graph)
    tensors = {of[node].name: program.tensors[node.name] for node in of if node.name in program.tensors}
    for number, (choice, places) in enumerate(zip(choices, taken, strict=False)):
        node, index = of[choice.node], of[choice.index]
        name = f"held_choice_{number}"
        module.register_buffer(name, places, persistent=False)
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        constant.meta, tensors[constant.name] = {**index.meta}, places
        if choice.index is not choice.node:
            _gathered(graph, choice, node, constant)
        index.replace_all_uses_with(constant)
    module.recompile()
    names = {of[node].name: program.names[node.name] for node in of if node.name in program.names}
    found = Program(module, tensors, names=names, writes=program.writes, results=program.results)
    found.reads = program.reads
    return Held(found, of)


def _gathered(graph: fx.Graph, choice: Choice, node: fx.Node, places: fx.Node) -> None:
    """Puts the scores at held places in the place of the values that an operation chose."""
    aten, dim = torch.ops.aten, choice.dim
    whole = choice.taken.ndim == choice.scores.ndim
    with graph.inserting_before(node):
        index = places if whole else graph.call_function(aten.unsqueeze.default, (places, dim))
        values = graph.call_function(aten.gather.default, (node.all_input_nodes[0], dim, index))
        if not whole:
            index.meta = {**places.meta, VALUE: choice.taken.unsqueeze(dim)}
            values = graph.call_function(aten.squeeze.dim, (values, dim))
    for made in (values, *values.all_input_nodes[:1]):
        made.meta.setdefault(VALUE, choice.node.meta[VALUE][0])
    for user in list(node.users):
        if user.target is operator.getitem and user.args[1] == 0:
            values.meta = {**user.meta}
            user.replace_all_uses_with(values)


@dataclass(frozen=True)
class Run:
    """A run in float64 with some choices held, and the others as they follow.

    Attributes:
        outputs: By name.
        taken: The places of every choice.
        scores: The scores of every choice.
    """

    outputs: dict[str, Tensor]
    taken: list[Tensor]
    scores: list[Tensor]


def run_with(program: Program, choices: Sequence[Choice], taken: Sequence[Tensor], given: Inputs) -> Run:
    """Runs a program with the first of its choices held.

    Raises:
        ConversionError: It does not run with them, as where a record has sizes that depend on its own.
    """
    own = held(program, choices, taken)
    sources = [own.of[choice.node.all_input_nodes[0]] for choice in choices]
    free = [own.of[choice.index] for choice in choices[len(taken) :]]
    walk = Lifted(own.program, frozenset((*sources, *free)))
    try:
        outputs = walk.outputs(given.args, given.kwargs)
    except (RuntimeError, IndexError) as error:
        raise ConversionError(f"it does not run with other choices: {first_line(error)}") from error
    tensors = map(lift, own.program.inputs(given.args, given.kwargs))
    seen = {**dict(zip(_placeholders(own.program), tensors, strict=True)), **walk.seen}
    return Run(outputs, [*taken, *(seen[node] for node in free)], [seen[node] for node in sources])
