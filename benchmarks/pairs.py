"""Calibrates ``same`` on other people's networks: honest changes, which its threshold is chosen by, and planted faults.

Run by hand, with timm, torchvision, transformers, onnxruntime, onnxscript, onnxslim and onnx2torch installed. A line of
JSON is written for every pair as soon as it is known, and a run goes on where the last one ended:

    python benchmarks/pairs.py build/pairs.jsonl --seconds 3600
    python benchmarks/published.py build/pairs.jsonl FOLDER   # ONNX files below a folder, as site-packages
    python benchmarks/pairs.py build/pairs.jsonl --table

Each network is in a child process with a limit of memory, its truth and noise computed once; a child that takes too
long over a pair is killed, and another goes on with the next. The threshold is chosen on one half of the families,
drawn by the hashes of their names, and judged on the other half (``calibration.py``). Beside it stand ``allclose(1e-3,
1e-5)``, and the rule of PyTorch's own comparison of compiled networks: a root mean square error against float64 of at
most twice the other side's, plus 1e-5.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from calibration import is_place, table
from children import Record, read, records_of, write
from mistakes import MISTAKES
from planted import FAULTS, UnfitError, changed, computed, fitting, is_close, largest_that_passes, places, planted
from rewriting import REWRITINGS
from torch import Tensor, nn
from zoo import MOST, Plain, built, drawn, families, half, inputs, taken

from conv2attn.convert import convert_model
from conv2attn.convert.onnx import onnx_package
from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.walk import module_of
from conv2attn.convert.sameness.same import Reference
from conv2attn.convert.sameness.verdict import Sameness

FIRST, LIMIT = 120.0, 90.0  # seconds of the processor until a child has a network's truth, and for each pair after that
MEMORY = 12 * 2**30  # bytes of address space of a child
KINDS = 4  # of faults a network
_NEAR = 1e-6  # of the largest number, in float64
CHILDREN = 4  # a network: one more for each pair that does not end


@dataclass
class Subject:
    """A network that others are made of.

    Attributes:
        place: Its library and name.
        network: It.
        x: Its input.
        folder: A folder for files.
    """

    place: tuple[str, str]
    network: nn.Module
    x: Tensor
    folder: Path

    @cached_property
    def exported(self) -> torch.export.ExportedProgram:
        """Its program."""
        return torch.export.export(self.network, (self.x,), strict=False)

    @cached_property
    def reference(self) -> Reference:
        """Its truth and noise."""
        return Reference(self.network, self.x, is_bounded=False)

    @cached_property
    def truth(self) -> list[Tensor]:
        """Its outputs in float64."""
        return list(Lifted(self.reference.graph).outputs((self.x,), {}).values())

    @cached_property
    def onnx(self) -> Path:
        """Its ONNX file, as torch exports it."""
        path = self.folder / "network.onnx"
        torch.onnx.export(self.network, (self.x,), str(path), dynamo=True, verbose=False)
        return path


# Honest ways, each from a network to another that computes the same.


def _channels_last(one: Subject) -> Any:
    return copy.deepcopy(one.network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _with_threads(one: Subject) -> Any:
    def run(x: Tensor) -> Any:
        torch.set_num_threads(2)
        try:
            return one.network(x)
        finally:
            torch.set_num_threads(1)

    return run


def own_loops(network: nn.Module) -> Any:
    """The network in torch's own loops, without oneDNN."""

    def run(x: Tensor) -> Any:
        torch._C._set_mkldnn_enabled(False)
        try:
            return network(x)
        finally:
            torch._C._set_mkldnn_enabled(True)

    return run


def _one_by_one(one: Subject) -> Any:
    def run(x: Tensor) -> Any:
        parts = [one.network(image) for image in x.split(1)]
        return [torch.cat(each) for each in zip(*parts, strict=True)]

    if [y.shape for y in run(one.x)] != [y.shape for y in one.network(one.x)]:
        raise UnfitError("it holds inputs of a whole batch")
    return run


def _folded(one: Subject) -> Any:
    from torch.fx.experimental.optimization import fuse

    if not any(isinstance(module, nn.BatchNorm2d) for module in one.network.modules()):
        raise UnfitError("it has no batch norm")
    return Plain(fuse(copy.deepcopy(one.network.model))).eval()  # type: ignore[arg-type]


def _soft(one: Subject) -> Any:
    return convert_model(one.network, alpha=30.0, skip_unsupported=True).model.eval()


def _onnx(one: Subject) -> Any:
    return one.onnx


def _slim(one: Subject) -> Any:
    import onnxslim

    path = one.folder / "slim.onnx"
    onnxslim.slim(str(one.onnx), str(path))
    return path


