"""An ONNX file with other nodes in the place of some: every other field keeps its bytes, and nothing is parsed twice.

What is kept lies in the mapped file until it is written. Tensors in files beside the model move into it, so that
the new file is complete by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from ...errors import CheckpointError
from ...files.readers.common.beside import OpenBeside
from ...files.readers.common.limits import MAX_OVERLAP, SPARE
from ...files.readers.common.stored import Source, StoredTensor
from ...files.readers.onnx.protobuf import BYTES, VARINT, Field, Message
from ...files.readers.onnx.tensors import EXTERNAL, LOCATION, RAW, lies_outside, read_tensor
from . import wire

Part = bytes | memoryview

GRAPH, OPSET, METADATA = 7, 8, 14  # of a model
_NODE, _INITIALIZER, _OUTPUT = 1, 5, 12  # of a graph
_ATTRIBUTE, _NODE_OUTPUT = 5, 2  # of a node
_GRAPHS = (6, 11)  # of an attribute
LARGEST = 2**31 - 1  # bytes of a protocol buffer


class Splice:
    """The file with other nodes.

    Args:
        source: The file.
        open_beside: Opens a file that holds external data.
        nodes: What takes the place of the nodes whose messages begin at these bytes.
    """

    def __init__(self, source: Source, open_beside: OpenBeside, nodes: Mapping[int, Sequence[bytes]]) -> None:
        self._source, self._open_beside, self._nodes = source, open_beside, nodes
        self._starts = sorted(nodes)
        self._content = memoryview(source.content)
        self._moved = 0  # bytes of tensors that come from other files

    def parts(self, *, metadata: Mapping[str, str], outputs: Iterable[bytes] = ()) -> list[Part]:
        """The new file, in pieces.

        Args:
            metadata: Entries that are added to the model's.
            outputs: Descriptions (ValueInfoProto) of tensors that become outputs of the network, too.

        Raises:
            CheckpointError: The new file would be longer than a protocol buffer can be, or external data is damaged.
        """
        model, found = Message(self._source, 0, self._source.size), list[Part]()
        for field in model.fields():
            if field.number != GRAPH:
                found += self._kept(field)
                continue
            graph = self._graph(model.message(field))
            graph += [wire.content(_OUTPUT, output) for output in outputs]
            found += _wrapped(GRAPH, graph)
        found += [wire.entry(METADATA, key, value) for key, value in metadata.items()]
        if _size(found) > LARGEST:
            raise CheckpointError(f"{self._source.path} with attention would be longer than an ONNX file can be (2 GB)")
        return found

    def _graph(self, message: Message) -> list[Part]:
        found: list[Part] = []
        for field in message.fields():
            if field.number == _NODE and field.start in self._nodes:
                found += [wire.content(_NODE, node) for node in self._nodes[field.start]]
            elif field.number == _NODE and self._is_changed(field):
                found += _wrapped(_NODE, self._within(message.message(field), (_ATTRIBUTE,)))
            elif field.number == _INITIALIZER:
                found += self._initializer(message, field)
            else:
                found += self._kept(field)
        return found

    def _within(self, message: Message, numbers: Sequence[int]) -> list[Part]:
        """A node or an attribute with changed graphs in it."""
        found: list[Part] = []
        for field in message.fields():
            if field.number in numbers and self._is_changed(field):
                inner = message.message(field)
                parts = self._within(inner, _GRAPHS) if field.number == _ATTRIBUTE else self._graph(inner)
                found += _wrapped(field.number, parts)
            else:
                found += self._kept(field)
        return found

    def _is_changed(self, field: Field) -> bool:
        """Whether a node that is replaced lies within a field."""
        place = bisect_left(self._starts, field.start)
        return place < len(self._starts) and self._starts[place] < field.end

    def _initializer(self, message: Message, field: Field) -> list[Part]:
        tensor = message.message(field)
        locations = [lies_outside(tensor, part) for part in tensor.fields() if part.number == LOCATION]
        if not any(locations[-1:]):
            return self._kept(field)
        name, stored = read_tensor(tensor, self._open_beside)
        start = stored.storage.start if isinstance(stored, StoredTensor) else None
        if not isinstance(stored, StoredTensor) or stored.flaw() is not None or start is None:
            raise CheckpointError(
                f"{self._source.path} keeps {name[:100]!r} in another file, in a form that is not read"
            )
        described = [
            piece
            for part in tensor.fields()
            if part.number not in (LOCATION, EXTERNAL, RAW)
            for piece in self._kept(part)
        ]
        nbytes = stored.numel * stored.dtype.itemsize
        self._moved += nbytes
        check_moved(self._moved, stored.storage.source)
        data = memoryview(stored.storage.source.content)[start : start + nbytes]
        return _wrapped(_INITIALIZER, [*described, *_wrapped(RAW, [data])])

    def _kept(self, field: Field) -> list[Part]:
        """A field as it is."""
        key = wire.varint(field.number << 3 | field.kind)
        if field.kind == VARINT:
            return [key + wire.varint(field.value or 0)]
        length = wire.varint(field.end - field.start) if field.kind == BYTES else b""
        return [key + length, self._content[field.start : field.end]]


def check_moved(nbytes: int, source: Source) -> None:
    """Refuses to put so many bytes of other files into a model: one run of them may be many tensors.

    Args:
        nbytes: The bytes of all tensors that move into it.
        source: One of the files.

    Raises:
        CheckpointError: They come to more than twice what the files hold, and 256 MB.
    """
    if nbytes > MAX_OVERLAP * source.budget.size + SPARE:
        raise CheckpointError(
            f"tensors of a model that share numbers in other files would come to {nbytes} bytes in it; with "
            f"{source.path}, the files hold {source.budget.size}"
        )


def with_output(source: Source, start: int, end: int, output: str) -> bytes:
    """A node of a file under another name of its output, and without its own.

    Args:
        source: The file.
        start: Where its message begins.
        end: Where it ends.
        output: The new name.
    """
    node = Message(source, start, end)
    kept = [
        wire.varint(part.number << 3 | part.kind)
        + wire.varint(part.end - part.start)
        + source.content[part.start : part.end]
        for part in node.fields()
        if part.number not in (_NODE_OUTPUT, 3) and part.kind == BYTES
    ]
    return b"".join(kept) + wire.text(_NODE_OUTPUT, output)


def opset_of(source: Source) -> int:
    """The version of ONNX's own operators that a model uses; 1 if it says none."""
    model, found = Message(source, 0, source.size), 1
    for field in model.fields():
        if field.number == OPSET:
            message = model.message(field)
            parts = {part.number: part for part in message.fields()}
            domain = message.text(parts[1]) if 1 in parts else ""
            if domain in ("", "ai.onnx") and 2 in parts:
                found = message.integer(parts[2]) or 1
    return found


def _wrapped(number: int, parts: list[Part]) -> list[Part]:
    """A message of these parts, as a field."""
    return [wire.varint(number << 3 | BYTES) + wire.varint(_size(parts)), *parts]


def _size(parts: list[Part]) -> int:
    return sum(map(len, parts))
