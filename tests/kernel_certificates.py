"""Certificates of real layers before the checker that Coq proves right (``Checker.v``), evaluated by Coq itself.

Needs Coq: only ``make formal`` runs it.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Sequence
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv, certify
from conv2attn.proofs.formal.coq import LIBRARY

EXPONENT = -160  # no number of these layers has a smaller one
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
TAMPERED = 1000
Layer = dict[str, Any]


def dyadic(number: float) -> tuple[int, int]:
    """m and e with m 2^e the number."""
    fraction = Fraction(number)
    return fraction.numerator, 1 - fraction.denominator.bit_length()


def certified(dtype: torch.dtype) -> Layer:
    """What is claimed and stored of a layer."""
    conv = nn.Conv2d(4, 2, (2, 3), padding=1, stride=(1, 2), groups=2).to(dtype)
    layer = attention_from_conv(conv)
    assert conv.bias is not None
    rows = conv.weight.detach().double().flatten(1).tolist()
    found = {
        "shape": [[2, 3], [1, 2], [1, 1], [1, 1, 1, 1], 2, 2, 1],
        "dtype": DTYPES.index(dtype),
        "alpha": float(layer.alpha[0]),
        "low": -1.5,
        "high": 2.0,
        "bound": certify(layer, input_range=(-1.5, 2.0)).bound,
        "alphas": layer.alpha.detach().double().tolist(),
        "centers": layer.centers.detach().double().tolist(),
        "channels": list(zip(rows, conv.bias.detach().double().tolist(), strict=True)),
    }
    return found | {"stored_shape": deepcopy(found["shape"]), "stored_dtype": found["dtype"]}


def tampered(layer: Layer, draw: random.Random) -> Layer:
    """The same with one thing changed, so that what is claimed is no longer proved of what is stored.

    Bound, weight, alpha, range, dtype or geometry; a weight or an end of the range that counts for nothing in the bound
    leaves it true, and ``report.json``'s checksum tells of that.
    """
    changed = deepcopy(layer)
    kind = draw.choice(("bound", "weight", "alpha", "range", "dtype", "geometry"))
    if kind == "bound":  # 1e-6 below what the theorem gives, which is at most 1e-8 below what is certified
        changed["bound"] *= 1 - 1e-6 - 1e-8
    elif kind == "weight":
        row, _ = draw.choice(changed["channels"])
        row[draw.randrange(len(row))] = draw.choice((-8.0, 8.0))
    elif kind == "alpha":
        changed["alpha"] *= draw.choice((0.5, 2.0, 1.0625))
    elif kind == "range":
        changed["high"] *= draw.choice((0.5, 0.9375, 1.25))
    elif kind == "dtype":
        changed["dtype"] = draw.choice([number for number in range(5) if number != changed["dtype"]])
    else:
        place = draw.randrange(7)
        numbers = changed["shape"]
        if isinstance(numbers[place], list):
            numbers[place][draw.randrange(len(numbers[place]))] += draw.choice((-1, 1, 2))
        else:
            numbers[place] += draw.choice((-1, 1, 2))
    return changed


def in_coq(number: float) -> str:
    """A number of the checker."""
    return "({}, {})".format(*dyadic(number))


def listed(items: Sequence[str]) -> str:
    """A list in Coq."""
    return f"[{'; '.join(items)}]"


def shape(numbers: Sequence[Any]) -> str:
    """A geometry in Coq."""
    fields = (listed([str(m) for m in n]) if isinstance(n, list) else f"({n})" for n in numbers)
    return f"(Shape {' '.join(fields)})"


def question(layer: Layer) -> str:
    """check, asked of a layer."""
    numbers = " ".join(in_coq(layer[name]) for name in ("low", "high", "bound"))
    claim = f"(Claim {shape(layer['shape'])} {in_coq(layer['alpha'])} {layer['dtype']} {numbers})"
    channels = listed([f"Channel {listed([*map(in_coq, row)])} {in_coq(bias)}" for row, bias in layer["channels"]])
    centers = listed([listed([*map(in_coq, center)]) for center in layer["centers"]])
    alphas = listed([*map(in_coq, layer["alphas"])])
    stored = f"{shape(layer['stored_shape'])} {layer['stored_dtype']} {alphas} {centers} ({EXPONENT}) {channels}"
    return f"check {claim} (Stored {stored})"


def verdicts(library: Path, folder: Path, layers: Sequence[Layer]) -> list[str]:
    """What Coq evaluates check to, for each."""
    needed = f"From Coq Require Import ZArith List.\nFrom {LIBRARY} Require Import Checker.\n"
    head = f"{needed}Import ListNotations.\nOpen Scope Z_scope.\n"
    asked = "".join(f"Eval vm_compute in {question(layer)}.\n" for layer in layers)
    (folder / "Asked.v").write_text(head + asked, encoding="utf-8")
    command = ["coqc", "-q", "-Q", str(library), LIBRARY, "Asked.v"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, encoding="utf-8")
    return re.findall(r"= (\w+)\s*: verdict", done.stdout)


@pytest.mark.fault
def test_what_could_overflow_is_not_accepted(library: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layer = certified(torch.float32)
    alphas = [layer | {"alpha": 2.0**e, "alphas": [2.0**e] * len(layer["alphas"])} for e in (102, 103)]
    rows = [([2.0**125, *row[1:]], bias) for row, bias in layer["channels"]]
    assert verdicts(library, tmp_path, [*alphas, layer | {"channels": rows}]) == [
        "Accepted",
        "May_overflow",
        "May_overflow",
    ]


@pytest.mark.fault
def test_true_certificates_are_accepted_and_tampered_ones_refused(library: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    draw = random.Random(0)
    honest = [certified(dtype) for dtype in DTYPES for _ in range(4)]
    false = [tampered(draw.choice(honest), draw) for _ in range(TAMPERED)]
    found = verdicts(library, tmp_path, [*honest, *false])
    assert found[: len(honest)] == ["Accepted"] * len(honest)
    assert len(found) == len(honest) + TAMPERED
    assert [verdict for verdict in found[len(honest) :] if verdict == "Accepted"] == []
    assert {"Other_shape", "Other_dtype", "Other_alpha", "Too_small", "Too_large"} <= set(found)
