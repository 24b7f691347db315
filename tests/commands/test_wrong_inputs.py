"""Wrong inputs of every kind: one sentence, the documented exit code, nothing lost; at once, where torch can wait."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.commands.options import DTYPE_NAMES, ENGINE_NAMES
from conv2attn.convert.engines import ENGINES
from conv2attn.proofs.campaign.layers import DTYPES
from conv2attn.proofs.campaign.results import LARGEST_SIZE
from tests.command import Run
from tests.processes import finished

NETS = """
from torch import nn

def net(classes=2):
    return nn.Sequential(nn.Conv2d(1, classes, 3))

number = 3

def leaves():
    raise SystemExit(0)
"""
BEFORE_TORCH = {
    "convert gone.pth": 3,
    "convert loop.pth": 3,
    "convert pipe.pth": 3,
    "convert /dev/zero": 3,
    "convert net.pth --out no/where": 3,
    "convert net.pth --out thesis.txt --force": 3,
    "convert net.pth --size 9x9x9x9": 2,
    "convert net.pth --size 99999999x99999999": 3,
    "convert net.pth --input-range 3,-3": 2,
    "convert net.pth --alpha nan": 2,
    "convert net.pth --arch-arg =3": 2,
    "convert net.pth --threads 99999999999": 2,
    "convert net.pth --arch nets.py:net --arch nets.py:other": 2,
    "graft net.pth --arch nets.py:net --arch nets.py:other": 2,
    "convert net.pth --alpha 2 --alpha=3": 2,
    "verify": 2,
    "verify net.pth --data nowhere": 3,
    "verify net.pth --engine fast": 2,
    "verify net.pth --mean 0 --std 0": 2,
    "show net.pth --query 1.5,2": 2,
    "show net.pth --image none.png": 3,
    "restore net.pth --out net.onnx": 2,
    "export net.pth --input x": 2,
    "same net.pth gone.onnx": 3,
    "graft": 2,
    "graft net.pth --data digits:7 --out x": 2,
    "graft net.pth --data folder:nowhere --out x": 3,
    "freeze net.pth --tolerance 1 --out x.bin": 2,
    "learn --encoding nosuch": 2,
    "learn --recipe nosuch": 2,
    "soak --engine auto": 2,
    "soak --max-size 65": 2,
    "soak --dtype float8": 2,
    "prove --only nosuch": 2,
    "prove --limit nan": 2,
    "help nosuch": 2,
}
"""Command lines that are refused before torch is imported, with their exit codes."""
LATER = {
    "convert thesis.txt --arch nets.py:net": 3,
    "convert ints.pth --arch nets.py:net": 3,
    "convert sparse.pth --arch nets.py:net": 3,
    "convert cut.pth --arch nets.py:net": 3,
    "convert net.pth --arch nets.py:number": 3,
    "convert net.pth --arch nets.py:leaves": 3,
    "convert net.pth --arch nets.py:nett": 3,
    "convert net.pth --arch nets.py:net --arch-arg classes=NaN": 3,
    "convert net.pth --arch nets.py:net --include re:[": 2,
    "convert net.pth --arch nets.py:net --exclude *": 4,
    "convert net.pth --arch nets.py:net --device toaster": 3,
    "verify net.pth --arch nets.py:net --out thesis.txt": 3,
    "verify net.pth --arch nets.py:net --data empty": 3,
    "check .": 3,
}


@pytest.fixture
def _files(run: Run) -> None:
    """A network, files that are none, and a text that nobody may lose, in the working folder."""
    Path("nets.py").write_text(NETS)
    Path("thesis.txt").write_text("years")
    Path("empty").mkdir()
    weights = nn.Sequential(nn.Conv2d(1, 2, 3)).state_dict()
    torch.save(weights, "net.pth")
    Path("cut.pth").write_bytes(Path("net.pth").read_bytes()[:-900])
    torch.save(weights | {"0.weight": torch.zeros(2, 1, 3, 3, dtype=torch.int64)}, "ints.pth")
    torch.save(weights | {"0.weight": weights["0.weight"].to_sparse()}, "sparse.pth")
    os.symlink("loop.pth", "loop.pth")
    os.mkfifo("pipe.pth")


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize(("line", "code"), (BEFORE_TORCH | LATER).items())
def test_a_wrong_input_is_refused_in_one_sentence_and_nothing_is_lost(line: str, code: int, run: Run) -> None:
    before = sorted(os.listdir())
    found = run(*line.split())
    said = [text for text in found.err.splitlines() if text and not text.startswith(("Usage:", "Try", "Example:"))]
    assert (found.code, found.out, len(said)) == (code, "", 1), found.err
    assert [name for name in sorted(os.listdir()) if name != "__pycache__"] == before
    assert Path("thesis.txt").read_text() == "years"


def test_names_that_are_checked_before_torch_are_all_there_are() -> None:
    assert tuple(ENGINES) == ENGINE_NAMES
    assert set(DTYPES) == set(DTYPE_NAMES)
    assert LARGEST_SIZE == 64


ALL = """
import sys
from contextlib import suppress
from conv2attn import cli

for line in open(sys.argv[1]).read().splitlines():
    sys.argv = ["conv2attn", *line.split()]
    with suppress(SystemExit):
        cli.main()
    if "torch" in sys.modules:
        sys.exit(f"torch was imported by: {line}")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("_files")
def test_wrong_paths_and_options_are_refused_before_torch_is_imported() -> None:
    Path("lines.txt").write_text("\n".join(BEFORE_TORCH))
    done = finished([sys.executable, "-c", ALL, "lines.txt"])
    assert done.returncode == 0, done.stderr.splitlines()[-1]