def _simplified(one: Subject) -> Any:
    import onnxsim

    path = one.folder / "simplified.onnx"
    found, is_checked = onnxsim.simplify(str(one.onnx))
    if not is_checked:
        raise RuntimeError("onnxsim itself finds its result wrong")
    onnx_package("onnxsim").save(found, str(path))
    return path


def _read_back(one: Subject) -> Any:
    import onnxslim
    from readings import read_by_onnx2torch

    path = one.folder / "older.onnx"  # onnx2torch has no operations of later versions
    torch.onnx.export(one.network, (one.x,), str(path), dynamo=False, opset_version=17)
    return read_by_onnx2torch(onnxslim.slim(str(path)))


def _compiled(one: Subject) -> Any:
    return torch.compile(one.network)


def _rewritten(kind: str) -> Callable[[Subject], Any]:
    def way(one: Subject) -> Any:
        other = copy.deepcopy(one.network)
        if not REWRITINGS[kind](other):
            raise UnfitError("it has no such module")
        if not _is_one_function(one.network, other, one.x):
            raise UnfitError("it is another function there, as where a norm's result is read twice")
        return other

    return way


def _is_one_function(network: nn.Module, other: nn.Module, x: Tensor) -> bool:
    """Whether two networks agree in float64; also where they do not run in it."""
    wide = x.double() if x.is_floating_point() else x
    try:
        pairs = zip(*(copy.deepcopy(each).double()(wide) for each in (network, other)), strict=True)
        return all(bool((a - b).abs().max() <= _NEAR * a.abs().max()) for a, b in pairs if a.is_floating_point())
    except RuntimeError:
        return True


def _exported(one: Subject) -> Any:
    return one.exported


def _old_onnx(one: Subject) -> Any:
    path = one.folder / "old.onnx"
    torch.onnx.export(one.network, (one.x,), str(path), dynamo=False, opset_version=17)
    return path


def _optimised(one: Subject) -> Any:
    import onnxruntime

    path, options = one.folder / "optimised.onnx", onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(one.onnx), options, providers=["CPUExecutionProvider"])
    return path


def _instructions(kind: str) -> Callable[[Subject], Any]:
    def way(one: Subject) -> Any:
        path = one.folder / "outputs.pt"
        environment = os.environ | {
            "ONEDNN_MAX_CPU_ISA": kind,
            "ATEN_CPU_CAPABILITY": "avx2" if kind == "AVX2" else "default",
        }
        command = [sys.executable, __file__, str(path), "--outputs", *one.place]
        subprocess.run(command, env=environment, check=True)
        kept = torch.load(path)
        return lambda x: [tensor.clone() for tensor in kept]

    return way


BFLOAT16 = "bfloat16 on both sides"
WAYS: dict[str, Callable[[Subject], Any]] = {
    "channels last": _channels_last,
    "threads": _with_threads,
    "torch's own loops": lambda one: own_loops(one.network),
    "one image at a time": _one_by_one,
    "batch norm folded": _folded,
    "soft attention, alpha 30": _soft,
    **{kind: _rewritten(kind) for kind in REWRITINGS},
    "exported": _exported,
    "ONNX Runtime": _onnx,
    "old exporter": _old_onnx,
    "optimised by ONNX Runtime": _optimised,
    "onnxslim": _slim,
    "onnxsim": _simplified,
    "onnx2torch": _read_back,
    "compiled": _compiled,
    BFLOAT16: lambda one: own_loops(one.network),
    "AVX2": _instructions("AVX2"),
    "SSE4.1": _instructions("SSE41"),
}
_FILES = dict.fromkeys(
    ("exported", "ONNX Runtime", "old exporter", "optimised by ONNX Runtime", "onnxslim", "onnxsim", "onnx2torch"),
    (2, 0),
)
_RARE = _FILES | {BFLOAT16: (4, 1), "compiled": (8, 1), "AVX2": (8, 3), "SSE4.1": (8, 5)}  # in pairs of networks k % n


def others_say(a: list[Tensor], b: list[Tensor], truth: list[Tensor]) -> dict[str, bool]:
    """Whether allclose(1e-3, 1e-5), and PyTorch's rule for compiled networks, take two lists of outputs as the same."""
    pairs = [(x, y, exact) for x, y, exact in zip(a, b, truth, strict=True) if x.is_floating_point()]
    if any(x.shape != y.shape for x, y, _ in pairs):
        return {"allclose": False, "pytorch": False}
    errors = [[(one.double() - exact).square().mean().sqrt() for one in (x, y)] for x, y, exact in pairs]
    return {"allclose": is_close(a, b), "pytorch": all(bool(y <= 2 * x + 1e-5) for x, y in errors)}


