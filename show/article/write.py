"""The article as one HTML file: its text, styles and programs in ``static``, and the data they start from."""

from __future__ import annotations

import base64
from importlib.resources import files
from typing import Any

from safetensors.torch import load
from torch import Tensor

from ..page.bundle import filled

_FOLDER = "article/static"
_STYLES = "page/static/base.css", f"{_FOLDER}/article.css"
CREDITS = "The cat is Chelsea, by Stéfan van der Walt (CC0)."


def make_article() -> str:
    """The HTML text of the article."""
    return filled(
        f"{_FOLDER}/article.html", styles=_STYLES, entry=f"{_FOLDER}/main.js", data=article_data(), credits=CREDITS
    )


def article_data() -> dict[str, Any]:
    """Photographs, as rows of red, green and blue bytes in base64."""
    tensors = load((files(str(__package__)) / "static" / "data.safetensors").read_bytes())
    return {"photographs": {"cat": {"label": "a cat", **_photograph(tensors["cat"])}}}


def _photograph(pixels: Tensor) -> dict[str, Any]:
    """A picture [rows, columns, 3] of bytes."""
    return {"size": list(pixels.shape[:2]), "data": base64.b64encode(pixels.numpy().tobytes()).decode("ascii")}
