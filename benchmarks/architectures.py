"""Converts every network of timm and torchvision that can be built here, and writes ARCHITECTURES.md.

Run by hand, with timm and torchvision installed; the weights are random. Each result is a line of JSON as soon as it is
known, and a run goes on where the last one ended:

    python benchmarks/architectures.py build/architectures.jsonl --seconds 3600
    python benchmarks/architectures.py build/architectures.jsonl --table benchmarks/ARCHITECTURES.md

First every network is built on the meta device, which takes no memory, and each of its convolutions is asked whether it
would be converted. Then networks are run from the smallest up, until the time is over: converted, compared bit for bit
in eval mode, restored and compared again.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from children import Record, read, write
from torch import Tensor, nn
from torch.utils import _pytree
from zoo import create, declare_operators, module_of, names

from conv2attn.convert import ConversionError, convert_model, restore_model
from conv2attn.convert.network.convert import is_convolution, plan_conversion
from conv2attn.convert.network.modules import names_by_module

META = "it is on the meta device and has no values yet"  # the last thing in the way of a layer without values
LIBRARIES = ("timm", "torchvision")


def looked_at(library: str, name: str) -> Record:
    """Plans the conversion of a network without values."""
    try:
        with torch.device("meta"):
            model = create(library, name).eval()
        plan = plan_conversion(model)
    except Exception as error:  # other people's code
        return {"built": False, "why": _said(error)}
    problems = Counter(problem.reason for problem in plan.unsupported if problem.reason != META)
    convolutions = len(names_by_module(model, is_convolution))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"built": True, "convolutions": convolutions, "problems": dict(problems), "parameters": parameters}


@torch.no_grad()
def run(library: str, name: str) -> Record:
    """Converts a network with random weights, compares the outputs, and restores it."""
    torch.manual_seed(0)
    try:
        model = create(library, name).eval()
    except Exception as error:
        return {"built": False, "why": _said(error)}
    convolutions = len(names_by_module(model, is_convolution))
    if not convolutions:
        return {"built": True, "convolutions": 0}
    record: Record = {"built": True, "convolutions": convolutions}
    part, called = _called(library, name, model)
    try:
        converted = convert_model(model).model
    except ConversionError as error:
        return record | {"converted": False, "why": str(error)}
    record |= {"converted": True, "compared": part}
    record |= {"ran": False}
    for inputs, expected in _that_run(model, part, called):
        record |= {"ran": True, "input": [list(each.shape) for each in _tensors(inputs)]}
        record |= {"equal": _same(_call(converted, part, inputs), expected)}
        if record["equal"]:
            break
        record |= {"deterministic": _same(_call(model, part, inputs), expected)}
        record.setdefault("unequal", []).append(record["input"])  # a larger input is tried then
    restored = restore_model(converted, inplace=True)
    before, after = model.state_dict(), restored.state_dict()
    kinds = [type(module) for module in model.modules()] == [type(module) for module in restored.modules()]
    record["restored"] = kinds and list(before) == list(after) and _same(list(before.values()), list(after.values()))
    return record


def _called(library: str, name: str, model: nn.Module) -> tuple[str, Iterator[tuple[Any, ...]]]:
    """Which part of a network is compared, "" for all of it, and inputs from small to usual."""
    sides: tuple[int, ...] = (64, 96, 128, 224, 256)
    if library == "timm":
        channels, usual, _ = getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224))
        sides = (*(side for side in (64, 96, 128) if side < usual), usual)
        return "", ((torch.randn(1, channels, side, side),) for side in sides)
    home = module_of(library, name)
    if "detection" in home:
        return "backbone", ((torch.randn(1, 3, side, side),) for side in (*sides, 300))
    if "video" in home:
        return "", ((torch.randn(1, 3, n, side, side),) for n, side in ((4, 64), (16, 64), (16, 112), (16, 224)))
    if "optical_flow" in home:
        return "", ((torch.randn(1, 3, side, side), torch.randn(1, 3, side, side)) for side in (128, 192))
    return "", ((torch.randn(1, 3, side, side),) for side in (*sides, 299))


def _that_run(model: nn.Module, part: str, called: Iterator[tuple[Any, ...]]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The inputs that a network takes, each with its output."""
    for inputs in called:
        try:
            expected = _call(model, part, inputs)
        except Exception:  # the network wants another size
            continue
        yield inputs, expected


def _call(model: nn.Module, part: str, inputs: tuple[Any, ...]) -> Any:
    return model.get_submodule(part)(*inputs)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _same(one: Any, other: Any) -> bool:
    """Whether all tensors are equal, bit for bit but for the sign of zero; a NaN equals a NaN."""
    first, second = _tensors(one), _tensors(other)
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(
        a.shape == b.shape and a.dtype == b.dtype and bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in pairs
    )


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}"


def known(path: Path) -> dict[tuple[str, str, str], Record]:
    """The results so far, by library, name and phase."""
    return {(record["library"], record["name"], record["phase"]): record for record in read(path)}


def add(path: Path, library: str, name: str, phase: str, record: Record) -> None:
    """Writes a result."""
    write(path, {"library": library, "name": name, "phase": phase, **record})


