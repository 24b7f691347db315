"""What the fuzzer of folders calls: a folder with mutated texts is loaded, or refused.

An input is three texts with a zero byte between them: config.json, report.json, and the header of model.safetensors.
What ``texts.mutated`` makes of one is still JSON most of the time, so that it gets past the parser.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from conv2attn.convert.errors import ConversionError
from conv2attn.convert.files.open import load_converted
from conv2attn.convert.files.folder import save_converted
from conv2attn.convert.files.write import CONFIG, REPORT, WEIGHTS
from conv2attn.convert.model.convert import convert_model
from conv2attn.proofs.show.subject import load_subject

SECONDS = 5.0
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
        return max(0, min(max(ends, default=0), 2**16))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return 0
