"""Measures ``same`` on language models of transformers: honest pairs, which must be rounding, and planted faults.

Run by hand, with transformers installed. A line of JSON is written for every pair as soon as it is known, and a run
goes on where the last one ended:

    python benchmarks/language_models.py build/language_models.jsonl
    python benchmarks/language_models.py build/language_models.jsonl --table
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from children import Record, read, write
from language_faults import FAULTS
from language_zoo import MODELS, Call, built, given
from torch import nn
from zoo import declare_operators

from conv2attn.convert.sameness.recorded import record_values
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.serving import decode, left_padded, one_at_a_time, with_attention

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PREFILL = 6  # tokens, with those of an image
HAS_ENCODER = ("T5", "Whisper")
ALARMS = ("not rounding", "biased rounding", "coarser rounding", "quantised")


def _recorded(model: nn.Module, call: Call, folder: Path) -> Any:
    path = folder / "run.safetensors"
    record_values(with_attention(model, "eager"), call, path)
    return path


# Honest ways, each from a model to a side that is the same function of the same inputs.
HONEST: dict[str, Callable[[nn.Module, Call, Path], Any]] = {
    "a copy": lambda model, _call, _folder: copy.deepcopy(model),
    "cache, token by token": lambda model, _call, _folder: decode(model, prefill=PREFILL),
    "one row at a time": lambda model, _call, _folder: one_at_a_time(model),
    "left padding": lambda model, _call, _folder: left_padded(model, 3),
    "padded rows, one at a time": lambda model, _call, _folder: one_at_a_time(model),
    "eager attention": lambda model, _call, _folder: with_attention(model, "eager"),
    "recorded, eager attention": _recorded,
    "a copy in bfloat16": lambda model, _call, _folder: copy.deepcopy(model).bfloat16(),
    "compiled": lambda model, _call, _folder: torch.compile(copy.deepcopy(model)),
}


def fits(kind: str, name: str, dtype: str) -> bool:
    """Whether a model can be served in this way."""
    if kind == "left padding":
        return name not in HAS_ENCODER and name != "Mamba"  # which takes no mask of a row
    if kind == "padded rows, one at a time":
        return name != "Whisper"  # whose sounds all have one length
    if "eager" in kind:
        return name != "Mamba"
    return dtype == "float32" if kind == "a copy in bfloat16" else True


def padded(call: Call) -> Call:
    """The call with a mask that leaves out the first three tokens of the second row."""
    mask = torch.ones_like(call["input_ids"])
    mask[1, :3] = 0
    return {**call, "attention_mask": mask}


def honest(names: list[str], kinds: list[str]) -> Iterator[tuple[str, str, str]]:
    """Each model, precision and kind."""
    for name in names:
        for dtype in DTYPES:
            yield from ((name, dtype, kind) for kind in kinds if fits(kind, name, dtype))


def judged(name: str, dtype: str, kind: str) -> Record:
    """An honest pair, judged."""
    model, call = built(name, DTYPES[dtype]), given(name, DTYPES[dtype])
    if kind.startswith("padded"):
        call = padded(call)
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = same(model, HONEST[kind](model, call, Path(folder)), call)
        except Exception as refusal:  # no verdict: it is counted, and mended
            return {"verdict": "none", "sentence": f"{type(refusal).__name__}: {refusal}"}
    seconds = time.process_time() - start
    return {"verdict": found.verdict, "ratio": found.ratio, "sentence": found.sentence, "seconds": seconds}


def planted(names: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Each model, precision, fault and size, in float32 and bfloat16."""
    for kind, fault in FAULTS.items():
        for name in fault.models:
            if name in names:
                yield from ((name, dtype, kind, size) for dtype in list(DTYPES)[:2] for size in fault.sizes)


def found_in(name: str, dtype: str, kind: str, size: str) -> Record:
    """A planted fault, judged: whether it is found, in the right module, with the right cause."""
    fault, model = FAULTS[kind], built(name, DTYPES[dtype])
    fault.prepare(model)
    value = fault.sizes[size]
    call = given(name, DTYPES[dtype], tokens=value if fault.is_length else fault.tokens)
    start = time.process_time()
    found = same(model, fault.make(model, value), call)
    first = found.where[0] if found.where else None
    return {
        "verdict": found.verdict,
        "ratio": found.ratio,
        "sentence": found.sentence,
        "notes": [*found.turned, *found.notes],
        "found": found.verdict in ALARMS,
        "named": first is not None and _is_at(first.name, fault.names, size),
        "told": first is not None and any(one in first.why for one in fault.words),
        "seconds": time.process_time() - start,
    }


