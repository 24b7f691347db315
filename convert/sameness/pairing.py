"""Operations of two sides, and which of them belong together.

A partner of an operation is the one of the same module and kind, where that module has as many of them on both sides,
in whatever order the modules run; else the one at the same place of both lists (longest common subsequence of names and
shapes). Where the values of a partner are not near, one of the same shape nearby may be: of the same kind, or of any
where the partner is of another kind. An operation that does nothing is like any operation that gives its operand, so
only its own kind may stand for it.
"""

from __future__ import annotations

import difflib
import operator
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from ..programs.float64 import first_of
from ..programs.operations import in_words
from ..programs.program import Noted, Program
from ..programs.walk import arguments_of, name_of
from .given import Inputs

Key = tuple[str, tuple[int, ...]]
_Placed = tuple[str, Key]  # with the module
_HOW = frozenset(  # arguments that say how torch computes, not what
    (
        "cudnn_enable",
        "cudnn_enabled",
        "benchmark",
        "deterministic",
        "allow_tf32",
        "memory_format",
        "pin_memory",
        "non_blocking",
    )
)
_SHARED = 0.75  # of the modules of one name must have an operation in common
_NEARBY = 12  # operations on either side of the own place that may be a partner


@dataclass(frozen=True)
class Held:
    """A tensor that a side holds, by its name; it may be the result of operations that read no input."""

    name: str


class Operations(Protocol):
    """The operations that a side runs, in their order, and what each gave on the inputs."""

    @property
    def nodes(self) -> list[Any]:
        """The operations."""
        ...

    @property
    def values(self) -> dict[Any, Any]:
        """The result of each, and the tensors that are held."""
        ...

    def path(self, node: Any) -> str:
        """The module that an operation is in, or ""."""
        ...

    def key(self, node: Any) -> Key:
        """Name and shape, the same for the same operation of either side."""
        ...

    def kind(self, node: Any) -> str:
        """The operation in words."""
        ...

    def dtype(self, node: Any) -> torch.dtype | None:
        """The type of its numbers, where it is known."""
        ...

    def arguments(self, node: Any) -> dict[str, Any]:
        """Arguments by name, as torch names them: tensors that the side holds, operations, and attributes."""
        ...

    def operands(self, node: Any) -> list[Any]:
        """Operations whose results it reads, in their order, with None for an input of the network."""
        ...

    @property
    def results(self) -> list[Any]:
        """The operations that give the outputs, in their order; None where an output is no operation's."""
        ...

    def numbers(self, node: Any) -> list[float]:
        """Numbers among its arguments."""
        ...

    def is_folded(self, node: Any) -> bool:
        """Whether it is a normalisation whose numbers went into the product before it."""
        ...

    def described(self, node: Any) -> str:
        """The operation with its attributes, where they have no name in torch; else ""."""
        ...


class Traced:
    """The operations of torch's program.

    Args:
        program: The program.
        inputs: What it runs on.
        is_run: Whether it runs, so that it is known what its operations give in the network's own precision.

    Attributes:
        inputs: The tensors of the call, by the graph's nodes.
    """

    def __init__(self, program: Program, inputs: Inputs | None = None, *, is_run: bool = True) -> None:
        self.program, self.nodes = program, program.nodes
        given = [] if inputs is None else program.inputs(inputs.args, inputs.kwargs)
        self.inputs = dict(zip(program.graph.graph.find_nodes(op="placeholder"), given, strict=False))
        self.values: dict[Any, Any] = {} if inputs is None or not is_run else _values(program, inputs)
        self.values |= {Held(name): one for name, one in program.tensors.items()}

    def path(self, node: fx.Node) -> str:
        """The module that an operation is in, or ""."""
        return self.program.path(node)

    def key(self, node: fx.Node) -> Key:
        """Name and shape; an operation of several results is that of the first, and they lie beside it."""
        value = node.meta.get("val")
        first = first_of(value)
        shape = tuple(int(size) for size in first.shape) if isinstance(first, Tensor) else ()
        several = "" if value is first else "all of "
        return f"{several}{self.kind(node)}", shape

    def kind(self, node: fx.Node) -> str:
        """The operation in words."""
        return in_words(name_of(source_of(node)))

    def dtype(self, node: fx.Node) -> torch.dtype | None:
        """The type of its numbers."""
        value = first_of(node.meta.get("val"))
        return value.dtype if isinstance(value, Tensor) else None

    def arguments(self, node: fx.Node) -> dict[str, Any]:
        """Arguments by name, with defaults, of what is computed; tensors that the network holds, and operations."""
        named = {name: one for name, one in arguments_of(source_of(node)).items() if name not in _HOW}
        return {name: self._held(value) for name, value in named.items()}

    def operands(self, node: fx.Node) -> list[fx.Node | None]:
        """Operations whose results it reads, in their order, with None for an input of the network."""
        return [None if one.op == "placeholder" else one for one in read_by(source_of(node))]

    @property
    def results(self) -> list[fx.Node | None]:
        """The operations that give the outputs, in their order."""
        (output,) = self.program.graph.graph.find_nodes(op="output")
        found: list[Any] = list(output.args[0])
        return [one if isinstance(one, fx.Node) and one.op == "call_function" else None for one in found]

    def numbers(self, node: fx.Node) -> list[float]:
        """Numbers among its arguments."""
        given = source_of(node)
        leaves = tree_leaves((given.args, dict(given.kwargs)))
        return [float(one) for one in leaves if isinstance(one, int | float) and not isinstance(one, bool)]

    def is_folded(self, node: fx.Node) -> bool:
        """Never: torch's program has each operation that the network calls."""
        return False

    def described(self, node: fx.Node) -> str:
        """Nothing: all of its attributes have names in torch."""
        return ""

    def _held(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._held(one) for one in value]
        held = self.program.tensors.get(value.name) if isinstance(value, fx.Node) else None
        return held if isinstance(held, Tensor) else value