def measured(found: Sameness) -> Record:
    """A comparison, as it is written."""
    return {
        "verdict": found.verdict,
        "ratio": found.ratio if math.isfinite(found.ratio) else 1e300,
        "inner": None if found.inner is None else min(found.inner, 1e300),
        "rms": max((min(row.rms, 1e300) for row in found.outputs), default=0.0),
        "a": max((min(row.a, 1e300) for row in found.outputs), default=0.0),
        "b": max((min(row.b, 1e300) for row in found.outputs), default=0.0),
        "where": [[one.name, one.kind, one.why[:120]] for one in found.where[:3]],
        "reason": found.reason[:160],
    }


def honest(one: Subject, way: str) -> Record:
    """A network beside an honest change of it."""
    if way == BFLOAT16:
        narrow = copy.deepcopy(one.network).bfloat16()
        x = one.x.bfloat16() if one.x.is_floating_point() else one.x
        one = Subject(one.place, narrow, x, one.folder)
    return measured(one.reference.compare(WAYS[way](one)))


def faulty(one: Subject, kind: str, place: str, is_limit: bool) -> Record:
    """A network beside itself with a fault."""
    size = FAULTS[kind].natural or 0.0
    right = computed(one.exported, one.x)
    if is_limit:
        size = largest_that_passes(one.exported, kind, place, one.x, right)
    other = planted(one.exported, kind, place, size)
    found = one.reference.compare(other)
    sites = {node.name: module_of(node) for node in changed(one.exported, kind, place)}
    others = others_say(right, computed(other, one.x), one.truth)
    named = [part.name in sites or part.name in sites.values() for part in found.where]
    own = {"size": size, "limit": is_limit, "place": place, "path": sites[place]}
    return {**own, **measured(found), **others, "named": any(named), "first": named[:1] == [True]}


def mistaken(one: Subject, kind: str, is_narrow: bool) -> Record:
    """A network beside a copy with a mistake, in its own precision or in bfloat16."""
    if is_narrow:
        x = one.x.bfloat16() if one.x.is_floating_point() else one.x
        one = Subject(one.place, copy.deepcopy(one.network).bfloat16(), x, one.folder)
    other = copy.deepcopy(one.network)
    sites = MISTAKES[kind](other, random.Random(f"{one.place}:{kind}"))
    if not sites:
        raise UnfitError("it has no such module")
    other = other.to(one.x.dtype) if is_narrow and one.x.is_floating_point() else other
    found = one.reference.compare(other)
    named = [is_place(part.name, part.why, sites) for part in found.where]
    others = others_say(list(one.network(one.x)), list(other(one.x)), one.truth)
    cause = bool(named[:1] == [True]) and found.where[0].why_is_known
    own = {"mistake": True, "bfloat16": is_narrow, "sites": sites, "innocent": named.count(False)}
    return {**own, **measured(found), **others, "named": any(named), "first": named[:1] == [True], "cause": cause}


