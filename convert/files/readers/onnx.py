"""ONNX models: initialisers, and the geometry that the attributes of Conv nodes carry.

The file is walked as a protocol buffer, tensors are mapped, and the graph is never run. Field numbers are those of
onnx.proto (github.com/onnx/onnx). Subgraphs of If, Loop and Scan are not looked into.

A layer is what its Conv node computes. Exporters fold a batch normalisation behind a convolution into the node's
weights; where the file tells that, or leaves it open, the layer carries a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import torch

from ...errors import CheckpointError
from .common.beside import OpenBeside
from .common.geometry import StoredConvolution, describe
from .common.limits import MAX_TENSORS
from .common.stored import OddTensor, Source, Storage, StoredTensor
from .exported import add_layer, layer_name
from .protobuf import Field, Message

_GRAPH = 7  # of a model
_NODE, _INITIALIZER = 1, 5  # of a graph
_INPUT, _OUTPUT, _NAME, _OPERATOR, _ATTRIBUTE, _DOMAIN, _METADATA = 1, 2, 3, 4, 5, 7, 9  # of a node
_ATTRIBUTE_NAME, _INTEGER, _TEXT, _TENSOR, _INTEGERS = 1, 3, 4, 5, 8  # of an attribute
_DIMS, _TYPE, _FLOATS, _TENSOR_NAME, _RAW, _DOUBLES, _EXTERNAL, _LOCATION = 1, 2, 4, 8, 9, 10, 13, 14  # of a tensor
_KEY, _VALUE = 1, 2  # of an entry of external data or metadata
_OWN_DOMAINS = ("", "ai.onnx")
_PIECES = 0
_NUMBERS = {_FLOATS: (1, 14), _DOUBLES: (11, 15), _PIECES: ()}  # types of the tensors whose numbers a field can hold
_CONVOLUTIONS = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv")
_DESCRIPTION = 400  # bytes that the description of a node or a tensor takes
_REWRITES, _FOLDING = "pkg.onnxscript.rewriter.rule_name", "FuseBatchNormIntoConv"  # what torch's exporter did
_ORIGIN = "pkg.torch.onnx."  # torch's exporter keeps such a record of every node
_COMPUTED_NAME = re.compile(r"onnx::|_v_\d+$")  # how torch's older exporter and onnx-simplifier name what they compute
FOLDED = "the exporter folded a batch normalisation into the weights, so the layer computes both"
COMPUTED = "the exporter computed the weights, as it does to fold in a batch normalisation, which is then in the layer"
OPEN = "the file leaves open whether the weights have a batch normalisation folded in; if so, the layer computes both"
_DTYPES = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    12: torch.uint32,
    13: torch.uint64,
    14: torch.complex64,
    15: torch.complex128,
    16: torch.bfloat16,
    17: torch.float8_e4m3fn,
    18: torch.float8_e4m3fnuz,
    19: torch.float8_e5m2,
    20: torch.float8_e5m2fnuz,
}


@dataclass
class _Node:
    """A node of the graph.

    Attributes:
        name: Its name, which may be empty.
        operator: What it computes.
        domain: Whose operator that is; "" is ONNX's own.
        inputs: Names of the tensors it takes; "" is one that is left out.
        outputs: Names of the tensors it gives.
        attributes: Numbers, lists of numbers and texts by name.
        tensor: The tensor of a Constant.
        folded: Whether the exporter folded a batch normalisation into it, or None if it kept no record.
    """

    name: str = ""
    operator: str = ""
    domain: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attributes: dict[str, int | str | list[int]] = field(default_factory=dict)
    tensor: Message | None = None
    folded: bool | None = None


def read_onnx(source: Source, open_beside: OpenBeside) -> tuple[dict[str, object], dict[str, StoredConvolution]]:
    """Tensors of an ONNX model by name, and its convolutions.

    Args:
        source: The file.
        open_beside: Opens a file that holds external data.

    Raises:
        CheckpointError: The file is damaged, has no graph, or names external data that cannot be used.
    """
    tensors: dict[str, object] = {}
    nodes: list[_Node] = []
    normalised = False  # whether a batch normalisation is left in the graph
    for graph in _messages(Message(source, 0, source.size), _GRAPH):
        for part in graph.fields():
            if part.number == _INITIALIZER:
                _add_tensor(tensors, graph.message(part), open_beside)
            elif part.number == _NODE:
                operator = _operator(graph.message(part))
                normalised |= operator == "BatchNormalization"
                if operator in _CONVOLUTIONS:
                    nodes.append(_node(graph.message(part), operator))
                elif operator == "Constant":
                    node = _node(graph.message(part), operator)
                    if node.tensor is not None and node.outputs and node.domain in _OWN_DOMAINS:
                        _add_tensor(tensors, node.tensor, open_beside, name=node.outputs[0])
            if len(tensors) + len(nodes) > MAX_TENSORS:
                raise CheckpointError(f"{source.path} has more than {MAX_TENSORS} tensors")
    layers: dict[str, StoredConvolution] = {}
    for number, node in enumerate(nodes):
        name = node.name or f"{node.operator}_{number}"
        weight = node.inputs[1] if len(node.inputs) > 1 else ""
        own = layer_name(weight) if weight.endswith("weight") else name
        stored = _convolution(node, tensors)
        add_layer(layers, own, replace(stored, note=_note(node, normalised)), otherwise=name)
    return tensors, layers


def _messages(parent: Message, number: int) -> list[Message]:
    return [parent.message(part) for part in parent.fields() if part.number == number and part.end > part.start]


def _operator(message: Message) -> str:
    """What a node computes; of most nodes, nothing else is read."""
    found = [part for part in message.fields() if part.number == _OPERATOR]
    return message.text(found[-1]) if found else ""


def _node(message: Message, operator: str) -> _Node:
    message.source.budget.spend(memory=_DESCRIPTION)
    node = _Node(operator=operator)
    for part in message.fields():
        if part.number == _INPUT:
            node.inputs.append(message.text(part))
        elif part.number == _OUTPUT:
            node.outputs.append(message.text(part))
        elif part.number == _NAME:
            node.name = message.text(part)
        elif part.number == _DOMAIN:
            node.domain = message.text(part)
        elif part.number == _ATTRIBUTE:
            _add_attribute(node, message.message(part))
        elif part.number == _METADATA:
            told = _folded(message.message(part))
            node.folded = node.folded if told is None else told or bool(node.folded)
    return node


def _folded(message: Message) -> bool | None:
    """Whether an entry of a node's metadata tells of folding; None if it is no record of torch's exporter."""
    parts = {part.number: part for part in message.fields()}
    key = message.text(parts[_KEY]) if _KEY in parts else ""
    if key == _REWRITES and _VALUE in parts:
        return _FOLDING in message.text(parts[_VALUE])
    return False if key.startswith(_ORIGIN) else None


def _note(node: _Node, normalised: bool) -> str | None:
    """What is known of a batch normalisation in a node's weights.

    Without a record, a bias is needed for the question to be open, and no batch normalisation left in the graph.
    """
    if node.folded is not None:
        return FOLDED if node.folded else None
    weight, bias = (*node.inputs[1:3], "", "")[:2]
    if _COMPUTED_NAME.match(weight):
        return COMPUTED
    return OPEN if bias and not normalised else None


def _add_attribute(node: _Node, message: Message) -> None:
    name, integers = "", list[int]()
    value: int | str | None = None
    for part in message.fields():
        if node.operator == "Constant":
            if part.number == _TENSOR:
                node.tensor = message.message(part)
        elif part.number == _ATTRIBUTE_NAME:
            name = message.text(part)
        elif part.number == _INTEGER:
            (value,) = message.integers(part)
        elif part.number == _TEXT:
            value = message.text(part)
        elif part.number == _INTEGERS:
            integers += message.integers(part)
    if name in node.attributes or (integers and value is not None):
        raise CheckpointError(f"{message.source.path} gives a node's attribute {name[:100]!r} twice")
    node.attributes[name] = integers if value is None else value


def _add_tensor(
    tensors: dict[str, object], message: Message, open_beside: OpenBeside, *, name: str | None = None
) -> None:
    """Adds a tensor under its own name, or under the one of the node's output that it is."""
    own, tensor = _tensor(message, open_beside)
    name = own if name is None else name
    if name in tensors:
        raise CheckpointError(f"{message.source.path} has two tensors called {name[:100]!r}")
    message.source.budget.spend(memory=_DESCRIPTION)
    tensors[name] = tensor


