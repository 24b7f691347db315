"""Eight-bit products on a processor whose instruction saturates."""

from pathlib import Path

import torch
from torch import Tensor, nn
from truth import Bug, Case, Sides
from units import steps

CASE = Case(
    thread="https://github.com/microsoft/onnxruntime/issues/14642",
    kind="quantised",
    question="A dynamically quantised BERT gives other results on another processor",
    truth=Bug("8-bit products: sums of two products saturate at 16 bits without VNNI", r"\b[02]\b|clamp", ("saturat",)),
    said="AVX2 and AVX-512 without VNNI saturate; an option takes 16 bits at a cost, or weights of seven bits.",
    read="thread",
    emulated="the older processor: pairs of products clamped to 16 bits, called as a black box; the newer one in torch",
)


class Quantised(nn.Module):
    """A linear layer of 8-bit activations without sign and 8-bit weights with one; sums are exact."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        weight = torch.randn(outer, inner) / inner**0.5
        self.scale = (weight.abs().max() / 127).item()
        self.weight = nn.Parameter(steps(weight, self.scale, -127, 127))
        self.saturates = False

    def forward(self, x: Tensor) -> Tensor:
        """[rows, outer]."""
        low = x.min().clamp(max=0)
        scale = (x.max().clamp(min=0) - low) / 255
        zero = (-low / scale).round()
        codes = ((x / scale).round() + zero).clamp(0, 255)
        if self.saturates:
            products = codes[:, None] * self.weight
            total = products.unflatten(-1, (-1, 2)).sum(-1).clamp(-32768, 32767).sum(-1)
        else:
            total = codes @ self.weight.T
        return (total - zero * self.weight.sum(-1)) * scale * self.scale


def build(folder: Path) -> Sides:
    """Two layers; activations as large as a transformer's outliers make them."""
    network = nn.Sequential(Quantised(64, 128), nn.GELU(), Quantised(128, 32)).eval()
    x = torch.randn(16, 64)

    def other(x: Tensor) -> Tensor:
        for layer in network:
            if isinstance(layer, Quantised):
                layer.saturates = True
        try:
            found: Tensor = network(x)
        finally:
            for layer in network:
                if isinstance(layer, Quantised):
                    layer.saturates = False
        return found

    return Sides(network, other, (x,))
