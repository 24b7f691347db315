"""The article as one HTML file: its text, styles and programs in ``static``, and the data they start from."""

from __future__ import annotations

import base64
from importlib.resources import files
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from ..page.bundle import filled

_FOLDER = "article/static"
_STYLES = "page/static/base.css", f"{_FOLDER}/article.css"
_DTYPES = {torch.float16: "F16", torch.uint8: "U8"}
CREDITS = (
    "The cat is Chelsea, by Stéfan van der Walt (CC0). The stamps are of the Optical Recognition of Handwritten Digits "
    "Data Set, by E. Alpaydin and C. Kaynak (CC BY 4.0)."
)


def make_article() -> str:
    """The HTML text of the article."""
    return filled(
        f"{_FOLDER}/article.html", styles=_STYLES, entry=f"{_FOLDER}/main.js", data=article_data(), credits=CREDITS
    )


def article_data() -> dict[str, Any]:
    """The tensors that benchmarks/article.py wrote, by name: dtype, shape and numbers, little-endian in base64."""
    tensors = load((files(str(__package__)) / "static" / "data.safetensors").read_bytes())
    return {name: _packed(tensor) for name, tensor in tensors.items()}


def _packed(tensor: Tensor) -> dict[str, Any]:
    array = tensor.numpy()
    data = base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")
    return {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data": data}
