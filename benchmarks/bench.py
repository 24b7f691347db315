"""Times attention beside the convolution: whole networks, and their layers in each engine.

    python benchmarks/bench.py                                    # networks, eager and compiled, both memory formats
    python benchmarks/bench.py --layers --networks resnet50       # the distinct layers of ResNet-50, engine by engine
    python benchmarks/bench.py --grafts --networks resnet18       # spare heads beside a non-local block by hand
    python benchmarks/bench.py --markdown benchmarks/RESULTS.md   # appends the table to this file

The networks are torchvision's, with random weights. Settings and rows are printed as JSON, one object a line.

Every ratio is to the CNN, or to the layer's convolution, measured in the same process and in turn: each round begins
with another candidate, a sample is the median that ``torch.utils.benchmark`` finds within ``--sample`` seconds, and the
median of the ratios over the rounds counts. A copy of the CNN is timed as control; its distance from 1 is chance.
Beside each row stand the machine's load and the minor page faults of a call: glibc returns large blocks to the system
and requests them again, page by page, which can take longer than a convolution. These variables prevent that:

    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=268435456 python benchmarks/bench.py
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from conv2attn import graft
from conv2attn.convert import SelfAttention, attention_from_conv, convert_model
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.engines.base import Engine
from conv2attn.convert.spec import Convolution, ConvSpec
from conv2attn.convert.subclasses.readers import geometry
from conv2attn.learn.grafting import with_block
from conv2attn.proofs.campaign.arithmetic import describe_machine

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2")
SOFT_ALPHA = 2.0
LARGEST, MOST = 2**30, 2e10  # bytes and FLOPs that an engine may take for a layer, by its own estimate

Call = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """Times of one candidate beside those of the first.

    Attributes:
        what: The network or the layer.
        mode: Eager or compiled, memory format, and phase.
        candidate: Its name.
        milliseconds: Median time of a call.
        ratio: Median over the rounds of its time, divided by the first candidate's.
        faults: Minor page faults of a call, the median over the rounds.
        load: The machine's load over the last minute.
    """

    what: str
    mode: str
    candidate: str
    milliseconds: float
    ratio: float
    faults: int
    load: float


class Counted:
    """A call that counts how often it is made: ``torch.utils.benchmark`` also makes some before it measures."""

    def __init__(self, call: Call) -> None:
        self._call, self.count = call, 0

    def __call__(self) -> None:
        """Makes the call."""
        self.count += 1
        self._call()


def measured(what: str, mode: str, candidates: Mapping[str, Call], *, rounds: int, sample: float) -> list[Row]:
    """Times the candidates in turn, and compares each with the first."""
    threads, names = torch.get_num_threads(), list(candidates)
    times: dict[str, list[float]] = {name: [] for name in names}
    faults: dict[str, list[float]] = {name: [] for name in names}
    for call in candidates.values():
        call()  # compiles, and fills caches
    for turn in range(rounds):
        for number in range(len(names)):
            name = names[(number + turn) % len(names)]
            call = Counted(candidates[name])
            timer, before = Timer("call()", globals={"call": call}, num_threads=threads), page_faults()
            times[name].append(timer.blocked_autorange(min_run_time=sample).median)
            faults[name].append((page_faults() - before) / call.count)
    first = times[names[0]]
    return [
        Row(
            what,
            mode,
            name,
            1000 * statistics.median(times[name]),
            statistics.median(own / other for own, other in zip(times[name], first, strict=True)),
            round(statistics.median(faults[name])),
            os.getloadavg()[0],
        )
        for name in names
    ]


def page_faults() -> int:
    """Minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def forward(model: nn.Module, x: Tensor) -> Call:
    """A call without gradients."""

    def call() -> object:
        with torch.no_grad():
            return model(x)

    return call


def step(model: nn.Module, x: Tensor) -> Call:
    """A call, and the gradients of all parameters."""

    def call() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    return call


PHASES = (forward, step)


