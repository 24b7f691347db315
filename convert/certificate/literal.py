"""Literal attention at sampled queries, beside the convolution: the first line about a converted layer.

At some queries, spread over the output, the softmax over *all* keys is taken as the paper writes it, on the input that
the layer really gets, and its result stands beside the convolution's and the certificate of that input.

Keys are mixed before channels, (A_h X) W_h, so that no value of any key and head is stored. The literal engine's bound
holds for it (``rounding.literal_error``): one-hot attention gives x exactly, and then sums over channels and over heads
follow, as there; else a sum of n keys, and then of h heads, rounds n - 1 + h - 1 <= n h - 1 times, which is what is
counted for one over both.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import Size
from ..engines.literal import all_queries, attention_probabilities
from ..errors import ConversionError, InputError, first_line
from ..heads.values import LayerValues
from ..layer.checked import checked_layer
from ..layer.layer import SelfAttention
from ..subclasses.computed import in_eval_mode
from .data import certify_data, convolve_padded

QUERIES = 64
_SCORES = 2**23  # scores of all heads and keys in memory at one time


@dataclass(frozen=True)
class LiteralSample:
    """Literal attention of a layer at some queries, beside its convolution.

    Attributes:
        queries: Number of queries.
        difference: Largest |attention - convolution| at these.
        bound: The certificate of that input for the literal engine.
        outputs: Largest absolute value of the convolution's outputs.
    """

    queries: int
    difference: float
    bound: float
    outputs: float

    def to_json(self) -> dict[str, Any]:
        """The sample as plain data; None for a bound that is not finite."""
        return asdict(self) | {"bound": self.bound if math.isfinite(self.bound) else None}


@torch.no_grad()
def sample_layer(layer: SelfAttention, x: Tensor, *, queries: int = QUERIES) -> LiteralSample:
    """Computes literal attention at some queries.

    Args:
        layer: A layer whose heads are at the kernel's taps, without content.
        x: Its input, [batch, in_channels, *size], of which the first image counts.
        queries: Number of output pixels, or all if there are fewer.

    Raises:
        ConversionError: The layer is not certified, or the input does not fit.
    """
    values, x = checked_layer(layer), x[:1].detach()
    spec, certificate = values.spec, certify_data(layer, [x], engine="literal")
    size = Size(*x.shape[2:])
    places = all_queries(spec, size, like=x)
    chosen = torch.linspace(0, len(places) - 1, min(queries, len(places)), dtype=torch.float32, device=x.device)
    chosen = chosen.round().long()
    found = _attention(values, size, spec.pad(x), places[chosen])
    expected = convolve_padded(spec, spec.pad(x), values.kernel, values.bias)[0].flatten(1)
    difference = (found.double() - expected[:, chosen].T.double()).abs().max()
    return LiteralSample(len(chosen), float(difference), certificate.bound, float(expected.abs().max()))


def _attention(layer: LayerValues, size: Size, padded: Tensor, queries: Tensor) -> Tensor:
    """The layer at some queries: [num_queries, out_channels]."""
    spec, keys = layer.spec, padded[0].flatten(1).T.to(layer.regime.dtype)
    chunk = max(1, _SCORES // (spec.num_heads * len(keys)))
    kernel = layer.kernel.to(keys.dtype).flatten(2).unflatten(0, (spec.groups, -1))
    parts = []
    for some in queries.split(chunk):
        mixed = attention_probabilities(layer, size, some, None) @ keys  # [num_queries, num_heads, in_channels]
        read = torch.einsum("qhgc,gohc->hqgo", mixed.unflatten(2, (spec.groups, -1)), kernel.transpose(2, 3))
        parts.append(read.sum(0).flatten(1))
    output = torch.cat(parts)
    return (output if layer.bias is None else output + layer.bias.to(output.dtype)).to(padded.dtype)


@torch.no_grad()
def inputs_of_layers(
    model: nn.Module, images: Tensor, *, allowed: Callable[[SelfAttention, Tensor], bool] = lambda *_: True
) -> dict[str, Tensor]:
    """The first input of each attention layer of a network, by the layer's name: copies, [batch, in_channels, *size].

    The network runs in eval mode, and its warnings are not shown.

    Args:
        model: The network.
        images: As the network takes them, but for dtype and device.
        allowed: Whether a layer may run on an input; otherwise the run ends.

    Raises:
        InputError: The network does not run on the images.
        ConversionError: A layer is not allowed.
    """
    found: dict[str, Tensor] = {}

    def keep(name: str, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        if name not in found and inputs and isinstance(inputs[0], Tensor) and isinstance(layer, SelfAttention):
            x = inputs[0] if inputs[0].ndim == layer.spec.axes + 2 else inputs[0].unsqueeze(0)
            if not allowed(layer, x):
                raise _TooMuchError
            found[name] = x.detach().clone()

    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, SelfAttention)]
    handles = [layer.register_forward_pre_hook(partial(keep, name)) for name, layer in layers]
    like = next((parameter for parameter in model.parameters() if parameter.is_floating_point()), images)
    try:
        with warnings.catch_warnings(), in_eval_mode(model):
            warnings.simplefilter("ignore")
            model(images.to(like, copy=True))
    except _TooMuchError as error:
        raise ConversionError("the network takes too much time or memory on an image of this size") from error
    except Exception as error:  # whatever the network's code raises
        shape = "x".join(map(str, images.shape[1:]))
        raise InputError(f"the network does not run on an image of {shape}: {first_line(error)}") from error
    finally:
        for handle in handles:
            handle.remove()
    return found


class _TooMuchError(Exception):
    """Ends a run whose layer input is too large."""