# Tables


def honest_table(records: list[Record]) -> list[str]:
    """A line for each honest kind: pairs, those with the same bits, the largest ratio, and alarms, by precision."""
    lines = ["| honest | " + " | ".join(DTYPES) + " |", "| --- |" + " --- |" * len(DTYPES)]
    for kind in dict.fromkeys(one["kind"] for one in records):
        cells = []
        for dtype in DTYPES:
            rows = [one for one in records if (one["kind"], one["dtype"]) == (kind, dtype)]
            equal = sum(one["verdict"] == "same bits" for one in rows)
            largest = max((one.get("ratio", 0.0) for one in rows), default=0.0)
            odd = [
                f"{one['model']}: {one['verdict']}" for one in rows if one["verdict"] not in ("rounding", "same bits")
            ]
            cells.append(f"{len(rows)}, {equal}, {largest:.2g}{'; '.join(['', *odd])}" if rows else "")
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    odd = sum(one["verdict"] in ALARMS for one in records)
    none = sum(one["verdict"] in ("none", "cannot say") for one in records)
    return [*lines, "", f"{len(records)} honest pairs, {odd} alarms, {none} without a verdict."]


def planted_table(records: list[Record]) -> list[str]:
    """A line for each fault and precision: found in each size, and of those that are found, named and explained."""
    lines = [
        "| fault, models | precision | found, by size | module named | cause told |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind, fault in FAULTS.items():
        for dtype in list(DTYPES)[:2]:
            rows = [one for one in records if (one["kind"], one["dtype"]) == (kind, dtype)]
            if rows:
                cells = [_found(size, [one for one in rows if one["size"] == size]) for size in fault.sizes]
                known = [one for one in rows if one["found"]]
                named, told = (
                    f"{sum(one[key] for one in known)} of {len(known)}" if known and wanted else ""
                    for key, wanted in (("named", fault.names), ("told", fault.words))
                )
                kinds = f"{kind} ({', '.join(fault.models)})" if dtype == "float32" else ""
                lines.append(f"| {kinds} | {dtype} | {'; '.join(cells)} | {named} | {told} |")
    return lines


def _found(size: str, rows: list[Record]) -> str:
    """How many are found, and how many have the same bits, so that there is nothing to find."""
    equal = sum(one["verdict"] == "same bits" for one in rows)
    return f"{size}: {sum(one['found'] for one in rows)} of {len(rows)}{f' ({equal} same bits)' if equal else ''}"


def _is_at(name: str, parts: tuple[str, ...], size: str) -> bool:
    """Whether a module is one of those at fault: in the last of two layers, where the fault is in that one alone."""
    return any(one in name for one in parts) and ("last layer" not in size or ".1." in name)


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found.add_argument("out", type=Path, help="file of lines of JSON, which a run adds to")
    found.add_argument("--table", action="store_true", help="print the tables of the lines so far")
    found.add_argument("--models", nargs="*", default=list(MODELS), help="models of the list")
    found.add_argument("--kinds", nargs="*", default=list(HONEST), help="honest kinds")
    return found


def main(options: argparse.Namespace) -> None:
    """Judges what is not known yet, or prints tables."""
    torch.set_num_threads(1)
    declare_operators()
    warnings.simplefilter("ignore")
    if options.table:
        records = read(options.out)
        print("\n".join(honest_table([one for one in records if "size" not in one])))
        print("\n" + "\n".join(planted_table([one for one in records if "size" in one])))
        return
    done = {
        (one["model"], one["dtype"], one["kind"], *([one["size"]] if "size" in one else []))
        for one in read(options.out)
    }
    for name, dtype, kind, size in planted(options.models):
        if (name, dtype, kind, size) not in done:
            record = found_in(name, dtype, kind, size)
            write(options.out, {"model": name, "dtype": dtype, "kind": kind, "size": size, **record})
            print(name, dtype, kind, size, record["sentence"], flush=True)
    for name, dtype, kind in honest(options.models, options.kinds):
        if (name, dtype, kind) not in done:
            record = {"model": name, "dtype": dtype, "kind": kind, **judged(name, dtype, kind)}
            write(options.out, record)
            print(name, dtype, kind, record["sentence"], flush=True)


if __name__ == "__main__":
    main(parser().parse_args(sys.argv[1:]))
