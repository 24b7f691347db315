"""A layer norm whose statistics a compiler computes otherwise."""

from pathlib import Path

import torch
from blocks import VisionTransformer
from editing import settled
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/pytorch/pytorch/issues/117542",
    kind="compilers",
    question="layer_norm gives other numbers for some inputs when it is compiled",
    truth=Rounding("mean and variance are sums in another order"),
    said="Closed; a maintainer says that it is potentially within tolerance.",
    read="excerpt, without the inputs in question",
)


def build(folder: Path) -> Sides:
    """A transformer with nine such norms; the compiler's decompositions, without its code generator."""
    network = settled(VisionTransformer(64, 4))
    return Sides(
        network, torch.compile(network, backend="aot_eager_decomp_partition"), (3 * torch.randn(2, 3, 32, 32) + 1,)
    )
