"""Dataclasses from plain data, as JSON holds it: every value is of its field's kind, or it is refused."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Mapping
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_plain(kind: type[T], data: object) -> T:
    """The dataclass that ``dataclasses.asdict`` made the data of.

    Args:
        kind: A dataclass whose fields are numbers, texts, truth values, None, tuples of one kind, mappings from texts,
            and such dataclasses.
        data: The data; a list for a tuple.

    Raises:
        ValueError: The data are something else, or a number is not finite.
    """
    return cast(T, _read(kind, data, kind.__name__))


def _read(kind: Any, data: Any, name: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is types.UnionType:  # of something and None
        return None if data is None else _read(parts[0], data, name)
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, data, name)
    if origin is tuple and isinstance(data, list) and (parts[-1] is Ellipsis or len(data) == len(parts)):
        return tuple(_read(parts[0], item, name) for item in data)
    if origin in (dict, Mapping) and isinstance(data, dict):
        return {key: _read(parts[1], item, name) for key, item in data.items()}
    if kind is float and type(data) in (int, float) and abs(data) <= sys.float_info.max:
        return float(data)
    if type(data) is kind and (kind in (str, bool) or (kind is int and abs(data) < 2**63)):
        return data
    raise ValueError(f"{name} is of another kind")


def _read_fields(kind: Any, data: Any, name: str) -> Any:
    hints = get_type_hints(kind)
    if not isinstance(data, dict) or data.keys() != hints.keys():
        raise ValueError(f"{name} is of another kind")
    return kind(**{field: _read(hint, data[field], field) for field, hint in hints.items()})
