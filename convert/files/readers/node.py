"""One node of an exported program as its JSON has it: what it computes, in which module, of which arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .operations import is_out_of_place

_POSITIONAL = 1  # PyTorch's code for an argument that is given by its place
_LOOKS = 4  # steps that an argument takes

Node = Mapping[str, object]


def node_name(node: Node) -> str:
    """What a program calls a node."""
    name = node.get("name")
    return name if isinstance(name, str) else ""


def module(node: Node) -> str | None:
    """The name of the innermost module that a node comes from, or None if the program does not say."""
    call = call_of(node)
    return None if call is None else call[1]


def call_of(node: Node) -> tuple[str, str] | None:
    """Which call of which module a node comes from: a module may be called many times."""
    parts = stack_of(node).rpartition(";")[2].split(",", 2)
    return (parts[0], parts[1]) if len(parts) == 3 else None


def stack_of(node: Node) -> str:
    """The calls of modules that a node comes from, the innermost of them last."""
    metadata = node.get("metadata")
    stack = metadata.get("nn_module_stack") if isinstance(metadata, dict) else None
    return stack if isinstance(stack, str) else ""


def target(node: Node) -> str:
    """What a node computes."""
    found = node.get("target")
    return found if isinstance(found, str) else ""


def arguments(node: Node) -> dict[str, object]:
    """A node's arguments by name: tensors by their names, numbers, texts and lists; not those that are not given."""
    return {name: value for name, value in map(_argument, entries(node)) if value is not None}


def named(given: Mapping[str, object], argument: str) -> str:
    """The name of the tensor that is an argument, or nothing."""
    found = given.get(argument)
    return found if isinstance(found, str) else ""


def _argument(entry: Mapping[str, object]) -> tuple[str, object]:
    value = entry.get("arg")
    if not isinstance(value, dict) or len(value) != 1:
        return "", None
    ((kind, content),) = value.items()
    if kind == "as_none":
        return "", None
    if isinstance(content, dict):
        content = content.get("name")
    name = entry.get("name")
    return name if isinstance(name, str) else "", content


def outputs(node: Node) -> Iterator[str]:
    """Names of the tensors that a node gives."""
    return names_in(list_of(node.get("outputs")))


def inputs(node: Node) -> Iterator[str]:
    """Names of the tensors that a node takes."""
    return names_in([entry.get("arg") for entry in entries(node)])


def names_in(values: list[object]) -> Iterator[str]:
    """Names of the tensors among some values of JSON, however deep in lists they are."""
    pending = values[::-1]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += reversed(value)
        elif isinstance(value, dict):
            name = value.get("name")
            if isinstance(name, str):
                yield name
            pending += (part for kind, part in value.items() if kind != "as_graph")


def values_of(node: Node) -> int:
    """How many values a node's arguments have, or a little fewer."""
    contents = [
        content for entry in entries(node) if isinstance(arg := entry.get("arg"), dict) for content in arg.values()
    ]
    return 1 + _LOOKS * len(contents) + sum(len(content) for content in contents if isinstance(content, list))


def entries(node: Node) -> list[Mapping[str, object]]:
    """A node's arguments as JSON has them."""
    return [entry for entry in list_of(node.get("inputs")) if isinstance(entry, dict)]


def list_of(value: object) -> list[object]:
    """A list of JSON, empty for anything else."""
    return value if isinstance(value, list) else []


def misplaced(node: Node) -> bool:
    """Whether a node is given an argument at the place of another, whatever name it gives it."""
    placed = {str(entry.get("name")) for entry in entries(node) if entry.get("kind") == _POSITIONAL}
    return is_out_of_place(target(node), placed)
