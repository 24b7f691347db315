"""ONNX files that tests make, and runs of them by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

from conv2attn.convert import SelfAttention
from conv2attn.convert.onnx import read_onnx
from conv2attn.convert.onnx.write import layer_nodes
from conv2attn.convert.spec import Convolution, DescribedConvolution
from conv2attn.convert.subclasses.padded import convolution

FLOAT = TensorProto.FLOAT


def port(name: str, shape: Sequence[int | str] | None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def tensor(name: str, values: Tensor | Any) -> TensorProto:
    return numpy_helper.from_array(values.detach().numpy() if isinstance(values, Tensor) else np.asarray(values), name)


def network(
    nodes: Sequence[NodeProto],
    tensors: Sequence[TensorProto],
    *,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    opset: int = 17,
    **more: Any,
) -> ModelProto:
    graph = helper.make_graph(nodes, "network", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **more)


def layer_network(layer: SelfAttention, form: str, opset: int) -> ModelProto:
    """A network of one attention layer alone."""
    bias = "bias" if layer.bias is not None else ""
    nodes = layer_nodes(layer.values(), form, x="x", weight="weight", bias=bias, output="y")
    tensors = [tensor("weight", layer.weight), *([] if layer.bias is None else [tensor("bias", layer.bias)])]
    kind = helper.np_dtype_to_tensor_dtype(layer.weight.detach().numpy().dtype)
    ports = [port(name, [f"{name}{axis}" for axis in range(layer.spec.axes + 2)], kind) for name in ("x", "y")]
    return network(nodes, tensors, inputs=ports[:1], outputs=ports[1:], opset=opset)


def small_integers(*shape: int) -> Any:
    """Integers in single precision, the sums of whose products are not rounded in any order."""
    return np.random.default_rng(7).integers(-4, 5, size=shape).astype(np.float32)


def read(model: ModelProto, path: Path) -> tuple[dict[str, Tensor], dict[str, DescribedConvolution]]:
    """What the reader finds in a model that is written to a file."""
    path.write_bytes(model.SerializeToString())
    tensors, files, layers = read_onnx(path)
    assert files == (path,)
    return tensors, layers


@torch.no_grad()
def convolution_in(model: ModelProto, name: str, path: Path) -> Convolution:
    """A layer of a model, as the convolution that it describes."""
    tensors, layers = read(model, path)
    layer = layers[name]
    assert layer.spec is not None, layer.problem
    conv = convolution(layer.spec, dtype=tensors[layer.weight].dtype)
    conv.weight.copy_(tensors[layer.weight])
    if conv.bias is not None and layer.bias is not None:
        conv.bias.copy_(tensors[layer.bias])
    return conv.requires_grad_(False)


def run(model: ModelProto | bytes, **feeds: Any) -> list[Any]:
    """All outputs of a network."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    content = model if isinstance(model, bytes) else model.SerializeToString()
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def operators(graph: Any) -> set[str]:
    """The operators of a graph and of those within it."""
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return {node.op_type for node in graph.node}.union(*map(operators, inner))
