"""ONNX models, read by the package ``onnx``: their tensors, and the convolutions that their nodes compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from ....errors import ToolError
from ..described import DescribedConvolution


def read_onnx(path: Path) -> tuple[dict[str, Tensor], dict[str, DescribedConvolution], tuple[Path, ...]]:
    """Reads an ONNX model: its tensors and convolutions by name, and every file that was read.

    Raises:
        ToolError: The package onnx is not installed.
        CheckpointError: The file is damaged, is not an ONNX model, or names external data that cannot be used.
    """
    onnx_package("reading ONNX files")
    from .layers import read_model
    from .load import load_model, reading

    model, files = load_model(path)
    found = read_model(model, path)
    with reading(path):
        return found.tensors(), found.layers, files


def onnx_package(purpose: str) -> Any:
    """The package ``onnx``, which is optional.

    Args:
        purpose: Subject of the sentence that says that it is missing.

    Raises:
        ToolError: It is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise ToolError(f'{purpose} takes the package onnx: pip install "conv2attn[onnx]"') from error
    return onnx
