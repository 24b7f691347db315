"""The article as one HTML file: its text, styles and programs in ``static``, and the data they start from."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import torch
from safetensors.torch import load

from ..page.bundle import filled, packed

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
    return {
        name: {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data": packed(tensor)}
        for name, tensor in tensors.items()
    }
