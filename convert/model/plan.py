"""What a conversion would cost, before it is done: each layer's input size and the memory of literal attention."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..spec import ConvSpec, Size
from .report import LayerRecord


@dataclass(frozen=True)
class LayerPlan(LayerRecord):
    """One convolution that would be converted.

    Attributes:
        input_size: Size of the layer's input, or None if the network does not run on the planned input.
        literal_bytes: Memory of all attention probabilities of one image in float32, or None likewise.
    """

    input_size: Size | None
    literal_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """The layer's plan as plain data."""
        size = None if self.input_size is None else list(self.input_size)
        return super().to_json() | {"name": self.name, "input_size": size}


def plan_layers(
    model: nn.Module, names: list[str], *, size: Size, notes: Mapping[str, str] | None = None
) -> list[LayerPlan]:
    """Plans the named convolutions for images of this size; nothing is computed but shapes.

    Args:
        model: Holds the convolutions.
        names: Of the convolutions.
        size: Of the images.
        notes: What the user should know of layers, by their names.
    """
    sizes = layer_input_sizes(model, names, size=size)
    plans = []
    for name in names:
        conv = model.get_submodule(name)
        if not isinstance(conv, nn.Conv2d):
            continue
        spec, before = ConvSpec.from_conv(conv), sum(parameter.numel() for parameter in conv.parameters())
        input_size = sizes.get(name)
        literal = None if input_size is None else literal_bytes(spec, input_size)
        after, note = before + 3 * spec.num_heads, (notes or {}).get(name)
        plans.append(LayerPlan((name,), spec, before, after, input_size, literal, note=note))
    return plans


def literal_bytes(spec: ConvSpec, size: Size) -> int:
    """Bytes of the attention probabilities of all heads, queries and keys, in float32."""
    return 4 * spec.num_heads * math.prod(spec.output_size(size)) * math.prod(spec.padded_size(size))


def layer_input_sizes(model: nn.Module, names: list[str], *, size: Size) -> dict[str, Size]:
    """Sizes of the inputs that layers get when the model gets one image, as far as it runs on one.

    A copy of the model runs on the meta device, where tensors have shapes and no values. The image has the
    channels of the model's first convolution.
    """
    channels = next((module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d)), 3)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    sizes: dict[str, Size] = {}
    # a network may hold what cannot be copied, want other inputs, or read values
    with torch.no_grad(), contextlib.suppress(Exception):
        shadow = copy.deepcopy(model).to("meta").eval()
        for name in names:
            shadow.get_submodule(name).register_forward_hook(_record(sizes, name))
        shadow(torch.empty(1, channels, *size, device="meta", dtype=dtype))
    return sizes


def _record(sizes: dict[str, Size], name: str) -> Any:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        size = Size(*inputs[0].shape[-2:])
        if isinstance(module, nn.Conv2d):
            ConvSpec.from_conv(module).output_size(size)  # ends the run where only the meta device has an output
        sizes[name] = size

    return hook
