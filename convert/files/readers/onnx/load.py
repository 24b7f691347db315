"""Loads an ONNX model: its functions put into its graph, and external data from the model's folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, external_data_helper, inliner, shape_inference

from ....errors import CheckpointError, first_line
from ....plain import path_in

OWN_DOMAINS = ("", "ai.onnx")
"""The two names of the domain of ONNX's own operators."""


def load_model(path: Path) -> tuple[ModelProto, tuple[Path, ...]]:
    """Loads a model, complete in memory and without functions of its own, with every file that was read.

    Raises:
        CheckpointError: The file is damaged, is not an ONNX model, or names external data that are not in its folder.
    """
    with reading(path):
        model = onnx.load(path, load_external_data=False)
        if not model.HasField("graph"):
            raise CheckpointError("it holds no graph")
        if model.functions:
            model = inliner.inline_local_functions(model)
        files = dict.fromkeys(_load_external(tensor, path.parent) for tensor in _external_tensors(model.graph))
        attributes = (one.name for graph in graphs_of(model.graph) for node in graph.node for one in node.attribute)
        if "output_shape" in attributes:  # a ConvTranspose whose cropping depends on the size of its input
            model = shape_inference.infer_shapes(model)
    return model, (path, *files)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns any flaw found in a file, or any error of onnx, within this context into a CheckpointError."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    except OSError:
        raise
    except Exception as error:  # DecodeError, ValidationError, InferenceError, and others
        raise CheckpointError(f"{path} is damaged, or not an ONNX model: {first_line(error)[:200]}") from error


def graphs_of(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and all graphs within its nodes, each before those within it."""
    yield graph
    for node in graph.node:
        for _, inner in inner_graphs(node):
            yield from graphs_of(inner)


def inner_graphs(node: NodeProto) -> Iterator[tuple[str, GraphProto]]:
    """The graphs in a node's attributes (If, Loop, Scan), each with the attribute's name."""
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield attribute.name, graph


def _external_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """The tensors whose numbers lie in other files: initializers, and attributes of nodes."""
    for each in graphs_of(graph):
        attributes = [attribute for node in each.node for attribute in node.attribute]
        inner = [tensor for attribute in attributes for tensor in (attribute.t, *attribute.tensors)]
        yield from filter(external_data_helper.uses_external_data, (*each.initializer, *inner))


def _load_external(tensor: TensorProto, folder: Path) -> Path:
    """Puts a tensor's numbers into it, and gives the file that they were in.

    Not by onnx's own function, which refuses the links of a Hugging Face cache (``path_in``).
    """
    info = external_data_helper.ExternalDataInfo(tensor)
    path = path_in(folder, info.location)
    with path.open("rb") as file:
        file.seek(info.offset or 0)
        numbers = file.read(-1 if info.length is None else info.length)
    if info.length is not None and len(numbers) < info.length:
        raise CheckpointError(f"{path} ends before the numbers of {tensor.name[:100]!r}")
    tensor.raw_data = numbers
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]
    return path
