"""A vision transformer on a TPU."""

from pathlib import Path

import torch
from blocks import VisionTransformer
from editing import settled
from truth import Case, Rounding, Sides
from units import bfloat16, with_products

CASE = Case(
    thread="https://github.com/jax-ml/jax/issues/10413",
    kind="precision",
    question="Why do float32 models give other results on TPUs than in PyTorch?",
    truth=Rounding("products in bfloat16 by default", "bfloat16"),
    said="An enhancement of the documents: the default on TPUs is bfloat16, and can be changed.",
    read="excerpt",
    emulated="the TPU: operands rounded to bfloat16, products summed in float32, called as a black box",
)


def build(folder: Path) -> Sides:
    """Four blocks in float32."""
    network = settled(VisionTransformer())
    return Sides(network, with_products(network, bfloat16), (torch.randn(2, 3, 32, 32),))
