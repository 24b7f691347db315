"""Plain data as JSON that every reader takes: ASCII, whatever the texts hold, and without NaN."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

_INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def as_unicode(text: str) -> str:
    """A path's text as valid Unicode: bytes that are not UTF-8 become escapes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def check_unicode(data: object) -> None:
    """Refuses plain data with half of a surrogate pair, which no reader takes for text.

    Raises:
        UnicodeEncodeError: There is one.
    """
    json.dumps(data, ensure_ascii=False).encode()


def json_text(data: object, *, default: Callable[[Any], Any] | None = None) -> str:
    """Writes plain data as JSON.

    Numbers that JSON does not have are the texts "NaN", "Infinity" and "-Infinity", which ``float`` reads.

    Args:
        data: The data.
        default: Turns an object that is not plain data into plain data.

    Raises:
        TypeError: Something is not plain data.
        ValueError: Something holds itself.
    """
    return json.dumps(_finite(data), indent=2, allow_nan=False, default=default)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return _INFINITE.get(value, "NaN")
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
