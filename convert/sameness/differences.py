"""Differences between an operation of A and its partner of B: attributes, weights, another operation, other inputs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from ..programs.noise import UNITS
from .chains import described, of_own
from .forms import permutation
from .pairing import Pairs

UNKNOWN = "the operation is the same, and its result is not"
ELSEWHERE = "computes it in other operations"
_OPERANDS = ("self", "other", "input")  # names that say nothing
STRETCH = "the result is not what"  # the side that says the truth makes of the other's values


@dataclass(frozen=True)
class Parted:
    """An operation at which the two sides part.

    Attributes:
        name: Its module, or the operation where it is in no module of its own.
        kind: The operation.
        ratio: Its difference, on the same inputs, in units of what rounding does there.
        why: What differs there.
        is_certain: Whether these are two operations of one kind, or two that one of them has in one, and something
            differs beside the result. Another kind may be the same operation in other words.
    """

    name: str
    kind: str
    ratio: float
    why: str
    is_certain: bool = False

    @property
    def why_is_known(self) -> bool:
        """Whether something differs there beside the result."""
        return not self.why.startswith((UNKNOWN, STRETCH))

    @property
    def may_be_behind(self) -> bool:
        """Whether the other side has no single operation to compare it with, so that what follows may differ first."""
        return not self.is_certain and self.why.endswith(ELSEWHERE)

    def __str__(self) -> str:
        """The place, the operation and what differs."""
        return f"`{self.name}` ({self.kind}): {self.why}"


@dataclass(frozen=True)
class Differences:
    """Differences between an operation of A and one of B of the same kind, in words.

    Attributes:
        attributes: Numbers and options.
        weights: Tensors that the networks hold.
        types: Precisions.
        operands: Results of operations that they read.
    """

    attributes: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The differences of the first kind that there is: those of the network itself, of types, of what is read."""
        return "; ".join((*self.attributes, *self.weights) or self.types or self.operands)


def is_one_kind(node: fx.Node, partner: Any, pairs: Pairs) -> bool:
    """Whether an operation of B is there and of the kind of one of A."""
    return partner is not None and pairs.is_of_kind(node, partner)


def is_named_for_itself(node: fx.Node, pairs: Pairs) -> bool:
    """Whether an operation is told beside one before it: not where that one and it are one in B, or it has no partner.

    Operations of an ONNX file are other ones at some places, so that a partner of another kind says nothing.
    """
    if any(folded(before, pairs) is not None for before in _sources(node)):
        return False
    partner = pairs.partner(node)
    return partner is None or not pairs.b.described(partner) or pairs.a.kind(node) == pairs.b.kind(partner)


def _sources(node: fx.Node) -> list[fx.Node]:
    """Operations that a normalisation reads, through the choice of one of its results."""
    return [each for before in node.all_input_nodes for each in (before, *before.all_input_nodes)]


def folded(node: fx.Node, pairs: Pairs) -> fx.Node | None:
    """The normalisation that follows a convolution or product, where B has none of its own there."""
    if pairs.a.kind(node) not in ("convolution", "transposed convolution", "linear"):
        return None
    users = list(node.users)
    if len(users) != 1 or pairs.a.kind(users[0]) != "batch norm":
        return None
    partners = [pairs.at[each] for each in (users[0], *users[0].users) if each in pairs.at]
    is_kept = any(pairs.b.kind(each) == "batch norm" and not pairs.b.is_folded(each) for each in partners)
    return None if is_kept else users[0]


def differences(one: fx.Node, other: Any, pairs: Pairs, found: Mapping[fx.Node, Any]) -> Differences:
    """Differences between an operation of A and its partner of B, of the same kind.

    Args:
        one: A's.
        other: B's.
        pairs: Partners by place and name.
        found: Partners by their values.
    """
    numbers = pairs.a.dtype(one), pairs.b.dtype(other)
    is_typed = None not in numbers and numbers[0] != numbers[1]
    typed = (f"computed in {pairs.both(*map(_short, numbers))}",) if is_typed else ()
    mine, theirs = pairs.a.arguments(one), pairs.b.arguments(other)
    told: dict[str, list[str]] = {"attributes": [], "weights": [], "types": [], "operands": []}
    for name in (name for name in mine if name in theirs):
        texts = _compared(name, mine[name], theirs[name], pairs, found)
        made = _made(name, mine[name], theirs[name], pairs)
        if made is not None:
            told["weights"] += made
            continue
        again = [each for each in mine if each != name and theirs.get(each) is theirs[name]]
        if again and _is_operation(theirs[name], pairs) and mine[again[0]] is not mine[name]:
            is_its = isinstance(mine[name], fx.Node) and found.get(mine[name]) is theirs[name]
            texts = [] if is_its else [f"{name} is {again[0]} again in {pairs.names[1]}"]
        told[_sort(mine[name], theirs[name], pairs)] += texts
    types = (*typed, *told["types"])
    return Differences(tuple(told["attributes"]), tuple(told["weights"]), types, tuple(told["operands"]))


def _made(name: str, one: Any, other: Any, pairs: Pairs) -> list[str] | None:
    """Differences of a tensor that A holds from one that B makes of its own; None where it is anything else."""
    if not isinstance(one, Tensor) or not _is_operation(other, pairs):
        return None
    made, value = of_own(pairs, other), pairs.b.values.get(other)
    if made is None or not isinstance(value, Tensor):
        return None
    before = f"{pairs.names[1]} has {described(pairs, made)} before it"
    return [f"{text}; {before}" for text in _tensors(name, one, value, pairs)]


