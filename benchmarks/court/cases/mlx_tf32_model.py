"""A language model in MLX, whose products are in TF32 unless one asks otherwise."""

from pathlib import Path

import torch
from blocks import LanguageModel
from editing import settled
from truth import Case, Rounding, Sides
from units import tf32, with_products

CASE = Case(
    thread="https://github.com/ml-explore/mlx/issues/3860",
    kind="precision",
    question="float32 products lose a factor of 1000 in accuracy on CUDA: a bug of MLX?",
    truth=Rounding("products in TF32 by default, which was not documented", "tf32"),
    said="Closed under documentation; a variable turns it off, and the errors then agree with NumPy's.",
    read="excerpt",
    emulated="MLX: operands rounded to TF32, products summed in float32, called as a black box",
)


def build(folder: Path) -> Sides:
    """Four blocks, 32 tokens."""
    network = settled(LanguageModel(64, 4))
    return Sides(network, with_products(network, tf32), (torch.randint(97, (1, 32)),))
