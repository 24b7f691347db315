"""What a file may declare. Everything here is checked before memory is allocated for it.

The limits keep what reading takes under twice the file's size and 256 MB, whatever the file says.
"""

from __future__ import annotations

import json

from conv2attn.convert.errors import CheckpointError

MAX_TENSORS = 100_000
MAX_HEADER = 16 * 2**20  # bytes of a safetensors header, a JSON file or a zip archive's directory
MAX_JSON_VALUES = 1_100_000  # about 100 bytes each, once parsed
MAX_OPCODES = 8_000_000  # of a pickle: 100,000 tensors take 5 million
MAX_PICKLE_MEMORY = 192 * 2**20  # bytes of what a pickle builds
MAX_TEXT = 32 * 2**20  # bytes of one text in a pickle; four times as much in memory, with one rare letter
MAX_FIELDS = 2_000_000  # of a protocol buffer
MAX_DIMENSIONS = 64  # torch's own
MAX_DEPTH = 64  # modules in modules


def parse_json(content: bytes, what: str) -> object:
    """Reads JSON that no key appears twice in.

    Args:
        content: The text, in UTF-8.
        what: What the error says is wrong.

    Raises:
        CheckpointError: The text is too long, holds too many values, is no JSON, or has a key twice.
    """
    if len(content) > MAX_HEADER:
        raise CheckpointError(f"{what} has {len(content)} bytes; at most {MAX_HEADER} are read")
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_JSON_VALUES:
        raise CheckpointError(f"{what} holds more than {MAX_JSON_VALUES} values")
    try:
        return json.loads(content, object_pairs_hook=_without_duplicates, parse_constant=_refuse)
    except CheckpointError as error:
        raise CheckpointError(f"{what} {error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is not JSON") from error


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise CheckpointError("names a key twice")
    return found


def _refuse(constant: str) -> object:
    raise ValueError(constant)
