"""Four-bit weights that are read from the wrong byte."""

import copy
from pathlib import Path

import torch
from blocks import LanguageModel
from editing import settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/ml-explore/mlx/pull/3664",
    kind="quantised",
    question="A file of Q4_1 weights loads without an error, with errors up to 5; Q4_0 and Q8_0 are right to 0.002",
    truth=Bug(
        "weights: two bytes of each block's offset are read as its first four numbers",
        r"attention|mlp|head|linear|weight",
        ("weight",),
    ),
    said="Merged: blocks of this kind have four bytes in front of their numbers, and two were skipped.",
    read="excerpt",
    emulated="MLX: the same network in torch with the weights that it reads",
)
BLOCK = 32  # numbers that share a scale and an offset


def packed(weight: Tensor) -> Tensor:
    """Blocks of 20 bytes: scale and offset in float16, then 16 bytes of two numbers each."""
    blocks = weight.reshape(-1, BLOCK)
    low, high = blocks.amin(1, keepdim=True).half(), blocks.amax(1, keepdim=True)
    scale = ((high - low) / 15).half()
    steps = ((blocks - low) / scale).round().clamp(0, 15).to(torch.uint8)
    numbers = steps[:, : BLOCK // 2] | steps[:, BLOCK // 2 :] << 4
    return torch.cat((scale.view(torch.uint8), low.view(torch.uint8), numbers), 1)


def unpacked(stored: Tensor, shape: torch.Size, skipped: int) -> Tensor:
    """Weights, from blocks whose numbers start behind so many bytes."""
    scale, low = (stored[:, part].contiguous().view(torch.float16).float() for part in (slice(0, 2), slice(2, 4)))
    numbers = stored[:, skipped : skipped + BLOCK // 2]
    return (torch.cat((numbers & 15, numbers >> 4), 1) * scale + low).reshape(shape)


def build(folder: Path) -> Sides:
    """All layers of a language model in four bits, read right and wrong."""
    network = settled(LanguageModel(64, 2))
    other = copy.deepcopy(network)
    with torch.no_grad():
        for right, wrong in zip(network.modules(), other.modules(), strict=True):
            if isinstance(right, nn.Linear) and isinstance(wrong, nn.Linear):
                stored = packed(right.weight)
                right.weight.copy_(unpacked(stored, right.weight.shape, 4))
                wrong.weight.copy_(unpacked(stored, right.weight.shape, 2))
    return Sides(network, other, (torch.randint(97, (1, 24)),))