def _tensor(message: Message, open_beside: OpenBeside) -> tuple[str, StoredTensor | OddTensor]:
    name, code, shape = "", 0, list[int]()
    data: Field | None = None
    external: dict[str, str] = {}
    is_external = False
    for part in message.fields():
        if part.number == _TENSOR_NAME:
            name = message.text(part)
        elif part.number == _DIMS:
            shape += message.integers(part)
        elif part.number == _TYPE:
            code = part.value or 0
        elif part.number in (_RAW, _FLOATS, _DOUBLES):
            data = part if data is None else Field(_PIECES, None, 0, 0)  # numbers in several pieces are not mapped
        elif part.number == _EXTERNAL:
            key, value = _entry(message.message(part))
            external[key] = value
        elif part.number == _LOCATION:
            is_external = part.value == 1
    if code not in _DTYPES:
        return name, OddTensor(f"quantized, textual or unknown (ONNX type {code})")
    if is_external:
        tensor = StoredTensor.of(_external(external, message.source, open_beside), _DTYPES[code], shape=shape)
        return name, _whole(tensor, name) if external.get("length") else tensor
    if data is None or code not in _NUMBERS.get(data.number, _DTYPES):
        return name, OddTensor("written number by number, not as bytes,")
    storage = Storage(message.source, data.end - data.start, data.start)
    return name, _whole(StoredTensor.of(storage, _DTYPES[code], shape=shape), name)