def network_rows(name: str, cnn: nn.Module, options: argparse.Namespace) -> Iterator[Row]:
    """A network beside a copy of it and its conversions, or its grafts, in every mode."""
    models = {"CNN": cnn, "control": copy.deepcopy(cnn), **(grafts if options.grafts else conversions)(cnn, options)}
    for layout in (torch.contiguous_format, torch.channels_last):
        x = images(options).to(memory_format=layout)
        laid = {key: model.to(memory_format=layout) for key, model in models.items()}  # type: ignore[call-overload]
        for compiled in (False, True) if options.compile else (False,):
            torch._dynamo.reset()
            ready: dict[str, Any] = {key: torch.compile(model) if compiled else model for key, model in laid.items()}
            for phase in PHASES:
                how = "compiled" if compiled else "eager"
                mode = f"{how}, {str(layout)[6:].replace('_', ' ')}, {phase.__name__}"
                calls = {key: phase(model, x) for key, model in ready.items()}
                yield from measured(name, mode, calls, rounds=options.rounds, sample=options.sample)


def conversions(cnn: nn.Module, _: argparse.Namespace) -> dict[str, nn.Module]:
    """The network as attention, exact and soft."""
    soft = convert_model(cnn, alpha=SOFT_ALPHA).model
    return {"exact": convert_model(cnn).model, f"soft, alpha {SOFT_ALPHA:g}": soft}


def grafts(cnn: nn.Module, options: argparse.Namespace) -> dict[str, nn.Module]:
    """The network with a non-local block by hand, and with spare heads in front of the same layer and beside it."""
    front, report = graft(cnn, example=images(options))
    names = [layer.name for layer in report.layers]
    block = with_block(copy.deepcopy(cnn), layers=report.layers, zero=True)
    return {"block": block, "heads in front": front, "heads beside": graft(cnn, where=names, beside=True).model}


def layer_rows(name: str, cnn: nn.Module, options: argparse.Namespace) -> Iterator[Row]:
    """Each distinct convolution of a network beside its attention.

    Forward in each engine that can compute the layer, a step in the one that the layer chooses, also with trained
    positions.
    """
    for conv, x in distinct_layers(cnn, options):
        size = Size(*x.shape[2:])
        what = f"{name}: {geometry(conv)}, {size}"
        called, trained = {"conv": forward(conv, x)}, {"conv": step(conv, x)}
        for regime, alpha in (("exact", None), ("soft", SOFT_ALPHA)):
            layer = attention_from_conv(copy.deepcopy(conv), alpha=alpha)
            called[f"{regime} auto"] = forward(layer, x)
            trained[f"{regime} auto"] = step(layer, x)
            for engine in ENGINES.values():
                if is_affordable(engine, layer, size, len(x)):
                    other = copy.deepcopy(layer)
                    other.engine = engine.name
                    called[f"{regime} {engine.name}"] = forward(other, x)
        positions = attention_from_conv(copy.deepcopy(conv), alpha=SOFT_ALPHA)
        positions.train_positions()
        trained["trained positions"] = step(positions, x)
        for phase, calls in (("forward", called), ("step", trained)):
            yield from measured(what, f"eager, {phase}", calls, rounds=options.rounds, sample=options.sample)


def is_affordable(engine: Engine, layer: SelfAttention, size: Size, batch: int) -> bool:
    """Whether an engine can compute the layer within the limits."""
    values = layer.values()
    if engine.refusal(values) is not None:
        return False
    cost = engine.cost(values, size, batch=batch)
    return cost.bytes <= LARGEST and cost.flops <= MOST


