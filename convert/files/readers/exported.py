"""Programs that torch.export saved (.pt2): JSON that describes a graph and its weights, and the weights' bytes.

``torch.export.load`` unpickles; here the archive's JSON is read and its weights are mapped, nothing else. The
graph's convolutions carry their geometry.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import torch

from ...errors import CheckpointError
from .archive import Archive
from .common.geometry import StoredConvolution, add_layer, describe, layer_name
from .common.limits import MAX_HEADER, MAX_NAME, MAX_TENSORS, parse_json
from .common.quantised import DEQUANTISED
from .common.stored import OddTensor, StoredTensor
from .graph import TRANSPOSED, Graph
from .node import Node, arguments, inputs, list_of, misplaced, module, named, node_name, target
from .quantised_program import dequantised_weight

MODEL = "models/model.json"
_WEIGHTS = "data/weights/"
_CONFIG = f"{_WEIGHTS}model_weights_config.json"
_PICKLED = f"{_WEIGHTS}model.pt"  # all weights, as versions of PyTorch before 2.9 wrote them
_STRIDED = 7  # torch's code for the layout of dense tensors
_DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
    28: torch.uint16,
    34: torch.uint32,
    35: torch.uint64,
    29: torch.float8_e4m3fn,
    30: torch.float8_e5m2,
    31: torch.float8_e4m3fnuz,
    32: torch.float8_e5m2fnuz,
}
_PLAIN = re.compile(
    r"torch\.ops\.aten\.(conv[123]d\.(default|padding)|conv_transpose(1d\.default|[23]d\.input)|convolution\.default)"
)
ATTENTION = (
    "it is attention whose program is not that of a convolution; read the weights with the network's architecture, or "
    "the folder that save_converted writes"
)
INNER = "it is computed in a part of the program that runs on a condition, in a loop or in another mode of PyTorch"
_DEQUANTISED = 2000  # bytes that the description of a dequantised weight takes, besides its name
_GEOMETRY = ("stride", "padding", "dilation", "groups")
_ALONG = ("stride", "padding", "dilation", "output_padding")  # a number for each axis, or one for all


def read_exported(archive: Archive, root: str) -> tuple[dict[str, object], dict[str, StoredConvolution]]:
    """Tensors of an exported program by name, and its convolutions.

    Args:
        archive: The archive.
        root: The folder in it that everything lies in.

    Raises:
        CheckpointError: The archive is damaged, or describes weights by what they are not.
    """
    path = archive.source.path
    archive.check_byte_order(root)
    if f"{root}{_PICKLED}" in archive.entries:  # PyTorch then reads no other weights
        raise CheckpointError(f"{path} keeps its weights in the pickle {_PICKLED}; torch.export.save writes it anew")
    config = _mapping(_json(archive, f"{root}{_CONFIG}"), "config")
    if len(config) > MAX_TENSORS:
        raise CheckpointError(f"{path} has {len(config)} tensors; at most {MAX_TENSORS} are read")
    tensors: dict[str, object] = {_short(key): _tensor(archive, root, key, entry) for key, entry in config.items()}
    _check_kinds(tensors)
    program = _mapping(_json(archive, f"{root}{MODEL}"), "graph_module")
    signature = _mapping(program, "signature")
    graph = Graph(list_of(_mapping(program, "graph").get("nodes")), archive.source.budget)
    keys = _keys(signature.get("input_specs"), graph)
    changed = [keys[name] for name in graph.written if name in keys]
    written = set(_storages([*changed, *_mutated(signature.get("output_specs"))], tensors))
    convolutions: dict[str, StoredConvolution] = {}
    for node in graph.convolutions:
        name, convolution = _convolution(node, graph, keys, tensors, written)
        add_layer(convolutions, name, convolution, otherwise=node_name(node))
    for name in graph.inner:
        convolutions.setdefault(name, StoredConvolution.refused(INNER))
    for name in _attention_layers(tensors):
        if convolutions.setdefault(name, StoredConvolution.refused(ATTENTION)).spec is not None:
            for part in ("alpha", "centers"):  # the program checks them, and computes without them
                del tensors[f"{name}.{part}".removeprefix(".")]
    return tensors, convolutions


def _json(archive: Archive, name: str) -> object:
    what = f"{archive.source.path}: {name.partition('/')[2]}"
    return parse_json(archive.read(name, limit=MAX_HEADER), what, archive.source.budget)


def _mapping(value: object, key: str) -> dict[str, object]:
    """The object under a key of a JSON object."""
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise CheckpointError(f"the program's description lacks its {key}")
    return found


def _tensor(archive: Archive, root: str, key: str, entry: object) -> StoredTensor | OddTensor:
    meta = _mapping(entry, "tensor_meta")
    name = entry.get("path_name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str) or "/" in name:
        raise CheckpointError(f"{archive.source.path} is damaged: it does not say where {key[:100]!r} lies")
    if entry.get("use_pickle") is not False:
        return OddTensor("pickled")
    code, layout = meta.get("dtype"), meta.get("layout")
    if not isinstance(code, int) or code not in _DTYPES or layout != _STRIDED:
        return OddTensor("sparse, quantized or unknown")
    shape, stride = (_integers(meta.get(part)) for part in ("sizes", "strides"))
    (first,) = _integers([meta.get("storage_offset")])
    storage = archive.storage(f"{root}{_WEIGHTS}{name}")
    return StoredTensor.of(storage, _DTYPES[code], shape=shape, stride=stride, first=first)


def _integers(values: object) -> list[object]:
    """The numbers of ``[{"as_int": 3}, ...]``; None where a size is symbolic."""
    return [value.get("as_int") if isinstance(value, dict) else None for value in list_of(values)]


def _keys(specs: object, graph: Graph) -> dict[str, str]:
    """The keys of parameters and buffers among the tensors, by their names in the graph."""
    found: dict[str, str] = {}
    for name, key in _placeholders(specs):
        if name in found or name in graph.made:
            raise CheckpointError(f"the program has two tensors called {name[:100]!r}")
        found[name] = _short(key)
    return found


def _short(key: str) -> str:
    """A key that is no longer than names are."""
    if len(key) > MAX_NAME:
        raise CheckpointError(f"the program names a tensor by {len(key)} letters; at most {MAX_NAME} are read")
    return key


def _check_kinds(tensors: Mapping[str, object]) -> None:
    """Refuses numbers of two dtypes in one entry: PyTorch keeps the first, and reads every tensor by it."""
    kinds: dict[int, torch.dtype] = {}
    for key, tensor in tensors.items():
        if isinstance(tensor, StoredTensor) and kinds.setdefault(id(tensor.storage), tensor.dtype) != tensor.dtype:
            raise CheckpointError(f"the program says of the numbers of {key[:100]!r} that they are of two dtypes")


def _storages(keys: Iterable[str], tensors: Mapping[str, object]) -> Iterator[int]:
    """Where the numbers of parameters and buffers lie; those of others that lie there too change with them."""
    for key in keys:
        tensor = tensors.get(key)
        if isinstance(tensor, StoredTensor):
            yield id(tensor.storage)


def _mutated(specs: object) -> Iterator[str]:
    """The keys of parameters and buffers that are given other numbers whenever the program ends."""
    for spec in list_of(specs):
        for kind in ("parameter", "buffer"):
            entry = spec.get(f"{kind}_mutation") if isinstance(spec, dict) else None
            key = entry.get(f"{kind}_name") if isinstance(entry, dict) else None
            if isinstance(key, str):
                yield key


def _placeholders(specs: object) -> Iterator[tuple[str, str]]:
    """Names in the graph of parameters and buffers, each with its key among the tensors."""
    for spec in list_of(specs):
        for kind in ("parameter", "buffer"):
            entry = spec.get(kind) if isinstance(spec, dict) else None
            argument = entry.get("arg") if isinstance(entry, dict) else None
            name = argument.get("name") if isinstance(argument, dict) else None
            key = entry.get(f"{kind}_name") if isinstance(entry, dict) else None
            if isinstance(name, str) and isinstance(key, str):
                yield name, key


def _convolution(
    node: Node, graph: Graph, keys: Mapping[str, str], tensors: dict[str, object], written: Collection[int]
) -> tuple[str, StoredConvolution]:
    """A node's layer name and convolution; a weight that is dequantised is added to the tensors."""
    given, kind = arguments(node), target(node)
    weight, bias = (keys.get(named(given, part)) for part in ("weight", "bias"))
    note, name = None, node_name(node) if weight is None else layer_name(weight)
    maker = graph.maker(node, "weight") if weight is None else None
    found = dequantised_weight(maker, keys, tensors)
    if maker is not None and found is not None:
        integers, tensor = found
        weight, note = f"{integers} (dequantised for {node_name(node)})", DEQUANTISED
        graph.budget.spend(memory=sys.getsizeof(weight) + _DEQUANTISED)
        tensors.setdefault(weight, tensor)
        name = module(node) or layer_name(integers)
    if not _PLAIN.fullmatch(kind):
        kind = kind.removeprefix("torch.ops.")[:100]
        return name, StoredConvolution.refused(f"{kind} is not a plain convolution")
    if bias is None and "bias" in given:
        return name, StoredConvolution.refused("its bias is computed")
    if misplaced(node):
        return name, StoredConvolution.refused("it is given an argument at the place of another")
    if type(given.get("transposed", False)) is not bool:  # PyTorch takes numbers for it, too
        return name, StoredConvolution.refused("whether it is transposed is told by no truth value")
    read = [named(given, "weight"), named(given, "bias"), *(inputs(maker) if maker is not None else ())]
    if not set(_storages([keys[each] for each in read if each in keys], tensors)).isdisjoint(written):
        return name, StoredConvolution.refused("the program changes its weight or bias")
    geometry = _geometry(kind, given, tensors.get(weight or ""))
    if weight is not None:
        padding, problem = graph.within(node, name)
        is_attention = f"{weight.removesuffix('weight')}alpha" in tensors
        if is_attention and (problem is not None or module(node) != name):
            problem = ATTENTION
        if problem is not None:
            return name, StoredConvolution.refused(problem)
        geometry |= padding
    return name, replace(describe(tensors, weight, bias, geometry), note=note)


def _geometry(kind: str, given: Mapping[str, object], weight: object) -> dict[str, object]:
    """What a node's arguments say of its geometry."""
    transposed = TRANSPOSED in kind or given.get("transposed") is True
    keys = (*_GEOMETRY, "output_padding") if transposed else _GEOMETRY
    axes = len(weight.shape) - 2 if isinstance(weight, StoredTensor) else 0
    found = {key: _along(given[key], axes) if key in _ALONG else given[key] for key in keys if key in given}
    return {**found, "transposed": True} if transposed else found


def _attention_layers(tensors: Mapping[str, object]) -> list[str]:
    """Names of the layers whose weight lies beside the alpha and the centres of attention."""
    weights = [key for key in tensors if key == "weight" or key.endswith(".weight")]
    prefixes = [key.removesuffix("weight") for key in weights]
    found = [prefix for prefix in prefixes if f"{prefix}alpha" in tensors and f"{prefix}centers" in tensors]
    return [prefix.removesuffix(".") for prefix in found]


def _along(value: object, axes: int) -> object:
    """A list of one number is meant for all axes."""
    return value * max(axes, 1) if isinstance(value, list) and len(value) == 1 else value
