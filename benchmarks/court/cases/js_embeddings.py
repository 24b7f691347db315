"""Embeddings of a network that was quantised without saying so."""

from pathlib import Path

import torch
from blocks import VisionTransformer
from editing import exported, settled
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/huggingface/transformers.js/issues/36",
    kind="quantised",
    question="transformers.js gives other embeddings than sentence-transformers, and other similarities",
    truth=Rounding("weights and products in 8 bits by default", "int8"),
    said="Most likely quantisation: weights go from 32 to 8 bits by default, since websites must be small.",
    read="excerpt",
)


class Embedding(nn.Module):
    """Mean of the features, of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.network = VisionTransformer()

    def forward(self, images: Tensor) -> Tensor:
        """[batch, width]."""
        return nn.functional.normalize(self.network(images).mean(1), dim=-1)


def build(folder: Path) -> Sides:
    """A transformer, exported and quantised dynamically by ONNX Runtime."""
    network, images = settled(Embedding()), torch.randn(2, 3, 32, 32)
    path = exported(network, (images,), folder)
    quantised = folder / "quantised.onnx"
    options = {"weight_type": QuantType.QInt8, "op_types_to_quantize": ["MatMul", "Gemm"]}
    quantize_dynamic(path, quantised, reduce_range=True, **options)  # 7 bits: 8 saturate on processors without VNNI
    return Sides(network, quantised, (images,))
