"""Record of each attention layer after an epoch: where its heads look, and its distance from the convolution.

Non-locality is ConViT's (arXiv 2103.10697): the mean distance in pixels between a query and what it attends to, over
heads and queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...convert.attention.layer import SelfAttention
from ...convert.certificate.distance import distance_from_convolution
from ...convert.certificate.layer import InputRange
from ...convert.certificate.sampled import inputs_of_layers
from ...convert.engines.axes import axis_probabilities
from ...convert.engines.literal import all_queries
from ...convert.heads.encoding import key_positions
from ...convert.heads.gate import opening
from ...convert.size import Size
from ..training.records import Record
from .melt import INPUT_RANGE, attention_layers

_QUERIES = 64  # at most, spread evenly over the image
_PROBABILITIES = 2**24  # in memory at one time: a stem of 7x7 taps sees 150,000 pixels with 49 heads


@dataclass(frozen=True)
class AttentionRecorder:
    """Looks at the attention layers of a network.

    Attributes:
        origin: The weight and bias of the convolution that each layer came from, by the layer's name.
        images: A few images [batch, channels, rows, columns] in float32, whose sizes and contents layers see.
        input_range: What distances are for.
    """

    origin: dict[str, tuple[Tensor, Tensor | None]]
    images: Tensor
    input_range: InputRange = INPUT_RANGE

    @classmethod
    def of(cls, model: nn.Module, images: Tensor) -> AttentionRecorder:
        """For a network that was just melted, whose weights are still the convolutions'."""
        origin = {
            name: (layer.weight.detach().clone(), None if layer.bias is None else layer.bias.detach().clone())
            for name, layer in attention_layers(model)
        }
        return cls(origin, images)

    def __call__(self, model: nn.Module) -> Record:
        """Records every attention layer that the network calls, by name."""
        inputs = inputs_of_layers(model, self.images)
        return {
            "layers": {
                name: {
                    **positions(layer),
                    "distance": distance_from_convolution(
                        layer, input_range=self.input_range, weight=weight, bias=bias
                    ).bound,
                    "nonlocality": nonlocality(layer, inputs[name]),
                }
                for name, layer in attention_layers(model)
                if name in inputs
                for weight, bias in [self.origin[name]]
            }
        }


def positions(layer: SelfAttention) -> dict[str, Any]:
    """Alpha, centres and gates of every head."""
    gate = None if layer.content is None else layer.content.gate
    return {
        "alpha": list(layer.regime.alpha),
        "centers": [list(center) for center in layer.regime.centers],
        "gate": None if gate is None else opening(gate.detach()).tolist(),
    }


@torch.no_grad()
def nonlocality(layer: SelfAttention, x: Tensor) -> float:
    """The mean distance, in pixels, between a query and what a head attends to, over heads, queries and images.

    Args:
        layer: The layer.
        x: Its input, [batch, in_channels, *size].
    """
    size = Size(*x.shape[2:])
    output = layer.spec.output_size(size)
    every = torch.cartesian_prod(*(torch.arange(length) for length in output)).view(-1, len(output))
    taken = every[torch.linspace(0, len(every) - 1, min(_QUERIES, len(every))).long()]
    padded, like = layer.spec.padded_size(size), torch.empty((), dtype=torch.float64)
    keys, queries = key_positions(padded, like=like), all_queries(layer.spec, size, like=like)
    maps = len(keys) * (1 if layer.content is None else layer.num_heads * len(x))
    total = 0.0
    for part in taken.split(max(1, _PROBABILITIES // maps)):
        far = torch.cdist(queries[[_row(query, output) for query in part]], keys)
        if layer.content is None:
            attended = _expected(layer, size, part, far.view(-1, *padded))
        else:
            seen = layer.attention_probabilities(size, queries=part.tolist(), x=x)
            attended = (seen.cpu().double().flatten(-layer.spec.axes) * far).sum(-1)
        total += len(part) * float(attended.mean())
    return total / len(taken)


def _expected(layer: SelfAttention, size: Size, queries: Tensor, far: Tensor) -> Tensor:
    """sum_k p(k) far(k) of positional attention, p a product of one factor an axis: [num_heads, queries].

    Args:
        layer: The layer.
        size: Size of its input.
        queries: Some output pixels, [queries, axes].
        far: Of each query's keys, [queries, *padded size].
    """
    *others, last = (
        axis_probabilities(layer, size, axis)[:, queries[:, axis]].cpu().double() for axis in range(layer.spec.axes)
    )
    found = torch.einsum("q...k,hqk->hq...", far, last)
    for shares in reversed(others):
        found = torch.einsum("hq...k,hqk->hq...", found, shares)
    return found


def _row(query: Tensor, output: Size) -> int:
    """The number of a query, row by row."""
    number = 0
    for coordinate, length in zip(query.tolist(), output, strict=True):
        number = number * length + coordinate
    return number