def _values(program: Program, inputs: Inputs) -> dict[fx.Node, Any]:
    """Each operation's result as the network computes it, in its own precision."""
    noted = Noted(program)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noted.run(*program.inputs(inputs.args, inputs.kwargs))
    return noted.values


def read_by(node: fx.Node) -> list[fx.Node]:
    """The operations and inputs that an operation reads, as often as it does, in their order."""
    leaves = tree_leaves((node.args, dict(node.kwargs)))
    return [one for one in leaves if isinstance(one, fx.Node) and one.op in ("call_function", "placeholder")]


def source_of(node: fx.Node) -> fx.Node:
    """The operation that gives several results, of one of them."""
    return node.all_input_nodes[0] if node.target is operator.getitem else node


@dataclass
class Pairs:
    """Partners of A's operations among B's.

    Attributes:
        a: The side whose graph says the truth.
        b: The other.
        names: Those of both.
        at: Partners by place and name.
        places: B's place for each operation of A.
    """

    a: Traced
    b: Operations
    names: tuple[str, str] = ("A", "B")
    at: dict[fx.Node, Any] = field(default_factory=dict)
    places: dict[fx.Node, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ours, theirs = self.a.nodes, self.b.nodes
        paths = self._shared_paths(ours, theirs)
        keys = self._keyed(self.a, ours, paths), self._keyed(self.b, theirs, paths)
        matcher = difflib.SequenceMatcher(None, *keys, autojunk=False)
        for _, i, i_end, j, j_end in matcher.get_opcodes():
            for place in range(i, i_end):
                self.places[ours[place]] = min(j + place - i, len(theirs) - 1)
            if i_end - i == j_end - j:
                self.at |= zip(ours[i:i_end], theirs[j:j_end], strict=True)
            else:
                self._unequal(ours[i:i_end], theirs[j:j_end])
        self._of_one_module(ours, theirs, keys)

    def _shared_paths(self, ours: list[fx.Node], theirs: list[Any]) -> set[str]:
        """The modules that both sides have, with operations of the same kinds; none where names mean something else.

        In a sequence that lost a layer, the numbers of those behind it name others.
        """
        held: tuple[dict[str, set[Key]], ...] = (defaultdict(set), defaultdict(set))
        for side, nodes, found in zip((self.a, self.b), (ours, theirs), held, strict=True):
            for node in nodes:
                found[side.path(node)].add(side.key(node))
        named = (held[0].keys() & held[1].keys()) - {""}
        shared = {path for path in named if not held[0][path].isdisjoint(held[1][path])}
        return shared if len(shared) >= _SHARED * len(named) else set()

    def _keyed(self, side: Operations, nodes: list[Any], paths: set[str]) -> list[_Placed]:
        """Module, kind and shape of each operation; the module where both sides have it."""
        named = ((side.path(node), side.key(node)) for node in nodes)
        return [(path if path in paths else "", key) for path, key in named]

    def _of_one_module(self, ours: list[fx.Node], theirs: list[Any], keys: tuple[list[_Placed], list[_Placed]]) -> None:
        """Pairs operations of one module and kind in their order, where both sides have as many."""
        groups: dict[_Placed, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for side in (0, 1):
            for place, key in enumerate(keys[side]):
                groups[key][side].append(place)
        chosen = [zip(*two, strict=True) for (path, _), two in groups.items() if path and len(two[0]) == len(two[1])]
        found = {ours[i]: j for pairs in chosen for i, j in pairs}
        taken = {theirs[j] for j in found.values()}
        self.at = {node: other for node, other in self.at.items() if other not in taken}
        self.at |= {node: theirs[j] for node, j in found.items()}
        self.places |= found

    def _unequal(self, ours: list[fx.Node], theirs: list[Any]) -> None:
        """Pairs operations of blocks of unequal lengths, in their order, by module and operation."""
        left = list(theirs)
        for node in ours:
            mine = self.a.path(node), self.a.key(node)
            same = [one for one in left if (self.b.path(one), self.b.key(one)) == mine]
            if same:
                self.at[node] = same[0]
                left = left[left.index(same[0]) + 1 :]

    def both(self, one: object, other: object) -> str:
        """The values of A and B, in this order."""
        ordered = (one, other) if self.names[0] == "A" else (other, one)
        return f"{ordered[0]} in A, {ordered[1]} in B"

    def partner(self, node: fx.Node) -> Any:
        """The operation of B at the place of one of A, or None."""
        return self.at.get(source_of(node), self.at.get(node))

    def is_of_kind(self, node: fx.Node, other: Any) -> bool:
        """Whether an operation of B is of the kind of one of A."""
        return other is not None and self.a.kind(node) == self.b.kind(other)

    def nearby(self, node: fx.Node) -> list[Any]:
        """B's operations of the same shape, its partner first, then those of its kind, then the nearest."""
        place, theirs = self.places.get(node, 0), self.b.nodes
        start = max(0, place - _NEARBY)
        around = list(enumerate(theirs[start : place + _NEARBY], start))
        around.sort(key=lambda each: (not self.is_of_kind(node, each[1]), abs(each[0] - place)))
        first = [self.at[node]] if node in self.at else []
        shape = self.a.key(node)[1]
        return first + [one for _, one in around if one not in first and self.b.key(one)[1] == shape]
