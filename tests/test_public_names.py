"""``import conv2attn`` gives the public names, and loads what they need only when they are used."""

from __future__ import annotations

import pydoc
import re
import runpy
import sys
from pathlib import Path

import pytest
from torch import nn

import conv2attn as c2a
from conv2attn import convert, learn
from conv2attn.proofs.campaign import strategies

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_public_name_is_documented_and_listed() -> None:
    assert set(c2a.__all__) <= set(dir(c2a))
    assert [name for name in c2a.__all__ if not getattr(c2a, name).__doc__] == []


def test_the_documents_use_public_names_alone() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    public = {f"conv2attn.{room.__name__.rpartition('.')[2]}": set(room.__all__) for room in (convert, learn)}
    public[strategies.__name__] = set(strategies.__all__)
    assert set(re.findall(r"\bc2a\.(\w+)", text)) <= set(c2a.__all__)
    for room, names in re.findall(r"^ *from (conv2attn[\w.]*) import (.*)$", text, re.MULTILINE):
        assert set(re.split(r", *", names)) <= public.get(room, set()), room


def test_the_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["conv2attn", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("conv2attn", run_name="__main__")
    assert capsys.readouterr().out == f"conv2attn {c2a.__version__}\n"


def test_help_shows_what_this_library_defines() -> None:
    text = pydoc.render_doc(c2a)
    assert "attention_probabilities" in text
    assert "register_full_backward_hook" not in text
    layer = c2a.attention_from_conv(nn.Conv2d(1, 1, 3))
    assert {"register_full_backward_hook", "state_dict", "set_positions", "weight", "engine"} <= set(dir(layer))
