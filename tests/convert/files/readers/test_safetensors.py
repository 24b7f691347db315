"""What is read of a safetensors file is what its own library reads, which reads more."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import read_checkpoint
from conv2attn.convert.files.readers import safetensors
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.readers.common.stored import Source
from tests.hostile.files import entry

DATA = bytes(range(96))


def file(header: object, data: bytes = DATA) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


PLAIN = json.dumps({"w": entry()}).encode()
READ = {
    "plain": file(PLAIN),
    "two": file({"w": entry((2,), end=8), "v": entry((2, 11), begin=8)}),
    "out of order": file({"w": entry((22,), begin=8), "v": entry((2,), end=8)}),
    "spaces behind": file(PLAIN + b"   "),
    "other keys": file({"w": entry() | {"extra": 1}}),
    "no metadata": file({"w": entry(), "__metadata__": {}}),
    "an empty name": file({"": entry()}),
    "a name with NUL": file({"a\0b": entry()}),
    "nothing": file({"w": entry((0, 5), end=0)}, b""),
    "nothing at the end": file({"w": entry((0, 5), begin=96), "v": entry()}),
    "one number": file({"w": entry((), end=4)}, DATA[:4]),
    "unaligned": file(
        {
            "a": entry((1,), dtype="U8", end=1),
            "w": entry((23,), begin=1, end=93),
            "z": entry((3,), dtype="U8", begin=93),
        }
    ),
    **{
        dtype: file({"w": entry((96 // size,), dtype=dtype)})
        for dtype, size in (
            *(("F64", 8), ("F16", 2), ("BF16", 2), ("F8_E4M3", 1), ("F8_E5M2", 1)),
            *(("F8_E4M3FNUZ", 1), ("F8_E5M2FNUZ", 1), ("C64", 8)),
            *((f"{sign}{8 * size}", size) for sign in "IU" for size in (1, 2, 4, 8)),
        )
    },
}
REFUSED = {
    "overlaps": file({"w": entry(), "v": entry()}),
    "overlaps in part": file({"w": entry((12,), end=48), "v": entry((14,), begin=40)}),
    "a gap": file({"w": entry((2,), end=8), "v": entry((2,), begin=88)}),
    "bytes without a name": file({"w": entry((2,), end=8)}),
    "bytes behind": file(PLAIN, DATA + b"x"),
    "bytes that lack": file(PLAIN, DATA[:-1]),
    "a byte order mark": file(b"\xef\xbb\xbf" + PLAIN),
    "NUL behind": file(PLAIN + b"\0"),
    "a comment": file(PLAIN[:-1] + b"/**/}"),
    "a comma behind": file(PLAIN[:-1] + b",}"),
    "two headers": file(PLAIN * 2),
    "a list": file([1]),
    "offsets that are not whole": file({"w": entry() | {"data_offsets": [0.0, 96.0]}}),
    "three offsets": file({"w": entry() | {"data_offsets": [0, 96, 96]}}),
    "offsets the wrong way": file({"w": entry((0,), begin=96, end=0)}),
    "nothing beyond the end": file({"w": entry((0, 5), begin=200, end=200), "v": entry()}),
    "a truth as a size": file({"w": entry((True, 24))}),
    "a text as a shape": file({"w": entry("46")}),
    "a shape in a shape": file({"w": entry(([4], 6))}),
    "a shape beyond memory": file({"w": entry((2**64, 0), end=0)}, b""),
    "a dtype in small letters": file({"w": entry(dtype="f32")}),
    "a dtype of half a byte": file({"w": entry((192,), dtype="F4")}),
    "a dtype that comes twice": file(PLAIN.replace(b'"dtype"', b'"dtype": "I32", "dtype"')),
    "metadata of numbers": file({"w": entry(), "__metadata__": {"a": 1}}),
    "metadata in a list": file({"w": entry(), "__metadata__": []}),
}
REFUSED_HERE = {
    "a name that comes twice": file(PLAIN[:-1] + b", " + PLAIN[1:].replace(b"w", b"\\u0077")),
    "metadata that are null": file({"w": entry(), "__metadata__": None}),
    "a space before": file(b" " + PLAIN),
}


@pytest.mark.parametrize("name", READ)
def test_a_file_is_read_as_its_own_library_reads_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(READ[name])
    found, theirs = read_checkpoint(tmp_path / "w").state_dict, load(READ[name])
    assert set(found) == set(theirs)
    for key, value in theirs.items():
        assert (found[key].dtype, found[key].shape) == (value.dtype, value.shape)
        assert torch.equal(found[key].reshape(-1).view(torch.uint8), value.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("name", [*REFUSED, *REFUSED_HERE])
def test_a_file_that_its_own_library_refuses_is_refused(name: str, tmp_path: Path) -> None:
    content = (REFUSED | REFUSED_HERE)[name]
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(CheckpointError):
        read_checkpoint(tmp_path / "w")
    if name in REFUSED:
        with pytest.raises((SafetensorError, ValueError, KeyError, RuntimeError)):
            load(content)
    else:
        load(content)


@pytest.mark.parametrize(("tensors", "aliases"), [(3, 0), (4, 0), (2, 1), (3, 1), (2, 2), (1, 3)])
def test_names_are_read_up_to_their_largest_number_whether_they_share_tensors_or_not(
    tensors: int, aliases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safetensors, "MAX_TENSORS", 3)
    header = {str(n): entry((1,), begin=4 * n, end=4 * n + 4) for n in range(tensors)}
    metadata = {"__metadata__": {f"a{n}": "0" for n in range(aliases)}}
    (tmp_path / "w").write_bytes(file({**header, **metadata}, DATA[: 4 * tensors]))
    if tensors + aliases == 3:
        assert len(read_checkpoint(tmp_path / "w").state_dict) == 3
    else:
        with pytest.raises(CheckpointError, match=r"at most 3 are read|names for more than 3 tensors"):
            read_checkpoint(tmp_path / "w")


def test_a_header_is_read_up_to_its_largest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w").write_bytes(file(PLAIN))
    monkeypatch.setattr(safetensors, "MAX_HEADER", len(PLAIN))
    assert set(read_checkpoint(tmp_path / "w").state_dict) == {"w"}
    monkeypatch.setattr(safetensors, "MAX_HEADER", len(PLAIN) - 1)
    with pytest.raises(CheckpointError, match=f"a header of {len(PLAIN)} bytes; at most {len(PLAIN) - 1} are read"):
        read_checkpoint(tmp_path / "w")


def test_what_stays_of_a_header_is_charged_and_the_header_is_not(tmp_path: Path) -> None:
    metadata = {"first": "x" * 100, "second": "y" * 1000}
    header = {str(n): entry((1,), begin=4 * n, end=4 * n + 4) for n in range(24)}
    (tmp_path / "w").write_bytes(file({**header, "__metadata__": metadata}))
    source = Source(tmp_path / "w", Budget())
    before = source.budget.memory
    safetensors.read_safetensors(source)
    texts = sum(sys.getsizeof(text) for pair in metadata.items() for text in pair)
    assert before - source.budget.memory == 24 * 400 + texts


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (file(PLAIN, DATA + b"x"), f"its header declares {8 + len(PLAIN) + 96} bytes"),
        (file({"w": entry() | {"data_offsets": [-1, 95]}}), "'w' lies beyond its end"),
        (file({"w": entry() | {"data_offsets": [0]}}), "it does not say where 'w' lies"),
        (file({"w": entry() | {"data_offsets": [0, 96, 96]}}), "it does not say where 'w' lies"),
    ],
)
def test_a_damaged_file_is_told_what_is_wrong_with_it(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(CheckpointError, match=said):
        read_checkpoint(tmp_path / "w")


def test_a_name_that_says_how_a_file_was_written_is_no_tensor_s_and_a_tensor_s_own_numbers_come_first(
    tmp_path: Path,
) -> None:
    header = {"w": entry((12,), end=48), "v": entry((12,), begin=48)}
    (tmp_path / "w").write_bytes(file({**header, "__metadata__": {"format": "w", "v": "w", "u": "w"}}))
    found = read_checkpoint(tmp_path / "w").state_dict
    assert set(found) == {"u", "v", "w"}
    assert torch.equal(found["u"], found["w"])
    assert not torch.equal(found["v"], found["w"])
