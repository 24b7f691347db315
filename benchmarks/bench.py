"""Times attention beside the convolution: whole networks of torchvision, and their layers in each engine.

    python benchmarks/bench.py                                    # networks, eager and compiled, both memory formats
    python benchmarks/bench.py --layers --networks resnet50       # the distinct layers of ResNet-50, engine by engine
    python benchmarks/bench.py --markdown benchmarks/RESULTS.md   # appends what was measured

Every line is a ratio to the CNN, or to the layer's convolution, measured in the same process and in turn: each round
begins with another candidate, a sample is what ``torch.utils.benchmark`` makes of ``--sample`` seconds, and the median
of the ratios over the rounds counts. A copy of the CNN is timed as control; what it differs from 1 by is chance. Beside
each line stand the load of the machine and the minor page faults of a call: glibc gives memory back and asks
for it again, page by page, which can take longer than a convolution. Hold it still by the environment:

    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=268435456 python benchmarks/bench.py

It needs torchvision (``pip install torchvision``).
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from conv2attn.convert import attention_from_conv, convert_model
from conv2attn.convert.attention.reader import geometry
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.size import Size
from conv2attn.convert.spec import Convolution
from conv2attn.proofs.evidence.arithmetic import describe_machine

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2")
SOFT_ALPHA = 2.0
LARGEST = 2**30  # bytes that an engine may take for a layer, by its own estimate
ALLOCATOR = ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One candidate's times beside those of the first.

    Attributes:
        what: The network or the layer.
        mode: Memory format, eager or compiled, and the phase.
        candidate: Its name.
        milliseconds: Median time of a call.
        ratio: Median over the rounds of its time, divided by the first candidate's.
        faults: Minor page faults of a call, the median over the rounds.
        load: Load of the machine, over the last minute.
    """

    what: str
    mode: str
    candidate: str
    milliseconds: float
    ratio: float
    faults: int
    load: float


