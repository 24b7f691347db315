"""What makes one side of a case of the other: trained-like weights, copies with other parts, black boxes, ONNX files.

A wrong eps is invisible where every variance is 1, and a wrong position where attention is flat: see ``settled``.
"""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import onnx
import torch
from blocks import Attention, FusedAttention, RMSNorm, WrittenNorm
from torch import Tensor, nn

_Network = TypeVar("_Network", bound=nn.Module)


def settled(network: _Network, *inputs: Tensor) -> _Network:
    """The network in eval mode, as training leaves it.

    Norms have spread weights, and attention is sharp (scores with a standard deviation of 2). If inputs are given,
    channels in front of batch norms have scales from 0.03 to 3, and batch norms the statistics of these inputs.
    """
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm2d, nn.BatchNorm1d, RMSNorm, WrittenNorm)):
                part.weight.add_(0.2 * torch.randn_like(part.weight))
                if not isinstance(part, RMSNorm):
                    part.bias.add_(0.1 * torch.randn_like(part.bias))
            if isinstance(part, Attention):
                part.q.weight.mul_(2.5)
                part.k.weight.mul_(2.5)
            if isinstance(part, FusedAttention):
                part.qkv.weight[: 2 * part.out.in_features].mul_(2.5)
            if inputs and isinstance(part, nn.Conv2d) and part.bias is None:
                part.weight.mul_(10 ** torch.empty(len(part.weight), 1, 1, 1).uniform_(-1.5, 0.5))
            if isinstance(part, nn.BatchNorm2d):
                part.momentum = 1.0
        if inputs:
            network.train()(*inputs)
    return network.eval()


def edited(network: _Network, kind: type[nn.Module], *, where: str = "", **attributes: Any) -> _Network:
    """A copy with other attributes in all modules of a kind whose names contain an expression."""
    other = copy.deepcopy(network)
    found = [part for name, part in other.named_modules() if isinstance(part, kind) and re.search(where, name)]
    if not found:
        raise LookupError(f"no {kind.__name__} at {where!r}")
    for part in found:
        for name, value in attributes.items():
            setattr(part, name, value)
    return other


def replaced(network: _Network, kind: type[nn.Module], make: Callable[[Any], nn.Module]) -> _Network:
    """A copy in which each module of a kind gives way to another that is made of it."""
    other = copy.deepcopy(network)
    for name, part in list(other.named_modules()):
        if isinstance(part, kind):
            parent, _, own = name.rpartition(".")
            setattr(other.get_submodule(parent), own, make(part).train(part.training))
    return other


def black_box(network: nn.Module) -> Callable[..., Any]:
    """An engine that can be called, and not looked into."""
    return lambda *inputs: network(*inputs)


def exported(network: nn.Module, inputs: tuple[Tensor, ...], folder: Path, **attributes: Any) -> Path:
    """An ONNX file of torch's exporter; attributes of nodes are changed afterwards, as ``Resize_mode="linear"``."""
    path = folder / "network.onnx"
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it says which libraries are not installed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch.onnx.export(network, inputs, path, dynamo=True, verbose=False)
    model = onnx.load(path)
    for key, value in attributes.items():
        kind, _, name = key.partition("_")
        for node in model.graph.node:
            if node.op_type == kind:
                kept = [one for one in node.attribute if one.name != name]
                del node.attribute[:]
                node.attribute.extend([*kept, onnx.helper.make_attribute(name, value)])
    onnx.save(model, path)
    return path
