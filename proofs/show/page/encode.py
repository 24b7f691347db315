"""Numbers as a page can hold them: JSON without NaN, tensors as base64 of little-endian floating-point numbers."""

from __future__ import annotations

import base64
import math
from typing import Any

import torch
from torch import Tensor


def finite(value: Any) -> Any:
    """A number, or a nested list of numbers, with None for what JSON cannot hold."""
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value if value is None or math.isfinite(value) else None


def encoded(tensor: Tensor) -> dict[str, str]:
    """A tensor's numbers, row by row: in double precision if it has it, else in single, which holds the narrower."""
    wide = tensor.dtype == torch.float64
    numbers = tensor.detach().cpu().contiguous().numpy() if wide else tensor.detach().cpu().float().contiguous().numpy()
    kind = "f8" if wide else "f4"
    return {"type": kind, "data": base64.b64encode(numbers.astype(f"<{kind}").tobytes()).decode()}


def pixels(planes: Tensor) -> str:
    """Planes [channels, rows, columns] with values 0 to 1 as base64 of bytes, pixel by pixel."""
    values = (planes.double().nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8)
    return base64.b64encode(values.permute(1, 2, 0).contiguous().cpu().numpy().tobytes()).decode()