def measured(what: str, mode: str, calls: dict[str, Call], *, rounds: int, sample: float) -> list[Row]:
    """Times the candidates in turn, and compares each with the first."""
    threads = torch.get_num_threads()
    timers = {name: Timer("call()", globals={"call": call}, num_threads=threads) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    faults: dict[str, list[int]] = {name: [] for name in calls}
    for call in calls.values():
        call()  # compiles, and fills caches
    names = list(calls)
    for turn in range(rounds):
        for number in range(len(names)):
            name = names[(number + turn) % len(names)]
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            found = timers[name].blocked_autorange(min_run_time=sample)
            after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            times[name].append(found.median)
            faults[name].append((after - before) // max(1, found.number_per_run * len(found.raw_times)))
    first = times[names[0]]
    return [
        Row(
            what,
            mode,
            name,
            1000 * statistics.median(times[name]),
            statistics.median(own / other for own, other in zip(times[name], first, strict=True)),
            int(statistics.median(faults[name])),
            os.getloadavg()[0],
        )
        for name in names
    ]


def phases(model: nn.Module, x: Tensor) -> dict[str, Call]:
    """A forward call without gradients, and a step: forward and backward."""

    def forward() -> object:
        with torch.no_grad():
            return model(x)

    def step() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    return {"forward": forward, "step": step}


def network_rows(name: str, cnn: nn.Module, options: argparse.Namespace) -> Iterator[Row]:
    """A network beside a copy of it and its conversions, in every mode."""
    models = {
        "CNN": cnn,
        "control": copy.deepcopy(cnn),
        "exact": convert_model(cnn).model,
        f"soft, alpha {SOFT_ALPHA:g}": convert_model(cnn, alpha=SOFT_ALPHA).model,
    }
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(options.batch, 3, options.side, options.side, device=options.device, dtype=options.dtype)
        x = x.to(memory_format=layout)
        laid = {key: model.to(memory_format=layout) for key, model in models.items()}  # type: ignore[call-overload]
        for compiled in (False, True) if options.compile else (False,):
            torch._dynamo.reset()
            ready = {key: torch.compile(model) if compiled else model for key, model in laid.items()}
            calls = {key: phases(model, x) for key, model in ready.items()}
            for phase in ("forward", "step"):
                mode = f"{'compiled' if compiled else 'eager'}, {str(layout)[6:].replace('_', ' ')}, {phase}"
                chosen = {key: each[phase] for key, each in calls.items()}
                yield from measured(name, mode, chosen, rounds=options.rounds, sample=options.sample)


def layer_rows(name: str, cnn: nn.Module, options: argparse.Namespace) -> Iterator[Row]:
    """Each distinct convolution of a network beside its attention, exact and soft, in each engine that can take it."""
    for conv, x in distinct_layers(cnn, options):
        calls: dict[str, Call] = {"conv": phases(conv, x)["forward"]}
        for alpha in (None, SOFT_ALPHA):
            regime = "exact" if alpha is None else "soft"
            layer = attention_from_conv(copy.deepcopy(conv), alpha=alpha)  # type: ignore[call-overload]
            calls[f"{regime} auto"] = phases(layer, x)["forward"]
            for engine in ENGINES.values():
                size = Size(*x.shape[2:])
                if engine.refusal(layer) is None and engine.cost(layer, size, batch=len(x)).bytes <= LARGEST:
                    other = copy.deepcopy(layer)
                    other.engine = engine.name
                    calls[f"{regime} {engine.name}"] = phases(other, x)["forward"]
        what = f"{name}: {geometry(conv)}, {tuple(x.shape[2:])}"
        yield from measured(what, "eager, forward", calls, rounds=options.rounds, sample=options.sample)


def distinct_layers(cnn: nn.Module, options: argparse.Namespace) -> list[tuple[Convolution, Tensor]]:
    """The convolutions of a network that differ in geometry or input, each with its input on a random image."""
    found: dict[str, tuple[Convolution, Tensor]] = {}

    def note(conv: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        if isinstance(conv, Convolution):
            found.setdefault(f"{geometry(conv)} {tuple(inputs[0].shape)}", (conv, inputs[0]))

    hooks = [each.register_forward_hook(note) for each in cnn.modules() if isinstance(each, Convolution)]
    with torch.no_grad():
        cnn(torch.randn(options.batch, 3, options.side, options.side, device=options.device, dtype=options.dtype))
    for hook in hooks:
        hook.remove()
    return list(found.values())


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| what | mode | candidate | ms | ratio | page faults | load |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.what} | {row.mode} | {row.candidate} | {row.milliseconds:.3g} | {row.ratio:.2f} | {row.faults} "
        f"| {row.load:.1f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def heading(options: argparse.Namespace) -> str:
    """Describes machine and settings."""
    held = ", ".join(f"{name}={os.environ[name]}" for name in ALLOCATOR if name in os.environ)
    return (
        f"## {date.today().isoformat()}, {options.device}, {str(options.dtype).removeprefix('torch.')}\n\n"
        f"{describe_machine(options.device)}; batch {options.batch}, {options.side}x{options.side}, medians of "
        f"{options.rounds} rounds; allocator: {held or 'as it is'}.\n\n"
    )


@contextmanager
def chosen_threads(count: int | None) -> Iterator[None]:
    """Sets torch's number of threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def networks(names: str) -> dict[str, nn.Module]:
    """The networks of torchvision with random weights.

    Raises:
        SystemExit: torchvision is not installed.
    """
    try:
        from torchvision import models
    except ImportError as error:
        raise SystemExit(f"the networks are torchvision's: pip install torchvision ({error})") from error
    return {name: models.get_model(name, weights=None).eval() for name in names.split(",")}


def run(cnns: dict[str, nn.Module], options: argparse.Namespace) -> list[Row]:
    """Measures, and prints a line for every row as it is known."""
    rows = []
    measure = layer_rows if options.layers else network_rows
    with chosen_threads(options.threads):
        for name, cnn in cnns.items():
            for row in measure(name, cnn.to(device=options.device, dtype=options.dtype), options):
                print(json.dumps(asdict(row)), flush=True)
                rows.append(row)
    if options.markdown is not None:
        with options.markdown.open("a") as file:
            file.write(f"\n{heading(options)}{table(rows)}")
    return rows


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--networks", default=",".join(NETWORKS), help="names of torchvision's networks")
    found.add_argument("--layers", action="store_true", help="distinct layers in each engine, in place of networks")
    found.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    found.add_argument("--device", default="cpu")
    found.add_argument("--dtype", default=torch.float32, type=lambda name: getattr(torch, name))
    found.add_argument("--threads", type=int, help="torch's threads (default: its own choice)")
    for name, usual in (("rounds", 15), ("side", 224), ("batch", 4)):
        found.add_argument(f"--{name}", type=int, default=usual)
    found.add_argument("--sample", type=float, default=0.0, help="seconds of a sample (default: one call)")
    found.add_argument("--markdown", type=Path, metavar="FILE", help="append the table to this file")
    return found


if __name__ == "__main__":
    chosen = parser().parse_args()
    run(networks(chosen.networks), chosen)
