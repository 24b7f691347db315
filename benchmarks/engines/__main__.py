"""Engines beside ``conv2attn``: what it says of networks that other programs run.

    python -m benchmarks.engines benchmarks/engines.jsonl [--engine openvino] [--network cnn]
    python -m benchmarks.engines benchmarks/engines.jsonl --planted     # bugs in networks that these engines run
    python -m benchmarks.engines benchmarks/engines.jsonl --table       # writes the tables of benchmarks/ENGINES.md

A line of JSON is written for every pair as soon as it is known; a run goes on where the last one ended. Engines that
are not installed are left out, and named. Where some need other versions of the same packages, install each into a
folder of its own (``pip install --target FOLDER``) and run it with that in PYTHONPATH.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.engines.faults import FAULTS, TIMES, TooSmallError, planted
from benchmarks.engines.judged import Tapped, inside, judged, modules
from benchmarks.engines.networks import NAMES, case
from benchmarks.engines.port import NAMES as ENGINES
from benchmarks.engines.port import CannotRunError, module, ported
from benchmarks.engines.table import PAGE, rewritten

Line = dict[str, Any]
Key = tuple[str, ...]
_KEYS = ("engine", "way", "network", "fault", "times")


def networks(engine: str) -> tuple[str, ...]:
    """Three networks: ncnn has a mixer instead of a language model."""
    return ("cnn", "vit", "mixer") if engine == "ncnn" else tuple(name for name in NAMES if name != "mixer")


def pairs(chosen: argparse.Namespace) -> Iterator[Line]:
    """What is to be compared: engine, configuration, network, and a fault with its size where these are planted."""
    for engine in chosen.engine or ENGINES:
        try:
            ways = module(engine).DECLARED
        except ImportError as error:
            print(f"{engine} is left out: {error}", file=sys.stderr)
            continue
        for way, unit in ways.items():
            for network in networks(engine):
                about = {"engine": engine, "way": way, "declared": unit, "network": network}
                if network not in (chosen.network or [network]) or way not in (chosen.way or [way]):
                    continue
                if not chosen.planted:
                    yield {**about, "fault": "", "times": 0}
                else:
                    faults = [name for name in FAULTS if FAULTS[name].fits(case(network).network)]
                    yield from ({**about, "fault": name, "times": each} for name in faults for each in TIMES)


def compared(pair: Line) -> Line:
    """A line: what is said of an engine's network, or why it cannot be run."""
    start = time.perf_counter()
    found: Line = {**pair, "version": module(pair["engine"]).VERSION, "machine": _processor()}
    one = case(pair["network"])
    network = one.network
    if pair["fault"]:
        try:
            network, found["strength"] = planted(one, pair["fault"], pair["times"], pair["declared"])
        except TooSmallError as error:
            return {**found, "why_not": str(error)}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call = ported(pair["engine"], network, one.inputs, pair["way"], _below(folder, "plain"))
        except CannotRunError as error:
            return {**found, "why_not": str(error)}
        found |= asdict(judged(one.network, lambda x: call(x)[0], one.inputs))
        found["seconds"] = round(time.perf_counter() - start, 1)
        if pair["fault"]:
            return found
        names = modules(network)
        try:
            tapped = Tapped(copy.deepcopy(network), names).eval()
            values = ported(pair["engine"], tapped, one.inputs, pair["way"], _below(folder, "tapped"))(one.inputs)
        except CannotRunError as error:
            return {**found, "values": str(error)}
        return found | asdict(inside(one.network, values, names, one.inputs, pair["declared"]))


def _below(folder: str, name: str) -> Path:
    path = Path(folder) / name
    path.mkdir()
    return path


def _processor() -> str:
    known = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()}, {known}"


def _key(line: Line) -> Key:
    return tuple(str(line[name]) for name in _KEYS)


def lines(path: Path) -> dict[Key, Line]:
    """The lines so far; of two on the same pair, the last."""
    read = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    return {_key(line): line for line in read}


def run(arguments: list[str] | None = None) -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="file of lines of JSON")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--network", action="append", choices=NAMES)
    parser.add_argument("--way", action="append", help="a configuration, such as 'hint bf16'")
    parser.add_argument("--planted", action="store_true", help="plant bugs in the networks that engines run")
    parser.add_argument("--table", action="store_true", help="write the lines so far into the page")
    chosen = parser.parse_args(arguments)
    known = lines(chosen.out)
    if chosen.table:
        PAGE.write_text(rewritten(PAGE.read_text(), list(known.values())))
        return
    torch.set_num_threads(1)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for pair in pairs(chosen):
        if _key(pair) in known:
            continue
        line = compared(pair)
        with chosen.out.open("a") as file:
            file.write(json.dumps(line) + os.linesep)
        print(*_key(pair), line.get("verdict") or line["why_not"], sep=" | ", flush=True)


if __name__ == "__main__":
    run()
