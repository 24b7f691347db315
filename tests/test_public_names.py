"""``import conv2attn`` gives the public names, and loads what they need only when they are used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import conv2attn as c2a
from conv2attn import convert, learn

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def run(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_importing_the_package_does_not_import_torch() -> None:
    loaded = run("-c", "import sys, conv2attn; dir(conv2attn); conv2attn.__version__; print(*sys.modules)").split()
    assert "conv2attn" in loaded
    assert {"torch", "numpy", "sympy", "hypothesis", "typer"}.isdisjoint(loaded)


@pytest.mark.parametrize("name", c2a.__all__)
def test_every_public_name_is_documented_and_listed(name: str) -> None:
    assert name in dir(c2a)
    assert getattr(c2a, name).__doc__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_documents_use_public_names_alone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    public = {f"conv2attn.{room.__name__.rpartition('.')[2]}": set(room.__all__) for room in (convert, learn)}
    assert set(re.findall(r"\bc2a\.(\w+)", text)) <= set(c2a.__all__)
    for room, names in re.findall(r"^ *from (conv2attn[\w.]*) import (.*)$", text, re.MULTILINE):
        assert set(re.split(r", *", names)) <= public.get(room, set()), room


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'attend'"):
        c2a.attend  # noqa: B018


def test_the_public_names_convert_a_layer_and_bound_the_difference() -> None:
    conv = nn.Conv2d(4, 6, (3, 2), stride=(1, 2), groups=2)
    attention = c2a.attention_from_conv(conv)
    x = torch.rand(2, 4, 7, 9)
    difference = (attention(x) - conv(x)).abs().max().item()
    assert difference <= c2a.certify(attention, input_range=(0, 1)).bound


@pytest.mark.slow
def test_the_package_runs_as_a_module() -> None:
    assert run("-m", "conv2attn", "--version") == f"conv2attn {c2a.__version__}\n"