def _whole(tensor: StoredTensor, name: str) -> StoredTensor:
    """A tensor that takes all of its bytes."""
    if tensor.numel * tensor.dtype.itemsize < tensor.storage.nbytes:
        raise CheckpointError(f"{tensor.storage.source.path} is damaged: {name[:100]!r} has more bytes than its shape")
    return tensor


def _entry(message: Message) -> tuple[str, str]:
    texts = {part.number: message.text(part) for part in message.fields() if part.number in (_KEY, _VALUE)}
    return texts.get(_KEY, ""), texts.get(_VALUE, "")


def _external(entries: dict[str, str], source: Source, open_beside: OpenBeside) -> Storage:
    """Where a tensor lies in a file beside the model."""
    file = open_beside(entries.get("location", ""))
    offset, length = entries.get("offset", "0"), entries.get("length", "")
    if not (offset.isdecimal() and (length.isdecimal() or not length) and len(offset + length) < 40):
        raise CheckpointError(f"{source.path} names external data by an offset that is no number")
    start = int(offset)
    if start > file.size:
        raise CheckpointError(f"{source.path} names external data beyond the end of {file.path}")
    return file.run(start, int(length) if length else file.size - start)


def _convolution(node: _Node, tensors: dict[str, object]) -> StoredConvolution:
    """The convolution that a Conv node computes."""
    if node.operator != "Conv":
        return StoredConvolution.refused(f"{node.operator} is not a plain convolution")
    if node.domain not in _OWN_DOMAINS:
        return StoredConvolution.refused(f"it is an operator of {node.domain[:100]!r}, not of ONNX")
    weight, bias = (*node.inputs[1:3], "", "")[:2]
    values = tensors.get(weight)
    kernel = values.shape[2:] if isinstance(values, StoredTensor) else ()
    geometry: dict[str, object] = {"stride": node.attributes.get("strides", [1, 1])}
    geometry["dilation"] = node.attributes.get("dilations", [1, 1])
    geometry["groups"] = node.attributes.get("group", 1)
    if node.attributes.get("kernel_shape", list(kernel)) != list(kernel):
        return StoredConvolution.refused("its weight does not have the shape of its kernel")
    padding = _padding(node.attributes, list(kernel))
    if padding is None and len(kernel) == 2:
        return StoredConvolution.refused('its padding is neither symmetric nor that of nn.Conv2d\'s "same"')
    return describe(tensors, weight, bias or None, {**geometry, "padding": padding})


def _padding(attributes: dict[str, int | str | list[int]], kernel: list[int]) -> list[int] | str | None:
    """What ``nn.Conv2d`` calls the padding, or None if it has no word for it.

    Pads are [top, left, bottom, right]. "same" puts an odd pixel at the bottom and the right; SAME_UPPER does too,
    and depends on the image's size where the stride is not 1.
    """
    automatic = attributes.get("auto_pad", "NOTSET")
    stride, dilation = (attributes.get(name, [1, 1]) for name in ("strides", "dilations"))
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        odd = isinstance(dilation, list) and any(d * (k - 1) % 2 for d, k in zip(dilation, kernel, strict=False))
        return "same" if stride == [1, 1] and not (odd and automatic == "SAME_LOWER") else None
    if automatic == "VALID":
        return [0, 0]
    pads = attributes.get("pads", [0, 0, 0, 0])
    if not isinstance(pads, list) or len(pads) != 4 or not isinstance(dilation, list) or len(dilation) != 2:
        return None
    if pads[:2] == pads[2:]:
        return pads[:2]
    spans = [step * (taps - 1) for step, taps in zip(dilation, kernel, strict=False)]
    same = [*(span // 2 for span in spans), *(span - span // 2 for span in spans)]
    return "same" if stride == [1, 1] and pads == same else None
