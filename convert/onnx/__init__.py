"""ONNX models, read by the package ``onnx``: their tensors, and the convolutions that their nodes compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ..errors import ToolError, importing
from ..spec import DescribedConvolution


def read_onnx(path: Path) -> tuple[dict[str, Tensor], tuple[Path, ...], dict[str, DescribedConvolution]]:
    """Reads an ONNX model: its tensors by name, every file that was read, and its convolutions by name.

    Raises:
        ToolError: The package onnx is not installed.
        CheckpointError: The file is damaged, is not an ONNX model, or names external data that cannot be used.
    """
    onnx_package("reading ONNX files")
    from .constants import load_model, reading
    from .read import read_model

    model, files = load_model(path)
    found = read_model(model, path)
    with reading(path):
        return found.tensors(), files, found.layers


def onnx_package(purpose: str) -> Any:
    """The package ``onnx``, which is optional; a ToolError that begins with the purpose if it is missing."""
    with importing("onnx", ToolError(f'{purpose} needs the package onnx: pip install "conv2attn[onnx]"')):
        import onnx
    return onnx
