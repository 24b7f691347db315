"""Units that processors may lack, emulated in torch: factors of products are rounded, sums are in float32."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.court import units
from benchmarks.engines.port import Calls
from benchmarks.engines.ports.onnxruntime import outputs_of

PACKAGE = "torch"
VERSION = torch.__version__
DECLARED = {
    "TF32 products": "TF32 or float16 products",
    "float16 products": "TF32 or float16 products",
    "bfloat16 products": "bfloat16 products",
    "bfloat16 products, cut": "bfloat16 products",
}
_ROUNDED = {
    "TF32 products": units.tf32,
    "float16 products": units.float16,
    "bfloat16 products": units.bfloat16,
    "bfloat16 products, cut": lambda x: units.cut(x).float(),
}


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in torch, with rounded factors."""
    run = units.with_products(network, _ROUNDED[way])

    def call(x: Tensor) -> tuple[Tensor, ...]:
        return outputs_of(run(x))

    return call
