"""No file takes more memory than twice its size and 256 MB, or more time than a second a megabyte and five."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile.bombs import MEMORY, TIME
from tests.hostile.files import FLOATS, entry, state, tensor, value, write_exported, write_torch, write_zip
from tests.hostile.measuring import ALLOWED, READ, SECONDS, Measure, measuring


def flood(opcodes: bytes, megabytes: int = 8) -> Callable[[Path], object]:
    """A pickle that repeats these opcodes."""
    count = megabytes * 2**20 // len(opcodes)
    return lambda path: write_torch(path, b"\x80\x02]" + opcodes * count + b".")


def bomb(name: str) -> Callable[[Path], object]:
    """An archive with an entry that expands a thousandfold, to 384 MB."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            count = 384 * 2**18
            entries = {"a/data.pkl": state({"w": tensor(shape=(count,), stride=(1,), count=count)}), "a/data/0": FLOATS}
            for other, content in entries.items():
                if other != name:
                    archive.writestr(zipfile.ZipInfo(other), content)
            with archive.open(name, "w") as member:
                for _ in range(384):
                    member.write(bytes(2**20))

    return write


def many_entries(path: Path) -> None:
    """An archive of 150,000 empty entries, written by hand: zipfile takes long."""
    local, directory = bytearray(), bytearray()
    for number in range(150_000):
        name = f"a/{number}".encode()
        directory += struct.pack(
            "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, 0, 0, len(name), 0, 0, 0, 0, 0, len(local)
        )
        directory += name
        local += struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, 0, 0, len(name), 0) + name
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), len(local), 0)
    path.write_bytes(bytes(local + directory) + end)


def header(text: bytes) -> Callable[[Path], object]:
    """A safetensors file of a header alone."""
    return lambda path: path.write_bytes(struct.pack("<Q", len(text)) + text)


def many_tensors(path: Path) -> None:
    """As many tensors as are read."""
    text = json.dumps(
        {f"{number}": entry((1, 1, 1, 1), begin=4 * number, end=4 * number + 4) for number in range(100_000)}
    )
    header(text.encode())(path)
    with path.open("ab") as file:
        file.write(bytes(400_000))


def pickled_tensors(count: int) -> Callable[[Path], object]:
    """A pickle of many tensors, with names and classes remembered as torch.save does."""
    persistent = b"(h\x01h\x02" + value("0") + b"h\x03K\x18tq\x80Q"
    described = persistent + b"K\x00(K\x01K\x01K\x01K\x01tq\x81(K\x01K\x01K\x01K\x01tq\x82\x89h\x04)Rq\x83tq\x84Rq\x85"
    names = value("storage")[:-2], b"ctorch\nFloatStorage\n", value("cpu")[:-2], b"ccollections\nOrderedDict\n"
    known = b"".join(name + b"q" + bytes([number]) + b"0" for number, name in enumerate(names, start=1))
    known += b"ctorch._utils\n_rebuild_tensor_v2\nq\x050"
    entries = b"".join(value(f"layer.{number}.weight") + b"h\x05(" + described for number in range(count))
    return lambda path: write_torch(path, b"\x80\x02" + known + b"}(" + entries + b"u.")


FILES: dict[str, Callable[[Path], object]] = {
    "a storage that expands": bomb("a/data/0"),
    "a pickle that expands": bomb("a/data.pkl"),
    "code that expands": bomb("a/code/x.py"),
    "a million dictionaries": flood(b"}K\x01K\x01s"),
    "a million sets": flood(b"\x8f", 3),
    "a million memos": flood(b"\x94"),
    "a million classes": flood(b"ca\nb\n"),
    "a text with one rare letter": lambda path: write_torch(
        path, b"\x80\x02X" + struct.pack("<I", 30 * 2**20 + 4) + b"a" * (30 * 2**20) + "\U0001f600".encode() + b"."
    ),
    "a long number": lambda path: write_torch(path, b"\x80\x02\x8b" + struct.pack("<I", 2**24) + b"\1" * 2**24 + b"."),
    "a directory of 150,000 entries": many_entries,
    "a header of lists": header(b'{"a":[' + b"[]," * (5 * 2**20) + b"[]]}"),
    "a header of names": header(b"{" + b",".join(b'"%x":0' % number for number in range(1_090_000)) + b"}"),
    "100,000 tensors": many_tensors,
    "100,000 pickled tensors": pickled_tensors(100_000),
    "a program of nodes": lambda path: write_exported(
        path, {"config": {}}, graph={"graph_module": {"graph": {"nodes": [{}] * 500_000}, "signature": {}}}
    ),
    "an ONNX graph of nodes": lambda path: path.write_bytes(b"\x08\x0a\x3a\x80\x80\x80\x01" + b"\x0a\x00" * (2**20)),
    "an ONNX graph of tensors": lambda path: path.write_bytes(
        b"\x08\x0a\x3a\x80\x80\xc0\x02" + b"".join(b"\x2a\x08\x42\x06%06d" % number for number in range(2**19))
    ),
    **MEMORY,
    **TIME,
}


@pytest.fixture(scope="module")
def measure() -> Iterator[Measure]:
    with measuring(READ) as found:
        yield found


@pytest.mark.parametrize("name", FILES)
def test_reading_takes_at_most_twice_the_file_and_256_megabytes_and_a_second_a_megabyte(
    name: str, tmp_path: Path, measure: Measure
) -> None:
    FILES[name](tmp_path / "w")
    size = sum({file.stat().st_ino: file.stat().st_size for file in tmp_path.iterdir()}.values())
    memory, seconds, outcome = measure(tmp_path / "w")
    assert outcome.startswith("read 100000" if name.startswith("100,000 ") else ("read ", "refused: ")), outcome
    assert memory <= 2 * size + ALLOWED
    assert seconds < SECONDS + size / 2**20
    for file in tmp_path.iterdir():
        file.unlink()  # some are large


def test_the_measurement_sees_memory_and_time_that_are_taken(tmp_path: Path, measure: Measure) -> None:
    write_zip(tmp_path / "w", {"data.pkl": state({"w": tensor()}), "data/0": FLOATS})
    assert measure(tmp_path / "w")[0] < 2**28
    code = READ.replace("    return", "    held = bytes(range(256)) * 2**21; sum(range(2 * 10**7))\n    return")
    with measuring(code) as other:
        memory, seconds, _ = other(tmp_path / "w")
    assert memory >= 2**29
    assert seconds > measure(tmp_path / "w")[1]
