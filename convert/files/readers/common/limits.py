"""What a file may declare, and what reading a checkpoint may take. Both are checked before anything is allocated.

One ``Budget`` goes with all files of a checkpoint: each adds its size to it when it is opened, and whatever is built,
copied or visited for any of them is charged to it. So reading takes at most twice the files' size and 256 MB, and a
second a megabyte, whatever the files say.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NoReturn

from ....errors import CheckpointError

MAX_TENSORS = 100_000
MAX_HEADER = 16 * 2**20  # bytes of a safetensors header, a JSON file or a zip archive's directory
MAX_JSON_VALUES = 1_100_000  # numbers, texts, lists and objects
MAX_MEMORY = 192 * 2**20  # bytes that are built to describe the tensors of a checkpoint, or copied; and the files' size
FREE_STEPS, MAX_STEPS = 2_000_000, 16_000_000  # about a microsecond each; 100,000 pickled tensors take 5 million
MAX_NAME = 4096  # bytes of a name: no longer text is ever needed
MAX_DIMENSIONS = 64  # torch's own
MAX_DEPTH = 64  # modules in modules
MAX_OVERLAP = 2  # times the files' size that the different tensors in them may come to
MAX_SHARING = 256  # times the files' size that all tensors, counted under each of their names, may come to
SPARE = 256 * 2**20  # bytes that both may come to in any case
# Bytes of JSON, measured as it is parsed: a number, list or object, an entry of an object beside its value, and a text.
_VALUE, _ENTRY, _TEXT = 50, 110, 40


class Budget:
    """What reading a checkpoint may still take, over all its files.

    Attributes:
        memory: Bytes that are built or copied.
        steps: Opcodes, fields and entries that are visited.
        size: Bytes of the files that were opened.
    """

    __slots__ = ("memory", "size", "steps")

    def __init__(self) -> None:
        self.memory, self.steps, self.size = MAX_MEMORY, FREE_STEPS, 0

    def add_file(self, size: int) -> None:
        """Adds what the bytes of another file allow: a step and a byte of memory each."""
        self.steps += min(self.size + size, MAX_STEPS) - min(self.size, MAX_STEPS)
        self.memory += size
        self.size += size

    def spend(self, *, memory: int = 0, steps: int = 0) -> None:
        """Takes from what is left.

        Raises:
            CheckpointError: Less is left.
        """
        self.memory -= memory
        self.steps -= steps
        if self.memory < 0 or self.steps < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Says what is spent."""
        what = "memory" if self.memory < 0 else "steps"
        raise CheckpointError(f"it takes more {what} to read than any checkpoint of its size needs")


def text_size(text: str) -> int:
    """Bytes that the letters of a text take, or a few more: one wide letter widens all."""
    return (1 if text.isascii() else 4) * len(text)


def parse_json(content: bytes, what: str, budget: Budget | None = None, *, largest: int | None = None) -> object:
    """Reads JSON in UTF-8 that no key appears twice in.

    Args:
        content: The text.
        what: What the error says is wrong.
        budget: Charged for what is built.
        largest: Bytes that it may have; ``MAX_HEADER`` by default.

    Raises:
        CheckpointError: The text is too long, holds too many values, is no JSON, holds half of a surrogate pair, or
            has a key twice.
    """
    largest = MAX_HEADER if largest is None else largest
    if len(content) > largest:
        raise CheckpointError(f"{what} has {len(content)} bytes; at most {largest} are read")
    values = sum(map(content.count, (b",", b"[", b"{")))
    if values > MAX_JSON_VALUES:
        raise CheckpointError(f"{what} holds more than {MAX_JSON_VALUES} values")
    if budget is not None:
        is_plain = content.isascii() and b"\\u" not in content
        parts = _VALUE * values + _ENTRY * content.count(b":") + _TEXT * (content.count(b'"') // 2)
        budget.spend(memory=parts + (1 if is_plain else 4) * len(content))
    try:
        return json.loads(_text(content), object_pairs_hook=_without_duplicates, parse_constant=_refuse)
    except CheckpointError as error:
        raise CheckpointError(f"{what} {error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is not JSON in UTF-8") from error


def read_json(path: Path, budget: Budget | None = None, *, largest: int | None = None) -> object:
    """Reads a JSON file, of which no more is taken than ``parse_json`` accepts.

    Args:
        path: The file.
        budget: Of the checkpoint that it belongs to; charged for what is built.
        largest: Bytes that it may have; ``MAX_HEADER`` by default.

    Raises:
        OSError: The file cannot be read.
        CheckpointError: As ``parse_json``.
    """
    largest = MAX_HEADER if largest is None else largest
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if budget is not None:
        budget.add_file(len(content))
    return parse_json(content, str(path), budget, largest=largest)


_ESCAPES = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair of surrogates
    r"|(?P<half>\\u[dD][89a-fA-F])|\\."
)


def _text(content: bytes) -> str:
    """Decodes UTF-8: ``json`` itself would guess an encoding, and keep a surrogate that is not one of a pair."""
    text = content.decode("utf-8")
    if b"\\ud" in content or b"\\uD" in content:
        _refuse_halves(text)
    return text


def _refuse_halves(text: str) -> None:
    if any(found.lastgroup for found in _ESCAPES.finditer(text)):
        raise CheckpointError("holds half of a surrogate pair, which is not text")


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise CheckpointError("names a key twice")
    return found


def _refuse(constant: str) -> object:
    raise ValueError(constant)