def distinct_layers(cnn: nn.Module, options: argparse.Namespace) -> list[tuple[Convolution, Tensor]]:
    """The convolutions of a network that differ in geometry or input, each with its input on random images."""
    found: dict[tuple[ConvSpec, torch.Size], tuple[Convolution, Tensor]] = {}

    def note(conv: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        if isinstance(conv, Convolution):
            found.setdefault((geometry(conv), inputs[0].shape), (conv, inputs[0]))

    hooks = [each.register_forward_hook(note) for each in cnn.modules() if isinstance(each, Convolution)]
    with torch.no_grad():
        cnn(images(options))
    for hook in hooks:
        hook.remove()
    return list(found.values())


def images(options: argparse.Namespace) -> Tensor:
    """Random images, [batch, 3, side, side]."""
    return torch.randn(options.batch, 3, options.side, options.side, device=options.device, dtype=options.dtype)


def networks(names: Sequence[str]) -> tuple[str, dict[str, nn.Module]]:
    """The version of torchvision, and its networks of these names, with random weights.

    Raises:
        SystemExit: It is not installed, or has no network of a name.
    """
    try:
        import torchvision
    except ImportError as error:
        raise SystemExit(f"the networks are torchvision's (pip install torchvision): {error}") from error
    unknown = [name for name in names if name not in torchvision.models.list_models()]
    if unknown:
        raise SystemExit(f"torchvision {torchvision.__version__} has no network {', '.join(unknown)}")
    return torchvision.__version__, {name: torchvision.models.get_model(name, weights=None) for name in names}


def describe(torchvision: str, options: argparse.Namespace) -> dict[str, object]:
    """Machine, threads, environment of the allocator, and settings."""
    held = {name: value for name, value in os.environ.items() if name.startswith(("MALLOC_", "GLIBC_", "LD_PRELOAD"))}
    return {
        "torchvision": torchvision,
        "machine": describe_machine(options.device),
        "threads": torch.get_num_threads(),
        "allocator": held,
        "device": options.device,
        "dtype": str(options.dtype).removeprefix("torch."),
        "batch": options.batch,
        "side": options.side,
        "rounds": options.rounds,
        "sample": options.sample,
    }


def markdown(about: Mapping[str, object], rows: Sequence[Row]) -> str:
    """Settings and rows as a section."""
    held = ", ".join(f"{name}={value}" for name, value in about["allocator"].items())  # type: ignore[attr-defined]
    lines = [
        f"## {date.today().isoformat()}, {about['device']}, {about['dtype']}",
        "",
        f"{about['machine']}; torchvision {about['torchvision']}; batch {about['batch']}, "
        f"{about['side']}x{about['side']}, medians of {about['rounds']} rounds; "
        f"allocator: {held or 'no variable set'}.",
        "",
        "| what | mode | candidate | ms | ratio | page faults | load |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *(
            f"| {row.what} | {row.mode} | {row.candidate} | {row.milliseconds:.3g} | {row.ratio:.2f} | {row.faults} "
            f"| {row.load:.1f} |"
            for row in rows
        ),
    ]
    return "\n".join(lines) + "\n"


@contextmanager
def chosen_threads(count: int | None) -> Iterator[None]:
    """Sets torch's number of threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run(torchvision: str, cnns: Mapping[str, nn.Module], options: argparse.Namespace) -> list[Row]:
    """Measures, and prints settings first, and each row when it is known."""
    rows, of_network = [], layer_rows if options.layers else network_rows
    with chosen_threads(options.threads):
        about = describe(torchvision, options)
        print(json.dumps(about), flush=True)
        for name, cnn in cnns.items():
            for row in of_network(name, cnn.to(device=options.device, dtype=options.dtype).eval(), options):
                print(json.dumps(asdict(row)), flush=True)
                rows.append(row)
    if options.markdown is not None:
        with options.markdown.open("a") as file:
            file.write(f"\n{markdown(about, rows)}")
    return rows


def parser() -> argparse.ArgumentParser:
    """The options."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--networks", default=",".join(NETWORKS), help="names of torchvision's networks")
    found.add_argument("--layers", action="store_true", help="distinct layers in each engine, in place of networks")
    found.add_argument("--grafts", action="store_true", help="grafts and a block by hand, in place of conversions")
    found.add_argument("--no-compile", dest="compile", action="store_false", help="leave torch.compile out")
    found.add_argument("--device", default="cpu")
    found.add_argument("--dtype", default=torch.float32, type=lambda name: getattr(torch, name))
    found.add_argument("--threads", type=int, help="torch's threads (default: torch's own choice)")
    for name, usual in (("rounds", 15), ("side", 224), ("batch", 4)):
        found.add_argument(f"--{name}", type=int, default=usual)
    found.add_argument("--sample", type=float, default=0.005, help="seconds of a sample, which is at least one call")
    found.add_argument("--markdown", type=Path, metavar="FILE", help="append the table to this file")
    return found


if __name__ == "__main__":
    chosen = parser().parse_args()
    version, chosen_networks = networks(chosen.networks.split(","))
    run(version, chosen_networks, chosen)
