"""Nodes of an ONNX graph, as their messages describe them.

Of most nodes, only the operator, the outputs and the graphs in their attributes are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from ....errors import CheckpointError
from ..common.beside import OpenBeside
from ..common.stored import OddTensor, StoredTensor
from .listed import Listed
from .protobuf import FIXED32, Field, Message
from .tensors import read_tensor

_INPUT, _OUTPUT, _NAME, _OPERATOR, _ATTRIBUTE, _DOMAIN, _OVERLOAD, _METADATA = 1, 2, 3, 4, 5, 7, 8, 9
_ATTRIBUTE_NAME, _FLOAT, _INTEGER, _TEXT, _TENSOR, _GRAPH, _FLOATS, _INTEGERS, _GRAPHS, _REFERENCE = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 11, 21),
)
_TYPE, _TYPES, _IS_INTEGER = 20, range(15), 2  # of an attribute; which there are, and an integer's
_VALUES = (_FLOAT, _INTEGER, _TEXT, _TENSOR, _FLOATS, _INTEGERS)
_OWN_DOMAINS = ("", "ai.onnx")
_DESCRIPTION = 400  # bytes that the description of a node takes

Fields = Mapping[int, list[Field]]
Wanted = Callable[["Node"], bool]
"""Whether more of a node is read than its operator, domain and outputs."""


@dataclass
class Node:
    """A node of a graph.

    Attributes:
        operator: What it computes.
        domain: Whose operator that is; "" is ONNX's own.
        overload: Which of several functions of that name it is.
        name: Its name, which may be empty.
        inputs: Names of the tensors it takes; "" is one that is left out.
        outputs: Names of the tensors it gives.
        attributes: Numbers, lists of integers and texts by name.
        tensors: Tensors and floating-point numbers that attributes hold.
        messages: The attributes as they are described, by name.
        graphs: Graphs that attributes hold, each with the attribute's name.
        metadata: The entries of its metadata.
        span: Where its message begins in the file, and where it ends.
    """

    operator: str = ""
    domain: str = ""
    overload: str = ""
    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, int | str | list[int]] = field(default_factory=dict)
    tensors: dict[str, StoredTensor | OddTensor] = field(default_factory=dict)
    messages: dict[str, Message] = field(default_factory=dict)
    graphs: list[tuple[str, Message]] = field(default_factory=list)
    metadata: list[Message] = field(default_factory=list)
    span: tuple[int, int] = (0, 0)

    def input(self, number: int) -> str:
        """The name of an input; "" if it is left out."""
        return self.inputs[number] if number < len(self.inputs) else ""

    def integer(self, name: str, default: int) -> int | None:
        """An attribute that is an integer, or None if it is something else."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else None


def read_node(message: Message, bound: Mapping[str, Message] | None, wanted: Wanted, open_beside: OpenBeside) -> Node:
    """Reads a node.

    Args:
        message: A NodeProto.
        bound: What attributes of a function's body that refer to the function's own stand for; None outside functions.
        wanted: Whether all of the node is read.
        open_beside: Opens a file that holds external data.

    Raises:
        CheckpointError: The message is damaged, or says two things.
    """
    with message.grouped() as parts:
        operator, domain, overload, name = (
            _last_text(message, parts, number) for number in (_OPERATOR, _DOMAIN, _OVERLOAD, _NAME)
        )
        node = Node(operator, "" if domain in _OWN_DOMAINS else domain, overload, name)
        node.span = message.start, message.end
        node.outputs = [message.text(part) for part in parts.get(_OUTPUT, [])]
        attributes = [message.message(part) for part in parts.get(_ATTRIBUTE, [])]
        is_wanted = wanted(node)
        if is_wanted:
            message.source.budget.spend(memory=_DESCRIPTION)
            node.inputs = [message.text(part) for part in parts.get(_INPUT, [])]
            node.metadata = [message.message(part) for part in parts.get(_METADATA, [])]
        for attribute in attributes:
            with attribute.grouped() as fields:
                name = _last_text(attribute, fields, _ATTRIBUTE_NAME)
                _check_single(attribute, name, fields)
                if reference := _reference(attribute, name, fields, bound):
                    _add_referred(node, name, (bound or {}).get(reference) if is_wanted else None, open_beside)
                    continue
                graphs = [part for number in (_GRAPH, _GRAPHS) for part in fields.get(number, [])]
                node.graphs += [(name, attribute.message(part)) for part in graphs]
                if is_wanted:
                    _add_attribute(node, name, attribute, fields, open_beside)
    return node


