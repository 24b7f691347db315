"""Summary of a conversion: its attention layers, and why they are as fast as the CNN.

Literal attention is sampled on an image that is drawn, at the inputs that the layers then get; the same numbers in
another program would be another statement, so whether the converted network is the CNN's own program is one of its own.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import Size
from ..certificate.network.same import is_same_program
from ..certificate.sampled import LiteralSample, inputs_of_layers, sample_layer
from ..engines.base import convolution_flops
from ..errors import ConversionError, Problem, listed
from ..examples.images import DRAWN_SIZE, drawn_image, drawn_input, network_input
from ..inputs import likely_channels
from ..layer.layer import SelfAttention
from ..network.convert import restore_model
from ..network.plan import watching_runs
from ..network.report import LayerReport
from .layers import Layers, attention_named

_FLOPS = 2e10  # most FLOPs to run a network on the image: seconds


@dataclass(frozen=True)
class Summary:
    """Summary of a conversion.

    Attributes:
        layers: Number of attention layers.
        heads: Number of heads in all of them.
        samples: Literal attention of each that is certified and ran, by its name.
        is_same_program: Whether the converted network is the CNN's program, node for node.
        idle: The layers that did not run on the drawn image, each with the reason; None if it did not run on one.
        image: The drawn image that it ran on, [1, channels, rows, columns]; None for layers alone, or if it did not.
    """

    layers: int
    heads: int
    samples: Mapping[str, LiteralSample]
    is_same_program: bool
    idle: tuple[Problem, ...] | None = None
    image: Tensor | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, model: nn.Module, layers: Sequence[LayerReport], *, size: Size) -> Summary:
        """Samples literal attention on a drawn image; of ``size``, where the network does not run on small ones."""
        image, inputs, same, idle = None, dict[str, Tensor](), False, None
        with contextlib.suppress(ConversionError):
            if isinstance(model, Layers):
                inputs = {layer.name: drawn_input(attention_named(model, layer.name)) for layer in layers}
            else:
                sizes = (DRAWN_SIZE, *([size] if len(size) == len(DRAWN_SIZE) else []))
                with watching_runs(model) as runs:
                    image, inputs = run_on_drawn(model, sizes, most_flops=_FLOPS)
                idle = runs.idle(model)
                same = len(idle) < len(layers) and is_the_cnn(model, _as_taken(model, image))
        samples = {}
        for name, x in inputs.items():
            with contextlib.suppress(ConversionError):  # scores cancel, or an input is not finite
                samples[name] = sample_layer(attention_named(model, name), x)
        return cls(len(layers), sum(layer.heads for layer in layers), samples, same, idle, image)

    @property
    def in_words(self) -> str:
        """The summary in a few sentences."""
        told = [f"{self.layers:,} layer{'s' * (self.layers != 1)}, {self.heads:,} head{'s' * (self.heads != 1)}."]
        if self.samples:
            known = self.samples.values()
            difference, bound = (max(getattr(one, name) for one in known) for name in ("difference", "bound"))
            limit = f"bound {bound:.1e}" if math.isfinite(bound) else "without a finite bound"
            queries = max(one.queries for one in known)
            told.append(f"Literal attention at {queries} queries a layer: at most {difference:.1e} apart, {limit}.")
        if self.is_same_program:
            told.append("Evaluated by the convolution's own call: same bits as the CNN.")
        for reason in dict.fromkeys(each.reason for each in self.idle or ()):
            told.append(f"{listed([each.name for each in self.idle or () if each.reason == reason])} {reason}.")
        return " ".join(told)

    def to_json(self) -> dict[str, Any]:
        """The summary as plain data, without the single layers."""
        numbers = {"layers": self.layers, "heads": self.heads, "same_program": self.is_same_program}
        return numbers | {"sampled": len(self.samples), "in_words": self.in_words}


def run_on_drawn(
    model: nn.Module, sizes: Sequence[Size], *, most_flops: float = math.inf
) -> tuple[Tensor, dict[str, Tensor]]:
    """Runs a network on a drawn image of the first size that it takes; if it takes none, the first error is raised.

    Returns:
        The image, [1, channels, rows, columns], and the first input of each attention layer, by name.
    """
    errors = []
    for size, channels in product(dict.fromkeys(sizes), likely_channels(model)):
        try:
            with torch.device("cpu"):  # whatever torch's default is
                image = drawn_image(channels, size)
            return image, inputs_of_layers(model, _as_taken(model, image), allowed=_within(most_flops))
        except ConversionError as error:
            errors.append(error)
    raise errors[0]


def _as_taken(model: nn.Module, image: Tensor) -> Tensor:
    """An image as a network of its first attention layer's axes takes it, in that layer's precision."""
    first = next((each for each in model.modules() if isinstance(each, SelfAttention)), None)
    return image if first is None else network_input(image.to(first.weight), first.spec.axes)


def _within(flops: float) -> Callable[[SelfAttention, Tensor], bool]:
    """Returns a test that accepts layers while their convolutions together take at most ``flops`` for one image."""
    left = flops

    def allowed(layer: SelfAttention, x: Tensor) -> bool:
        nonlocal left
        left -= convolution_flops(layer.spec, Size(*x.shape[2:]), batch=1)
        return left >= 0

    return allowed


def is_the_cnn(model: nn.Module, image: Tensor) -> bool:
    """Whether a network is its CNN's program; False at once if a layer is not in the exact regime."""
    layers = [module for module in model.modules() if isinstance(module, SelfAttention)]
    if model.training or not all(layer.regime.is_exact and layer.content is None for layer in layers):
        return False
    try:
        return is_same_program(restore_model(model), model, image)
    except ConversionError:  # a layer was trained away from its convolution
        return False
