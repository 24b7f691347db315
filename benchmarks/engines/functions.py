"""The mean signed error of each engine's own functions, which no module's sums and products show.

    python -m benchmarks.engines.functions benchmarks/functions.jsonl [--engine openvino]
    python -m benchmarks.engines.functions benchmarks/functions.jsonl --table     # writes the table of ENGINES.md

``same`` asks for bias of operations that round and do no more. Exponentials, roots and sigmoids are approximated, and
each library has its own. Here they are asked by themselves: the mean error of float32 results beside float64, in half
units in the last place, away from 0 and upwards, and the largest. A mean counts as biased as for ``same``: beyond
``LEAST`` and ``CERTAIN`` standard errors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.engines.port import NAMES as ENGINES
from benchmarks.engines.port import CannotRunError, module, ported
from benchmarks.engines.table import PAGE, between
from conv2attn.convert.sameness.bias import CERTAIN, LEAST

Line = dict[str, Any]
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "softmax": lambda x: x.softmax(-1),
    "1 / sqrt": lambda x: (x.square() + 0.1).rsqrt(),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "mean": lambda x: x.square().mean(-1),
    "product": lambda x: x.square() @ x.square().transpose(1, 2),
}
LEAST_OF = {"GELU": 0.5, "layer norm": 0.5}  # results that are smaller are differences, and err by more
SHAPE = (16, 32, 64)
OTHER = 2.0**25  # half units in the last place, as much as the result: another function


class One(nn.Module):
    """A network that is one function.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, C] to what the function gives."""
        return FUNCTIONS[self.name](x)


def inputs() -> Tensor:
    """Normal numbers with a deviation of 2."""
    return 2 * torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))


def errors(found: Tensor, exact: Tensor) -> Line:
    """Mean errors with their standard errors, and the largest, in half units in the last place of float32.

    Args:
        found: Results in float32.
        exact: Those in float64.
    """
    mantissa, exponent = torch.frexp(exact)
    up = torch.ldexp(found.double() - exact, -exponent) * 2.0**25  # half a unit in the last place is 2^(exponent - 25)
    said: Line = {"largest": float(up.abs().max())}
    for way, one in (("away", up * mantissa.sign()), ("up", up)):
        said[way], said[f"{way}_error"] = float(one.mean()), float(one.std()) / math.sqrt(one.numel())
    return said


def is_biased(line: Line) -> bool:
    """Whether a mean error is no chance."""
    return any(abs(line[way]) > max(LEAST, CERTAIN * line[f"{way}_error"]) for way in ("away", "up"))


def measured(engine: str, way: str) -> Iterator[Line]:
    """A line for each function in an engine; torch's own are ``engine`` "torch"."""
    x = inputs()
    for name, function in FUNCTIONS.items():
        network, about = One(name).eval(), {"engine": engine, "way": way, "function": name}
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            try:
                found = network(x) if engine == "torch" else ported(engine, network, x, way, Path(folder))(x)[0]
            except CannotRunError as error:
                yield {**about, "why_not": str(error)}
                continue
        exact = function(x.double())
        if found.shape != exact.shape:
            yield {**about, "why_not": f"it gives {list(found.shape)}"}
            continue
        known = exact.abs() >= LEAST_OF.get(name, 0.0)
        yield {**about, **errors(found[known], exact[known])}


def rows(lines: Iterable[Line]) -> list[str]:
    """The table: a row for each function, a column for each engine in the first of its configurations."""
    cells: dict[str, dict[str, str]] = {}
    for line in lines:
        engine = cells.setdefault(line["engine"], {})
        if "why_not" not in line and line["largest"] < OTHER:
            engine.setdefault(line["function"], cell(line))
    header = f"| function | {' | '.join(cells)} |"
    told = (f"| {name} | {' | '.join(each.get(name, '') for each in cells.values())} |" for name in FUNCTIONS)
    return [header, "| --- " * (len(cells) + 1) + "|", *told]


def cell(line: Line) -> str:
    """The mean error away from 0, bold if some mean is biased, and the largest in brackets."""
    mean = f"{line['away']:.2f}" if abs(line["away"]) < 100 else f"{line['away']:.0f}"
    largest = f"{line['largest']:.1f}" if line["largest"] < 100 else f"{line['largest']:,.0f}"
    return f"{f'**{mean}**' if is_biased(line) else mean} ({largest})"


def run() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="file of lines of JSON")
    parser.add_argument("--engine", action="append", choices=("torch", *ENGINES))
    parser.add_argument("--table", action="store_true", help="write the lines so far into the page")
    chosen = parser.parse_args()
    if chosen.table:
        lines = [json.loads(line) for line in chosen.out.read_text().splitlines()]
        PAGE.write_text(between(PAGE.read_text(), "functions", "\n".join(rows(lines))))
        return
    torch.set_num_threads(1)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for engine in chosen.engine or ("torch", *ENGINES):
        try:
            ways = {"eager": "float32"} if engine == "torch" else module(engine).DECLARED
        except ImportError as error:
            print(f"{engine} is left out: {error}", file=sys.stderr)
            continue
        for way in (way for way, unit in ways.items() if unit == "float32"):
            for line in measured(engine, way):
                with chosen.out.open("a") as file:
                    file.write(json.dumps(line) + os.linesep)


if __name__ == "__main__":
    run()
