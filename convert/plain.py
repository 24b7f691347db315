"""Plain data as JSON, written so that every reader takes it and read strictly, and paths that files name."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from .errors import CheckpointError

T = TypeVar("T")
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
    """Writes plain data as JSON in ASCII.

    Numbers that JSON does not have are the texts "NaN", "Infinity" and "-Infinity", which ``float`` reads.

    Args:
        data: The data.
        default: Turns an object that is not plain data into plain data.

    Raises:
        TypeError: Something is not plain data.
        ValueError: Something holds itself.
    """
    return json.dumps(_finite(data), indent=2, allow_nan=False, default=default)


def read_json(path: Path) -> object:
    """Reads a JSON file in UTF-8, in which no key appears twice and every number is finite.

    Raises:
        OSError: The file cannot be read.
        CheckpointError: It holds something else.
    """
    try:
        text = path.read_bytes().decode("utf-8")
        found: object = json.loads(text, object_pairs_hook=_without_duplicates, parse_constant=_refuse)
        check_unicode(found)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON in UTF-8") from error
    return found


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        CheckpointError: It cannot be read, or holds something else.
    """
    try:
        found = read_json(path_in(path.parent, path.name))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is JSON, but no object")
    return found


def path_in(folder: Path, name: str) -> Path:
    """The path of a file in a folder.

    A link may lead out of the folder in one case: a Hugging Face cache keeps ``snapshots/REVISION/NAME`` as links
    to ``blobs``.

    Raises:
        CheckpointError: The name, or the link of that name, leads out of the folder, or there is no such file.
    """
    parts = PurePosixPath(name).parts
    if not name or "\\" in name or "\0" in name or name.startswith("/") or ".." in parts or ":" in name:
        raise CheckpointError(f"{folder} names {name[:100]!r}, which is no file in the folder")
    path, home = folder / name, folder.resolve()
    allowed = [home, home.parent.parent / "blobs"] if home.parent.name == "snapshots" else [home]
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:  # links in a circle
        raise CheckpointError(f"{path} cannot be followed") from error
    if not any(target.is_relative_to(place) for place in allowed):
        raise CheckpointError(f"{path} is a link that leaves its folder")
    if not target.is_file():
        raise CheckpointError(f"there is no file {path}")
    return path


def from_plain(kind: type[T], data: object) -> T:
    """The dataclass that ``dataclasses.asdict`` made the data of.

    Args:
        kind: A dataclass whose fields are numbers, texts, truth values, None, tuples of one kind, mappings from texts,
            such dataclasses, classes that read themselves (``from_json``), or Any plain data.
        data: The data; a list for a tuple.

    Raises:
        ValueError: The data are something else, or a number is not finite.
    """
    return cast(T, _read_fields(kind, data, kind.__name__))  # a class's own from_json may be who asks


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return _INFINITE.get(value, "NaN")
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _refuse(constant: str) -> object:
    raise ValueError(constant)


def _read(kind: Any, data: Any, name: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is types.UnionType:  # of something and None
        return None if data is None else _read(parts[0], data, name)
    if kind is Any:
        return data
    if hasattr(kind, "from_json") and isinstance(data, dict):
        return kind.from_json(data)
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
