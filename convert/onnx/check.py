"""Holds a network that was rewritten against the original, on one run (``beside.py``).

opset 11    the same operators, so the same bits
attention   every layer within its certificate of the convolution of its own input, and all other nodes as they were

A layer's input is the one that it has in the network. Where it lies in a graph within a node, whose values no engine
gives, or the input is not finite, the layer runs alone on numbers that are drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from onnx import ModelProto, NodeProto, helper
from torch import Tensor

from ..certificate.layer import certify_error, number
from ..errors import ConversionError, OtherNetworkError, first_line, listed
from ..heads.values import LayerValues
from ..subclasses.padded import convolution
from .beside import Run, first_difference, showing, unlike
from .grid import STORED
from .lift import OPSET
from .write import FORMS, written_values

if TYPE_CHECKING:
    from ..layer.layer import SelfAttention
    from .read import ConvolutionNode
    from .write import WholeModel


def same_bits(path: Path, opset: int, model: ModelProto, ran: Run) -> None:
    """Refuses a model in opset 11 that does not give the bits of the file that it was brought from.

    Args:
        path: The file.
        opset: Its version of the standard.
        model: The model in opset 11.
        ran: A run of the file.

    Raises:
        OtherNetworkError: It does not run, or gives other bits; it names the first operator that does.
    """
    try:
        name = unlike(ran.outputs, ran.of(model))
        reason = None if name is None else f"the output {name!r} becomes another"
    except Exception as error:  # whatever the engine raises for a model that it does not run
        reason = f"the result does not run: {first_line(error)[:200]}"
    if reason is None:
        return
    node = first_difference(path, model, ran)
    where = "" if node is None else f"{node.op_type} ({node.name or node.output[0]}) computes something else: "
    raise OtherNetworkError(f"{path} cannot be brought from opset {opset} to {OPSET}: {where}{reason}")


def literal_bytes(model: ModelProto, nodes: Sequence[tuple[ConvolutionNode, SelfAttention]], ran: Run) -> int:
    """Bytes of the largest layer's scores of every query and key, where a run is like that of the original."""
    outer = [(found.node, layer.num_heads) for found, layer in nodes if found.scope.depth == 0]
    with showing(model, [name for node, _ in outer for name in (node.input[0], node.output[0])]) as shown:
        values = ran.of(shown, [port.name for port in shown.graph.output])
    pixels = {name: math.prod(one.shape[2:]) for name, one in values.items() if isinstance(one, np.ndarray)}
    return max((8 * heads * pixels[node.input[0]] * pixels[node.output[0]] for node, heads in outer), default=0)


def difference(whole: WholeModel, ran: Run) -> str | None:
    """Why a network with attention is not the original, or None.

    Args:
        whole: The network.
        ran: A run of the original.
    """
    outer = [found.node for found, _, _ in whole.replaced if found.scope.depth == 0]
    inner = dict.fromkeys(name for node in outer for name in (node.input[0], node.output[0]))
    try:
        with showing(whole.model, list(inner)) as model:
            values = ran.of(model, [*dict.fromkeys((*ran.outputs, *inner))])
    except Exception as error:  # whatever the engine raises for a network that it does not run
        return f"it does not run: {first_line(error)[:200]}"
    problems = []
    for found, layer, nodes in whole.replaced:
        x, y = _pair(whole, found, layer, nodes, values, ran)
        reason = _beyond(written_values(found, layer), whole.form, x, y)
        problems += [] if reason is None else [f"{found.layer or 'the layer'} {reason}"]
    return listed(problems, "; ") if problems else None


def _pair(
    whole: WholeModel,
    found: ConvolutionNode,
    layer: SelfAttention,
    nodes: list[NodeProto],
    values: Mapping[str, Any],
    ran: Run,
) -> tuple[Tensor, Tensor]:
    x, y = (values.get(name) for name in (found.node.input[0], found.node.output[0]))
    if found.scope.depth == 0 and x is not None and x.size and np.isfinite(x).all():
        return torch.from_numpy(x), torch.from_numpy(y)
    own = written_values(found, layer)
    size = [reach + 1 + 2 * stride for reach, stride in zip(own.spec.reach, own.spec.stride, strict=True)]
    x = torch.randn(2, own.spec.in_channels, *size, generator=torch.Generator().manual_seed(0)).to(own.weight.dtype)
    names = [name for name in found.node.input if name]
    bias = torch.zeros(own.spec.out_channels, dtype=own.weight.dtype) if own.bias is None else own.bias
    feeds = dict(zip(names, (x, own.weight, bias), strict=False))  # the last one where the node has a bias
    kind = STORED[own.weight.dtype]
    ports = [helper.make_tensor_value_info(name, kind, list(one.shape)) for name, one in feeds.items()]
    end = helper.make_tensor_value_info(found.node.output[0], kind, None)
    alone = helper.make_model(helper.make_graph(nodes, "layer", ports, [end]), opset_imports=whole.model.opset_import)
    alone.ir_version = whole.model.ir_version
    (y,) = ran.engine(alone).run([end.name], {name: one.detach().numpy() for name, one in feeds.items()})
    return x, torch.from_numpy(y)


@torch.no_grad()
def _beyond(layer: LayerValues, form: str, x: Tensor, y: Tensor) -> str | None:
    largest = float(x.abs().max())
    try:
        limit = certify_error(layer, FORMS[form].error(layer), input_range=(-largest, largest)).bound
    except ConversionError:  # parameters of which nothing is certified, such as infinite ones
        return None
    conv = convolution(layer.spec, dtype=torch.float64)
    conv.weight.copy_(layer.weight)
    if conv.bias is not None:
        conv.bias.copy_(torch.zeros_like(conv.bias) if layer.bias is None else layer.bias)
    exact = conv(x.double())
    if exact.shape != y.shape:
        return f"gives {list(y.shape)}, and its convolution {list(exact.shape)}"
    apart = float((exact - y.double()).abs().max()) if y.numel() else 0.0
    if apart <= limit or math.isinf(limit):
        return None
    return f"is {number(apart)} from its convolution, and its certificate is {number(limit)}"
