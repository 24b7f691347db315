"""What the fuzzer of folders calls: a folder with mutated texts is loaded, or refused.

An input is three texts with a zero byte between them: config.json, report.json, and the header of model.safetensors.
What ``mutated`` makes of one is still JSON most of the time, so that it gets past the parser.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from conv2attn.convert.errors import ConversionError
from conv2attn.convert.files.load import load_converted
from conv2attn.convert.files.save import save_converted
from conv2attn.convert.files.writing.ownership import CONFIG, REPORT, WEIGHTS
from conv2attn.convert.model.convert import convert_model
from conv2attn.proofs.show.subject import load_subject

SECONDS = 5.0
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 2**31, 2**63, 10**30, -(10**30), 0.5, 1e300),
    *("", "same", "auto", "network", "layers", "0", "x" * 300, "\ud800", "\u202e\x1b[2J\n"),
    *([], [1], [1, 2], [1, 2, 3], [True, 1], [[1, 1], 1], ["a"], [10**30, 1], {}, {"a": 1}),
)
_FOLDER = Path(tempfile.gettempdir(), f"conv2attn-fuzz-folder-{os.getpid()}")


def network() -> nn.Module:
    """The architecture of the folder that holds a network."""
    return nn.Sequential(nn.Conv2d(2, 4, (2, 3), stride=(2, 1), padding=(1, 0), groups=2), nn.Conv2d(4, 2, 1))


def seeds() -> Iterator[bytes]:
    """What ``save_converted`` writes: a network, a layer alone, one with content terms, one with learned tables."""
    torch.manual_seed(0)
    layer, content, tables = (convert_model(nn.Conv2d(2, 3, (1, 2))).model for _ in range(3))
    content.add_content(2)  # type: ignore[operator]
    tables.set_axis_scores(torch.zeros(2, 3), torch.zeros(2, 5))  # type: ignore[operator]
    with tempfile.TemporaryDirectory() as parent:
        for number, model in enumerate((convert_model(network()).model, layer, content, tables)):
            folder = Path(parent, str(number))
            save_converted(model, folder)
            texts = [(folder / name).read_bytes() for name in (CONFIG, REPORT)]
            weights = (folder / WEIGHTS).read_bytes()
            (length,) = struct.unpack("<Q", weights[:8])
            yield b"\0".join((*texts, weights[8 : 8 + length].rstrip()))


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The input with a few values of its texts replaced, removed or repeated, or a few of its bytes changed."""
    parts = data.split(b"\0")
    number = chance.choice((0, 0, 0, 1, 2))
    if chance.random() < 0.2:
        changed = bytearray(parts[number])
        for _ in range(chance.randint(1, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(1, 256)
        parts[number] = bytes(changed)
    else:
        tree = [json.loads(parts[number])]
        for _ in range(chance.choice((1, 1, 2, 3))):
            _mutate(tree, chance)
        parts[number] = json.dumps(tree[0]).encode()
    return b"\0".join(parts)


def _mutate(tree: list[Any], chance: random.Random) -> None:
    """Changes one value somewhere in a tree of lists and objects."""
    places = list(_places(tree))
    holder, key = chance.choice(places)
    kind = chance.random()
    if kind < 0.7 or holder is tree:
        alike = [value for value in ODD_VALUES if isinstance(value, type(holder[key]))] or ODD_VALUES
        holder[key] = copy.deepcopy(chance.choice(chance.choice((alike, ODD_VALUES))))
    elif kind < 0.85:
        del holder[key]
    elif isinstance(holder, list):
        holder.append(holder[key])
    else:
        other, name = chance.choice(places)
        holder[key] = other[name] if not isinstance(other[name], dict | list) else "x"


def _places(holder: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(enumerate(holder) if isinstance(holder, list) else holder.items()):
        yield holder, key
        if isinstance(value, dict | list):
            yield from _places(value)


def one_folder(data: bytes) -> None:
    """Loads a folder, as it is and with an architecture, and reads its report.

    Raises:
        AssertionError: It took more than ``SECONDS`` of processor time.
        Exception: It was neither loaded nor refused.
    """
    config, report, header = (*data.split(b"\0", 2), b"", b"")[:3]
    _FOLDER.mkdir(exist_ok=True)
    (_FOLDER / CONFIG).write_bytes(config)
    (_FOLDER / REPORT).write_bytes(report)
    (_FOLDER / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header + bytes(_length(header)))
    start = time.process_time()
    for load in (load_converted, lambda folder: load_converted(folder, architecture=network()), read_subject):
        with contextlib.suppress(ConversionError):
            load(_FOLDER)
    assert time.process_time() - start < SECONDS


def read_subject(folder: Path) -> object:
    """Reads a folder as ``show`` does, with its report."""
    return load_subject(folder, None)


def _length(header: bytes) -> int:
    """How many bytes of numbers a header announces, if not too many."""
    try:
        ends = [entry["data_offsets"][1] for name, entry in json.loads(header).items() if name != "__metadata__"]
        return min(max(ends, default=0), 2**16)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return 0