def slots(one: Subject, index: int, planted_before: Counter[str], most: int) -> list[list[Any]]:
    """The pairs of a network: honest ways, and so many faults, those that were planted least so far."""
    every = {way: _RARE.get(way, (1, 0)) for way in WAYS}
    found: list[list[Any]] = [[way] for way, (step, rest) in every.items() if index // 2 % step == rest]
    if not most:
        return found
    before = Counter({kind: planted_before[kind] for kind in MISTAKES})
    fits = [kind for kind in MISTAKES if MISTAKES[kind](copy.deepcopy(one.network), random.Random(0))]
    for kind in sorted(fits, key=lambda kind: before[kind])[: 2 * most]:
        found += [[kind, False], [kind, True]]
    fit, kinds = fitting(one.exported), 0
    for kind in sorted(fit, key=lambda kind: planted_before[kind]):
        place = next(places(one.exported, kind, fit[kind], f"{one.place}:{kind}"), None)
        if place is None:
            continue
        found.append([kind, place, False])
        if FAULTS[kind].natural is not None:
            found.append([kind, place, True])
        kinds += 1
        if kinds == most:
            break
    return found


def pair(one: Subject, slot: list[Any]) -> Record:
    """A pair of a network, or why there is none."""
    start = time.perf_counter()
    try:
        if slot[0] in MISTAKES:
            record = mistaken(one, *slot)
        else:
            record = honest(one, slot[0]) if slot[0] in WAYS else faulty(one, *slot)
    except (UnfitError, NotImplementedError) as reason:
        record = {"skipped": str(reason)[:100]}
    except Exception as error:  # other people's code
        record = {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"way": slot[0], **record, "seconds": round(time.perf_counter() - start, 1)}


@torch.no_grad()
def child(
    index: int, seed: int, most: int, faults: int, folder: Path, given: list[list[Any]] | None, before: Counter[str]
) -> Iterator[Record]:
    """Yields the network and its pairs, then the record of each pair."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    family, names = drawn(index, seed)
    start = time.perf_counter()
    try:
        name = taken(family.library, names, most)
        network = built(family.library, name)
        one = Subject((family.library, name), network, inputs(family.library, name, network), folder)
        one.reference.compare(network)
        todo = slots(one, index, before, faults) if given is None else given
    except Exception as error:  # other people's code
        yield {"way": None, "error": f"{type(error).__name__}: {error}"[:300]}
        return
    yield {
        "way": "begin",
        "name": name,
        "shape": list(one.x.shape),
        "todo": todo,
        "seconds": round(time.perf_counter() - start, 1),
    }
    for slot in todo:
        yield {"name": name, **pair(one, slot)}


def warm_up() -> None:
    """Imports here what every child needs, and runs what is slow the first time only."""
    families()
    for name in (
        "onnxscript",
        "onnxruntime",
        "onnxslim",
        "onnxsim",
        "onnx2torch",
        "torch.fx.experimental.optimization",
    ):
        importlib.import_module(name)
    torch.set_num_threads(1)
    network = Plain(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(16, 4))
    ).eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = Subject(("", ""), network, torch.randn(2, 3, 4, 4), Path(folder))
        one.reference.compare(lambda x: network(x + 1e-6))
        _ = one.onnx


def run(out: Path, seconds: float, seed: int, *, most: int, faults: int, shard: tuple[int, int]) -> None:
    """Runs pairs until the time is over, and adds a line for each to the file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    end, index = time.monotonic() + seconds, shard[0]
    while time.monotonic() < end:
        done = read(out)
        if not any(one["index"] == index and one["way"] in (None, "end") for one in done):
            before = Counter(one["way"] for one in done if one.get("limit") is False or one.get("mistake"))
            _network(out, index, seed, most, faults, before, [one for one in done if one["index"] == index])
        index += shard[1]


def _network(
    out: Path, index: int, seed: int, most: int, faults: int, before: Counter[str], done: list[Record]
) -> None:
    """Runs the pairs of one network that are not done."""
    todo: list[list[Any]] | None = next((one["todo"] for one in done if one["way"] == "begin"), None)
    if todo is not None:
        todo = todo[sum(one["way"] != "begin" for one in done) :]
    if _ran(out, index, seed, most, faults, before, todo):
        write(out, {**_about(index, seed), "way": "end"})


def _about(index: int, seed: int) -> Record:
    family, _ = drawn(index, seed)
    return {"index": index, "library": family.library, "family": family.name}


def _ran(
    out: Path, index: int, seed: int, most: int, faults: int, before: Counter[str], todo: list[list[Any]] | None
) -> bool:
    """Runs pairs of one network, in as many children as it takes; whether the network itself ran."""
    about = _about(index, seed)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(CHILDREN):
            given = (index, seed, most, faults, Path(folder), todo, before)
            for record in records_of(child, *given, first=FIRST, limit=LIMIT):
                if record["way"] != "begin":
                    todo = None if todo is None else todo[1:]
                elif todo is None:
                    todo = record["todo"]
                else:
                    continue
                write(out, about | record)
                if record["way"] is None:
                    return False
            if not todo:
                break
            write(out, {**about, "way": todo[0][0], "error": "died, or took too long"})
            todo = todo[1:]
    return True


def main() -> None:
    """Runs pairs, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="file of lines of JSON, which is added to")
    parser.add_argument("--seconds", type=float, default=3600.0, help="start no new network after this time")
    parser.add_argument("--seed", type=int, default=0, help="of the networks that are drawn")
    parser.add_argument("--most", type=int, default=MOST, help="parameters of a network, at most")
    parser.add_argument("--faults", type=int, default=KINDS, help="kinds of faults of a network; 0 plants none")
    parser.add_argument("--shard", default="0/1", help="every n-th network from the i-th on: I/N")
    parser.add_argument("--table", action="store_true", help="print what the lines say")
    parser.add_argument("--outputs", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if options.table:
        table(read(options.out), list(WAYS), list(FAULTS), list(MISTAKES), half)
    elif options.outputs:
        torch.set_num_threads(1)
        network = built(*options.outputs)
        with torch.no_grad():
            torch.save(network(inputs(*options.outputs, network)), options.out)
    else:
        warm_up()
        number, count = map(int, options.shard.split("/"))
        run(
            options.out,
            options.seconds,
            options.seed,
            most=options.most,
            faults=options.faults,
            shard=(number, count),
        )


if __name__ == "__main__":
    main()
