"""A cast between a norm and the rotation, which fusion leaves out."""

from pathlib import Path

import torch
from blocks import Attention, Block, Gated, RMSNorm, Rotary
from editing import black_box, replaced, settled
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/torchtitan/pull/2575",
    kind="compilers",
    question="Compiled Qwen3 differs from eager by up to 1.56 in bfloat16",
    truth=Rounding("the rotation's multiply-add stays in float32", "bfloat16", "bfloat16"),
    said="The compiler leaves the cast out legally; the network now asks for float32, which is slightly more accurate.",
    read="thread",
    emulated="inductor: the rotation in float32, rounded once, called as a black box",
)


class NormedRotary(nn.Module):
    """A norm over each head, then the rotation, as Qwen3 has it."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.norm, self.rotary = RMSNorm(head_dim), Rotary(head_dim)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Queries or keys, [batch, heads, length, head_dim]."""
        found: Tensor = self.rotary(self.norm(x), positions)
        return found


class Fused(nn.Module):
    """The same without a cast between them."""

    def __init__(self, parts: NormedRotary) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Queries or keys, [batch, heads, length, head_dim]."""
        cos, sin = (part.float() for part in self.parts.rotary.angles(x, positions))
        y = x.float()
        y = self.parts.norm.weight.float() * y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.parts.norm.eps)
        a, b = y.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def build(folder: Path) -> Sides:
    """Four blocks in bfloat16."""
    blocks = [
        Block(
            64,
            RMSNorm,
            Attention(64, 4, rotary=NormedRotary(16), is_causal=True, bias=False),
            Gated(64, 128, nn.SiLU()),
        )
        for _ in range(4)
    ]
    network = settled(nn.Sequential(*blocks, RMSNorm(64))).bfloat16()
    other = replaced(network, NormedRotary, Fused)
    return Sides(network, black_box(other), (torch.randn(1, 48, 64).bfloat16(),))