def _sort(one: Any, other: Any, pairs: Pairs) -> str:
    """What an argument is: a tensor that the networks hold, a result of an operation, a type, or an attribute."""
    if any(isinstance(each, torch.dtype) for each in (one, other)):
        return "types"
    if any(isinstance(each, Tensor) for each in (one, other)) and any(
        each is None or isinstance(each, Tensor) for each in (one, other)
    ):
        is_read = isinstance(one, fx.Node) or _is_operation(other, pairs)
        return "operands" if is_read else "weights"
    for each in (one, other):
        if isinstance(each, fx.Node) or _is_operation(each, pairs):
            return "operands"
        if isinstance(each, list | tuple) and (_holds_nodes(each) or any(_is_operation(x, pairs) for x in each)):
            return "attributes"  # parts in another order, or of another number
        if isinstance(each, list | tuple) and _holds_tensors(each):
            return "weights"
    return "attributes"


def _short(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _compared(name: str, one: Any, other: Any, pairs: Pairs, found: Mapping[fx.Node, Any]) -> list[str]:
    """Differences in an argument: a tensor that a side holds, another operation's result, or an attribute."""
    if (one is None) != (other is None):
        value = other if one is None else one
        beside = f", {value} in {pairs.names[1 if one is None else 0]}" if isinstance(value, int | float) else ""
        return [f"no {name} in {pairs.names[0 if one is None else 1]}{beside}"]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and _holds_nodes(one):
        return _listed(name, list(one), list(other), pairs, found)
    if all(isinstance(each, list | tuple) and _holds_tensors(each) for each in (one, other)):
        pairs_of = enumerate(zip(one, other, strict=False))
        return [text for place, two in pairs_of for text in _compared(f"{name}[{place}]", *two, pairs, found)]
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return _tensors(_own_name(one, pairs) if name in _OPERANDS else name, one, other, pairs)
    known = [one in pairs.a.values or isinstance(one, fx.Node), _is_operation(other, pairs)] if _hashable(one) else []
    if known == [True, True]:
        expected = found.get(one)
        if expected is None or _is_same(expected, other, pairs):
            return []
        return [f"{name} is another operation's result"]
    if any(known) or isinstance(one, Tensor) or isinstance(other, Tensor):
        return [f"{name} is computed in one of them only"]
    return [] if _is_equal(one, other) else [f"{name} {pairs.both(_shown(one), _shown(other))}"]


def _own_name(one: Tensor, pairs: Pairs) -> str:
    """The name that a tensor of A has in its module, for an operand that torch calls self; "self" where it has none."""
    program = pairs.a.program
    keys = (key for key, held in program.tensors.items() if held is one and key in program.names)
    return next((program.names[key].rpartition(".")[2] for key in keys), "self")


def _hashable(one: Any) -> bool:
    return not isinstance(one, list | dict | Tensor)


def _is_operation(value: Any, pairs: Pairs) -> bool:
    return isinstance(value, fx.Node) or (_hashable(value) and value in pairs.b.values)


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two attributes are the same; ONNX stores numbers in single precision."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or ctypes.c_float(one).value == ctypes.c_float(other).value
    return bool(list(one) == list(other) if isinstance(one, list | tuple) else one == other)


def _holds_tensors(values: Any) -> bool:
    return any(isinstance(value, Tensor) for value in values)


def _holds_nodes(values: Any) -> bool:
    return any(isinstance(value, fx.Node) for value in values)


def _is_same(expected: Any, other: Any, pairs: Pairs) -> bool:
    """Whether two operations of B give the same numbers."""
    a, b = pairs.b.values.get(expected), pairs.b.values.get(other)
    return expected is other or (isinstance(a, Tensor) and isinstance(b, Tensor) and torch.equal(a, b))


def _listed(name: str, one: list[Any], other: list[Any], pairs: Pairs, found: Mapping[fx.Node, Any]) -> list[str]:
    """Differences in a list of results, such as the parts of a concatenation."""
    if len(one) != len(other):
        return [f"{name}: {pairs.both(len(one), len(other))}"]
    expected = [found.get(node) for node in one]
    if expected != other and set(expected) == set(other):
        return [f"{name} are in another order"]
    return []


def _tensors(name: str, one: Tensor, other: Tensor, pairs: Pairs) -> list[str]:
    """How many numbers of a tensor differ, and by how much, or in which order its rows are.

    Numbers of another type are the same where they are equal in the narrower one.
    """
    if one.shape != other.shape:
        return [f"{name} {pairs.both(list(one.shape), list(other.shape))}"]
    narrow = max((one.dtype, other.dtype), key=lambda each: UNITS.get(each, 0.0))
    a, b = ((each.detach().to(narrow) if one.dtype != other.dtype else each.detach()) for each in (one, other))
    apart = (a.double() - b.double()).abs()
    count = int((apart != 0).sum())
    if not count:
        return []
    order = permutation(a, b)
    if order is not None:
        return [f"{'rows' if one.ndim > 1 else 'elements'} of {name} {order}"]
    form = "" if one.dtype == other.dtype else f", {pairs.both(_short(one.dtype), _short(other.dtype))}"
    return [f"{count:,} of {one.numel():,} elements of {name} differ, by {float(apart.max()):.2g} at most{form}"]


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else _short(value)