def _last_text(message: Message, fields: Fields, number: int) -> str:
    return message.text(fields[number][-1]) if number in fields else ""


def _check_single(message: Message, name: str, fields: Fields) -> None:
    """Refuses an attribute with two tensors, or two graphs: other readers merge them to one."""
    if any(len(fields.get(number, [])) > 1 for number in (_TENSOR, _GRAPH)):
        raise CheckpointError(f"{message.source.path} gives a node's attribute {name[:100]!r} twice")


def _reference(message: Message, name: str, fields: Fields, bound: Mapping[str, Message] | None) -> str:
    """The attribute of the function that an attribute stands for; "" if it stands for itself."""
    reference = _last_text(message, fields, _REFERENCE)
    if reference and bound is None:
        raise CheckpointError(
            f"{message.source.path} lets a node's attribute {name[:100]!r} refer to one of a function, outside any"
        )
    return reference


def _add_referred(node: Node, name: str, described: Message | None, open_beside: OpenBeside) -> None:
    """Adds what an attribute of the function says, if it says anything."""
    if described is not None:
        with described.grouped() as fields:
            _check_single(described, name, fields)
            _add_attribute(node, name, described, fields, open_beside)


def _add_attribute(node: Node, name: str, message: Message, fields: Fields, open_beside: OpenBeside) -> None:
    """Adds what an attribute says."""
    if name in node.messages:
        raise CheckpointError(f"{message.source.path} gives a node's attribute {name[:100]!r} twice")
    node.messages[name] = message
    _add_values(node, name, message, fields, open_beside)


def _add_values(node: Node, name: str, message: Message, fields: Fields, open_beside: OpenBeside) -> None:
    parts = {number: found for number, found in fields.items() if number in _VALUES}
    if len(parts) > 1:
        raise CheckpointError(f"{message.source.path} gives a node's attribute {name[:100]!r} twice")
    types = [message.enum(part, _TYPES) for part in fields.get(_TYPE, [])]
    if not parts and types[-1:] == [_IS_INTEGER]:
        node.attributes[name] = 0  # some writers leave out what is 0
    for number, found in parts.items():
        _add_value(node, name, message, number, found, open_beside)


def _add_value(
    node: Node, name: str, message: Message, number: int, found: list[Field], open_beside: OpenBeside
) -> None:
    """Adds an attribute's value, by the number of the fields that hold it."""
    if number == _INTEGER:
        node.attributes[name] = message.integer(found[-1])
    elif number == _TEXT:
        node.attributes[name] = message.text(found[-1], errors="replace")  # it may be any bytes
    elif number == _INTEGERS:
        node.attributes[name] = [value for part in found for value in message.integers(part)]
    elif number == _TENSOR:
        node.tensors[name] = read_tensor(message.message(found[-1]), open_beside)[1]
    else:
        node.tensors[name] = _floats(message, number, found)


def _floats(message: Message, number: int, parts: list[Field]) -> StoredTensor:
    """A floating-point number, or a list of them."""
    listed, is_single = Listed(message, number, FIXED32), number == _FLOAT
    for part in parts[-1:] if is_single else parts:
        listed.add(part)
    return StoredTensor.of(listed.fixed(), torch.float32, shape=[] if is_single else [listed.count])


def attribute_name(message: Message) -> str:
    """The name of an attribute."""
    texts = [message.text(part) for part in message.fields() if part.number == _ATTRIBUTE_NAME]
    return texts[-1] if texts else ""