def measure(path: Path, seconds: float) -> None:
    """Adds results until all are known or the time is over."""
    end, before = time.monotonic() + seconds, known(path)
    networks = [(library, name) for library in LIBRARIES for name in names(library)]
    for library, name in networks:
        if (library, name, "meta") not in before:
            add(path, library, name, "meta", looked_at(library, name))
    meta = known(path)
    for library, name in sorted(networks, key=lambda each: meta[(*each, "meta")].get("parameters", 0)):
        if time.monotonic() > end:
            return
        if (library, name, "real") not in before and (library, name, "begun") not in before:
            add(path, library, name, "begun", {})  # a network that ends the process is not tried again
            add(path, library, name, "real", run(library, name))
            gc.collect()


def table(records: dict[tuple[str, str, str], Record], measured: date) -> str:
    """The results as a page."""
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("conv2attn", "torch", *LIBRARIES))
    lines = [
        "# Architectures",
        "",
        "Every network of timm and torchvision, with random weights: whether its convolutions are converted, whether",
        "the converted network's output is the same bit for bit (engine `auto`, eval mode, one input on the CPU), and",
        "whether `restore_model` gives back the same classes and the same state dict, bit for bit.",
        "",
        f"Made by `benchmarks/architectures.py` on {measured.isoformat()}, with {versions}.",
        "A family is the library's module that builds it. *Converted*: all its convolutions are, or are of classes",
        "that are, where a network is too large to run here. *Equal*, *restored*: of those that were run. Of detection",
        "networks the backbone is compared, since torchvision's own operators do not load here. Each network sees the",
        "smallest of a few images that it takes, and a larger one if the outputs differ there. Every network's own",
        "line is in the file that the program writes.",
        "",
        *itertools.chain.from_iterable(_summary(library, records) for library in LIBRARIES),
    ]
    for library in LIBRARIES:
        families: dict[str, list[Record]] = {}
        for name in _names(records, library):
            families.setdefault(module_of(library, name).rpartition(".")[2], []).append(_joined(records, library, name))
        header = ("family", "networks", "with convolutions", "converted", "run", "equal", "restored")
        lines += [f"## {library}", "", f"| {' | '.join(header)} |", "| --- " * len(header) + "|"]
        lines += [_row(family, known) for family, known in sorted(families.items())]
        lines.append("")
    return "\n".join(lines)


def _names(records: dict[tuple[str, str, str], Record], library: str) -> list[str]:
    return sorted({name for owner, name, _ in records if owner == library})


def _joined(records: dict[tuple[str, str, str], Record], library: str, name: str) -> Record:
    """All that is known of a network: of its meta form, and more of its real one if that was run."""
    meta, real = (records.get((library, name, phase), {}) for phase in ("meta", "real"))
    killed = (library, name, "begun") in records and not real
    return meta | real | {"run": bool(real), "killed": killed}


def _would(record: Record) -> bool:
    """Whether all convolutions are converted, or would be."""
    return bool(record.get("converted", not record.get("problems")))


def _summary(library: str, records: dict[tuple[str, str, str], Record]) -> list[str]:
    known = [_joined(records, library, name) for name in _names(records, library)]
    built = [record for record in known if record.get("built")]
    some = [record for record in built if record["convolutions"]]
    run = [record for record in some if record.get("converted")]
    ran = [record for record in run if record.get("ran")]
    figures = {
        "networks": len(known),
        "built here, on the meta device or in memory": len(built),
        "with convolutions": len(some),
        "of these converted completely, or all classes are ones that are converted": sum(map(_would, some)),
        "converted in memory": len(run),
        "of these run on an input": len(ran),
        "of these equal bit for bit": sum(record["equal"] for record in ran),
        "restored bit for bit, of those converted in memory": sum(record["restored"] for record in run),
    }
    return [
        f"| {library} | count |",
        "| --- | --- |",
        *(f"| {what} | {count:,} |" for what, count in figures.items()),
        "",
    ]


def _row(family: str, known: list[Record]) -> str:
    """The counts of one family: networks, with convolutions, converted, run, equal, restored."""
    some = [record for record in known if record.get("built") and record["convolutions"]]
    ran = [record for record in some if record.get("ran")]
    counts = (
        len(known),
        len(some),
        sum(map(_would, some)),
        len(ran),
        sum(record["equal"] for record in ran),
        sum(record["restored"] for record in ran),
    )
    return f"| `{family}` | {' | '.join(map(str, counts))} |"


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="a file of JSON lines, which is continued")
    parser.add_argument("--seconds", type=float, default=3600.0, help="when to begin no more networks")
    parser.add_argument("--table", type=Path, help="write the page instead of measuring")
    arguments = parser.parse_args()
    if arguments.table is not None:
        measured = date.fromtimestamp(arguments.results.stat().st_mtime)
        arguments.table.write_text(table(known(arguments.results), measured), encoding="utf-8")
        return
    declare_operators()
    torch.set_num_threads(1)
    os.environ["HF_HUB_OFFLINE"] = "1"
    measure(arguments.results, arguments.seconds)


if __name__ == "__main__":
    main()
