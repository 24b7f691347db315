"""Records where each layer's heads look after an epoch, and its distance from the convolution.

Non-locality is ConViT's (arXiv 2103.10697): the mean distance in pixels between a query and what it attends to, over
heads and queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..convert.arguments import Size
from ..convert.certificate.distance import distance_from_convolution
from ..convert.certificate.literal import inputs_of_layers
from ..convert.engines.literal import all_queries
from ..convert.heads.encoding import key_positions
from ..convert.layer.layer import SelfAttention
from .melting import INPUT_RANGE, attention_layers
from .training.folders import Record

_QUERIES = 64  # at most, spread evenly over the image
_AT_ONCE = 4  # queries: a stem of 7x7 taps has 49 heads, each with a probability for 50,000 pixels


@dataclass(frozen=True)
class AttentionRecorder:
    """Looks at the attention layers of a network.

    Attributes:
        origin: The weight and bias of the convolution that each layer came from, by the layer's name.
        images: A few images [batch, channels, rows, columns] in float32, whose sizes and contents layers see.
    """

    origin: dict[str, tuple[Tensor, Tensor | None]]
    images: Tensor

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
        layers = {}
        for name, layer in attention_layers(model):
            if name in inputs:
                weight, bias = self.origin[name]
                distance = distance_from_convolution(layer, input_range=INPUT_RANGE, weight=weight, bias=bias)
                layers[name] = {
                    "alpha": list(layer.regime.alpha),
                    "centers": [list(center) for center in layer.regime.centers],
                    "distance": distance.bound,
                    "nonlocality": nonlocality(layer, inputs[name]),
                }
        return {"layers": layers}


@torch.no_grad()
def nonlocality(layer: SelfAttention, x: Tensor) -> float:
    """The mean distance, in pixels, between a query and what a head attends to, over heads, queries and images.

    Args:
        layer: The layer.
        x: Its input, [batch, in_channels, *size].
    """
    spec, size = layer.spec, Size(*x.shape[2:])
    like = torch.empty((), dtype=torch.float64, device="cpu")
    keys, queries = key_positions(spec.padded_size(size), like=like), all_queries(spec, size, like=like)
    pixels = torch.cartesian_prod(*map(torch.arange, spec.output_size(size))).view(-1, spec.axes)
    taken = torch.linspace(0, len(pixels) - 1, min(_QUERIES, len(pixels)), dtype=torch.float32, device="cpu").long()
    total = 0.0
    for rows in taken.split(_AT_ONCE):
        seen = layer.attention_probabilities(
            size, queries=pixels[rows].tolist(), x=None if layer.content is None else x
        )
        far = torch.cdist(queries[rows], keys)
        total += len(rows) * float((seen.cpu().double().flatten(-spec.axes) * far).sum(-1).mean())
    return total / len(taken)
