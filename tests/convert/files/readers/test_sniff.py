"""A file is told by its first bytes: each kind by what its writers write, and nothing else for it."""

from __future__ import annotations

import pickle

import pytest

from conv2attn.convert.files.readers.sniff import HEAD_BYTES, Kind, describe, sniff


@pytest.mark.parametrize("protocol", range(256))
def test_a_pickle_is_told_by_its_protocol(protocol: int) -> None:
    known = 2 <= protocol <= pickle.HIGHEST_PROTOCOL
    for head in (bytes((0x80, protocol)), bytes((0x80, protocol)) + b"}q"):
        assert sniff(head) is (Kind.PICKLE if known else None)
    for first in (0x7F, 0x81):
        assert sniff(bytes((first, protocol))) is None
    assert sniff(b"\x80") is None


def test_each_kind_is_told_by_what_its_files_begin_with() -> None:
    heads = {
        b"\x80\2\0\0\0\0\0\0{": Kind.SAFETENSORS,  # a length that looks like a pickle
        b"PK\3\4": Kind.ZIP,
        b' \n{"weight_map"': Kind.INDEX,
        b"\x08\x0a\x12": Kind.ONNX,
        b"\x08\x21\x12": None,
        b"PK\5\6": None,
        b"[1]": None,
        b"": None,
    }
    assert {head: sniff(head) for head in heads} == heads


def test_what_is_no_checkpoint_is_said() -> None:
    said = {
        b"": "empty",
        b"version https://git-lfs.github.com/spec/v1\n": "a Git LFS pointer",
        b"\xef\xbb\xbf \n<!DOCTYPE html>": "an HTML page",
        b"<HTML>": "an HTML page",
        b"nothing, but a text\n": "a text file",
        b"\0\1\2": "a file of an unknown kind",
    }
    for head, start in said.items():
        assert describe(head).startswith(start)
    assert max(map(len, said)) < HEAD_BYTES
