"""A hunt for wrong operations: random small networks, each compared by ``same`` in several runtimes.

Network i is a function of the seed and i. It begins with layer i of the campaign (``proofs/campaign``), a convolution
of any geometry, and goes on with operations that fit. Torch runs it eagerly, in its own loops and with channels last;
ONNX Runtime runs its exported file; some are compiled. Where a difference is no rounding, layers are taken off the end
as long as it stays one, so that the last of those that are left is the one to look at. Calls that
docs/wrong-convolutions.md has are not drawn. In ONNX Runtime operations are compared one by one, also where outputs
agree.

    python benchmarks/hunt.py build/hunt.jsonl --minutes 60 --shard 0/2
    python benchmarks/hunt.py build/hunt.jsonl --graph 17       # one network, in words and as it was judged
    python benchmarks/hunt.py build/hunt.jsonl --table
"""

from __future__ import annotations

import argparse
import copy
import itertools
import os
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from calling import Call
from children import Record, read, records_of, write
from pairs import own_loops
from torch import Tensor, nn

from conv2attn.convert.sameness.same import Reference
from conv2attn.convert.sameness.verdict import INNER, Sameness
from conv2attn.proofs.campaign.layers import choose_spec, draw_layer, may_be_wrong, smallest_input
from conv2attn.proofs.campaign.values import drawn_convolution, images

BLOCK = 25  # networks a child
FIRST, LIMIT = 120.0, 60.0  # seconds of the processor until a child's first network, and for each after that
LONGEST = 6  # operations after the first
MOST = 20_000  # numbers of an operation's result
COMPILED = 20  # every so many networks are compiled
Chance = Random


class Beside(nn.Module):
    """An operation whose result is added to, multiplied by, or put beside its input.

    Args:
        inner: The operation.
        way: "add", "mul", "sub" or "cat".
    """

    def __init__(self, inner: nn.Module, way: str) -> None:
        super().__init__()
        self.inner, self.way = inner, way

    def forward(self, x: Tensor) -> Tensor:
        """The result."""
        y = self.inner(x)
        if self.way == "cat":
            return torch.cat([y, x], 1)
        return {"add": torch.add, "mul": torch.mul, "sub": torch.sub}[self.way](x, y)

    def extra_repr(self) -> str:
        """How the two are joined."""
        return self.way


Draw = Callable[[Chance, torch.Size], nn.Module | None]


def _convolution(chance: Chance, shape: torch.Size) -> nn.Module | None:
    """A convolution of any geometry that its input fits."""
    axes, c = len(shape) - 2, shape[1]
    spec = choose_spec(chance, max_kernel=3, axes=axes, transposed=chance.random() < 0.2)
    groups = chance.choice((1, 1, c))
    spec = replace(spec, in_channels=c, out_channels=groups * chance.randint(1, 4), groups=groups)
    layer = replace(draw_layer(chance.getrandbits(30), 0, dtypes=("float32",)), spec=spec, size=shape[2:])
    fits = all(n >= least for n, least in zip(shape[2:], smallest_input(spec), strict=True))
    if not fits or may_be_wrong(spec, layer.size, "float32"):
        return None
    return drawn_convolution(replace(layer, size=type(smallest_input(spec))(*shape[2:])), torch.device("cpu"))


def _normalisation(chance: Chance, shape: torch.Size) -> nn.Module | None:
    axes, c, eps = len(shape) - 2, shape[1], chance.choice((1e-5, 1e-3, 1e-6))
    kind = chance.choice(("batch", "group", "instance", "layer"))
    if kind == "batch":
        batch = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[axes - 1](c, eps=eps)
        batch.running_mean.normal_()
        batch.running_var.uniform_(0.2, 2)
        return batch
    if kind == "layer":
        return nn.LayerNorm(list(shape[-chance.randint(1, axes) :]), eps=eps) if shape[-1] > 1 else None
    if shape[2:].numel() < 2:
        return None
    if kind == "group":
        return nn.GroupNorm(chance.choice([n for n in range(1, c + 1) if c % n == 0]), c, eps=eps)
    return (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[axes - 1](c, eps=eps, affine=chance.random() < 0.5)


def _activation(chance: Chance, shape: torch.Size) -> nn.Module | None:
    kinds: Sequence[Callable[[], nn.Module]] = (
        *(nn.ReLU, nn.ReLU6, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh, nn.Mish, nn.Softplus, nn.SELU),
        *(nn.Softsign, nn.LogSigmoid, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink, nn.GELU, nn.CELU),
        lambda: nn.GELU("tanh"),
        lambda: nn.ELU(chance.uniform(0.2, 2)),
        lambda: nn.LeakyReLU(chance.uniform(-0.5, 0.5)),
        lambda: nn.PReLU(shape[1]),
        lambda: nn.Hardtanh(chance.uniform(-2, -0.1), chance.uniform(0.1, 2)),
    )
    return chance.choice(kinds)()


def _pool(chance: Chance, shape: torch.Size) -> nn.Module | None:
    """A pool with windows that may end in the padding or beyond the image."""
    axes = len(shape) - 2
    kernel = [chance.randint(1, min(3, n)) for n in shape[2:]]
    stride, padding = [chance.randint(1, 3) for _ in kernel], [chance.randint(0, k // 2) for k in kernel]
    ceil = chance.random() < 0.5
    if chance.random() < 0.5:
        average: Any = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[axes - 1]
        return average(kernel, stride, padding, ceil, chance.random() < 0.5)  # type: ignore[no-any-return]
    largest: Any = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[axes - 1]
    return largest(kernel, stride, padding, ceil_mode=ceil)  # type: ignore[no-any-return]


def _adaptive(chance: Chance, shape: torch.Size) -> nn.Module | None:
    axes = len(shape) - 2
    sizes = [chance.randint(1, n + 2) for n in shape[2:]]
    average: Any = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[axes - 1]
    return average(sizes)  # type: ignore[no-any-return]


def _interpolation(chance: Chance, shape: torch.Size) -> nn.Module | None:
    axes = len(shape) - 2
    modes = {1: ("linear",), 2: ("bilinear", "bicubic"), 3: ("trilinear",)}[axes] + ("nearest", "nearest-exact")
    mode = chance.choice(modes)
    given: dict[str, Any] = {"mode": mode}
    if "nearest" not in mode:
        given["align_corners"] = chance.random() < 0.5
    if chance.random() < 0.5:
        given["size"] = [chance.randint(1, 2 * n + 1) for n in shape[2:]]
    else:
        given["scale_factor"] = [chance.choice((0.5, 1.5, 2.0, chance.uniform(0.6, 2.4))) for _ in range(axes)]
        if any(int(n * factor) < 1 for n, factor in zip(shape[2:], given["scale_factor"], strict=True)):
            return None
    return Call(lambda x: F.interpolate(x, **given), f"F.interpolate(x, {given})")


def _padding(chance: Chance, shape: torch.Size) -> nn.Module | None:
    mode = chance.choice(("constant", "reflect", "replicate", "circular"))
    least = 0 if mode != "constant" else -1
    pads = [chance.randint(least, 2) for _ in range(2 * (len(shape) - 2))]
    return Call(lambda x: F.pad(x, pads, mode), f"F.pad(x, {pads}, {mode!r})")


def _one_of(chance: Chance, calls: dict[str, Callable[[Tensor], Tensor]]) -> nn.Module:
    text = chance.choice(list(calls))
    return Call(calls[text], text)


def _arithmetic(chance: Chance, shape: torch.Size) -> nn.Module | None:
    s = chance.uniform(0.2, 3)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        f"x * {s}": lambda x: x * s,
        f"{s} - x": lambda x: s - x,
        f"x / {s}": lambda x: x / s,
        "x * x": lambda x: x * x,
        "x.abs().sqrt()": lambda x: x.abs().sqrt(),
        "torch.exp(-x.abs())": lambda x: torch.exp(-x.abs()),
        "(1 + x.abs()).log()": lambda x: (1 + x.abs()).log(),
        "torch.log1p(x.abs())": lambda x: torch.log1p(x.abs()),
        "torch.rsqrt(x.abs() + 0.5)": lambda x: torch.rsqrt(x.abs() + 0.5),
        "torch.sin(x)": torch.sin,
        "torch.erf(x)": torch.erf,
        "torch.atan(x)": torch.atan,
        "x.abs() ** 1.5": lambda x: x.abs() ** 1.5,
        f"x.clamp(-{s}, {s / 2})": lambda x: x.clamp(-s, s / 2),
        f"torch.where(x > 0, x, {s} * x)": lambda x: torch.where(x > 0, x, s * x),
        "torch.maximum(x, x.flip(-1))": lambda x: torch.maximum(x, x.flip(-1)),
    }
    return _one_of(chance, calls)


def _along(chance: Chance, shape: torch.Size) -> nn.Module | None:
    """A function of the numbers along an axis."""
    axis = chance.randint(1, len(shape) - 1)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        f"x.softmax({axis})": lambda x: x.softmax(axis),
        f"x.log_softmax({axis})": lambda x: x.log_softmax(axis),
        f"x - x.mean({axis}, keepdim=True)": lambda x: x - x.mean(axis, keepdim=True),
        f"x.cumsum({axis})": lambda x: x.cumsum(axis),
        f"x + x.amax({axis}, keepdim=True)": lambda x: x + x.amax(axis, keepdim=True),
        f"F.normalize(x, dim={axis})": lambda x: F.normalize(x, dim=axis),
        f"x.logsumexp({axis}, keepdim=True) - x": lambda x: x.logsumexp(axis, keepdim=True) - x,
        f"x / (1 + x.var({axis}, keepdim=True, correction=0))": lambda x: (
            x / (1 + x.var(axis, keepdim=True, correction=0))
        ),
        f"x / x.norm(dim={axis}, keepdim=True).clamp_min(0.1)": lambda x: (
            x / x.norm(dim=axis, keepdim=True).clamp_min(0.1)
        ),
    }
    return _one_of(chance, calls)


def _moving(chance: Chance, shape: torch.Size) -> nn.Module | None:
    axis, step = chance.randint(1, len(shape) - 1), chance.randint(1, 2)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        f"x.flip({axis})": lambda x: x.flip(axis),
        f"x.roll({step}, {axis})": lambda x: x.roll(step, axis),
        f"x.narrow({axis}, 0, {max(1, shape[axis] - step)})": lambda x: x.narrow(axis, 0, max(1, shape[axis] - step)),
        f"torch.cat(x.chunk(2, {axis})[::-1], {axis})": lambda x: torch.cat(x.chunk(2, axis)[::-1], axis),
        f"x.transpose({axis}, -1).contiguous()": lambda x: x.transpose(axis, -1).contiguous(),
        f"x.repeat_interleave(2, {axis})": lambda x: x.repeat_interleave(2, axis),
        f"torch.stack([x, -x], {axis}).flatten({axis - 1}, {axis})": lambda x: (
            torch.stack([x, -x], axis).flatten(axis - 1, axis) if axis > 1 else x
        ),
    }
    if len(shape) == 4 and shape[1] % 4 == 0:
        calls["F.pixel_shuffle(x, 2)"] = lambda x: F.pixel_shuffle(x, 2)
    if len(shape) == 4 and shape[2] % 2 == shape[3] % 2 == 0:
        calls["F.pixel_unshuffle(x, 2)"] = lambda x: F.pixel_unshuffle(x, 2)
    return _one_of(chance, calls)


def _product(chance: Chance, shape: torch.Size) -> nn.Module | None:
    """A linear layer of the last axis, or attention between pixels."""
    if chance.random() < 0.6:
        return nn.Linear(shape[-1], chance.randint(1, 6), bias=chance.random() < 0.7)
    is_causal = chance.random() < 0.3
    return Call(
        lambda x: F.scaled_dot_product_attention(*(x.flatten(2).mT,) * 3, is_causal=is_causal).mT.reshape(x.shape),
        f"pixels attend to pixels, is_causal={is_causal}",
    )


DRAWS: Sequence[Draw] = (
    *(_convolution, _convolution, _normalisation, _activation, _activation, _pool, _adaptive),
    *(_interpolation, _padding, _arithmetic, _along, _moving, _product),
)


@torch.no_grad()
def network(seed: int, index: int) -> tuple[nn.Sequential, Tensor]:
    """Network ``index`` of a seed, and its input."""
    layer = draw_layer(seed, index, dtypes=("float32",), max_size=16)
    chance = Random(f"graph {index} of seed {seed}")
    torch.manual_seed(chance.getrandbits(63))
    x = images(layer, torch.device("cpu")).contiguous()
    made = nn.Sequential(drawn_convolution(layer, torch.device("cpu"))).eval()
    y = made(x)
    for _ in range(chance.randint(1, LONGEST)):
        one = chance.choice(DRAWS)(chance, y.shape)
        if one is not None and chance.random() < 0.25:
            one = Beside(one, chance.choice(("add", "mul", "sub", "cat")))
        try:
            after = y if one is None else one.eval()(y)
        except (RuntimeError, ValueError, NotImplementedError):  # torch says that it does not fit
            continue
        if one is None or not 0 < after.numel() <= MOST or not bool(after.isfinite().all()) or after.ndim != y.ndim:
            continue
        made.append(one)
        y = after
    return made.requires_grad_(False), x


def _channels_last(model: nn.Module, x: Tensor, folder: Path) -> Any:
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    if layout is None:
        return None
    other = copy.deepcopy(model).to(memory_format=layout)  # type: ignore[call-overload]
    return lambda x: other(x.contiguous(memory_format=layout))


def _onnx(model: nn.Module, x: Tensor, folder: Path) -> Any:
    path = folder / f"{len(list(folder.iterdir()))}.onnx"
    torch.onnx.export(model, (x,), str(path), dynamo=True, verbose=False)
    return path


def _compiled(model: nn.Module, x: Tensor, folder: Path) -> Any:
    torch._dynamo.reset()
    return torch.compile(model)


RUNTIMES: dict[str, Callable[[nn.Module, Tensor, Path], Any]] = {
    "torch's own loops": lambda model, x, folder: own_loops(model),
    "channels last": _channels_last,
    "ONNX Runtime": _onnx,
    "compiled": _compiled,
}


@torch.no_grad()
def hunted(seed: int, index: int) -> Record:
    """The verdicts on a network in every runtime."""
    model, x = network(seed, index)
    record: Record = {"index": index, "seed": seed, "layers": len(model), "runtimes": {}}
    try:
        reference = Reference(model, x)
        _ = reference.graph
    except Exception as error:  # torch cannot export it
        return {**record, "error": f"{type(error).__name__}: {error}"[:200]}
    with tempfile.TemporaryDirectory() as folder:
        for name, runtime in RUNTIMES.items():
            if name == "compiled" and index % COMPILED:
                continue
            record["runtimes"][name] = _in_runtime(reference, model, x, runtime, Path(folder))
    return record


def _in_runtime(reference: Reference, model: nn.Sequential, x: Tensor, runtime: Any, folder: Path) -> Record:
    try:
        other = runtime(model, x, folder)
        if other is None:
            return {"skipped": True}
        found = reference.compare(other)
    except Exception as error:  # a runtime that refuses it
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    record = {"verdict": found.verdict, "ratio": min(found.ratio, 1e300), "reason": found.reason[:120]}
    record |= {"inner": None if found.inner is None else min(found.inner, 1e300), "notes": list(found.notes)}
    if found.verdict == "not rounding":
        record |= _reduced(model, x, runtime, folder)
        record["beyond"] = found.worst is not None and found.worst.is_beyond
    return record


def _reduced(model: nn.Sequential, x: Tensor, runtime: Any, folder: Path) -> Record:
    """The shortest beginning of a network whose difference is no rounding: its last layer, and that alone."""
    for count in range(1, len(model) + 1):
        found = _judged(model[:count], x, runtime, folder)
        if found is not None and found.verdict == "not rounding":
            alone = _judged(model[count - 1 : count], model[: count - 1](x), runtime, folder)
            ratio = None if alone is None else min(alone.ratio, 1e300)
            return {"prefix": count, "last": str(model[count - 1])[:200], "alone": ratio}
    return {}


def _judged(model: nn.Sequential, x: Tensor, runtime: Any, folder: Path) -> Sameness | None:
    try:
        return Reference(model, x, is_bounded=False).compare(runtime(model, x, folder))
    except Exception:  # a runtime that refuses it
        return None


def _block(seed: int, indices: Sequence[int]) -> Iterator[Record]:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for index in indices:
        yield hunted(seed, index)


def run(out: Path, minutes: float, seed: int, shard: tuple[int, int]) -> None:
    """Hunts until the time is over, from where the last run of this shard ended, and adds a line for each network."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {one["index"] for one in read(out) if one["seed"] == seed}
    indices = (index for index in itertools.count(*shard) if index not in done)
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        block = [next(indices) for _ in range(BLOCK)]
        while block:
            count = 0
            for record in records_of(_block, seed, block, first=FIRST, limit=LIMIT):
                write(out, record)
                count += 1
                if time.monotonic() > end:
                    return
            if block := block[count:]:
                write(out, {"index": block[0], "seed": seed, "runtimes": {}, "error": "died, or took too long"})
                block = block[1:]


def table(out: Path) -> None:
    """Prints how many networks were compared, and every difference that is no rounding."""
    records = read(out)
    print(f"{len(records)} networks; errors: {Counter(one['error'][:80] for one in records if 'error' in one)}")
    for name in RUNTIMES:
        own = [one["runtimes"][name] for one in records if name in one["runtimes"]]
        verdicts = Counter(one.get("verdict", one.get("error", "skipped")[:60]) for one in own)
        ratios = [one["ratio"] for one in own if one.get("verdict") == "rounding"]
        print(f"{name}: largest rounding {max(ratios, default=0):.3g}; {dict(verdicts.most_common(12))}")
        inner = [one["inner"] for one in own if one.get("inner") is not None]
        print(f"    operations compared in {len(inner)}, the largest that agrees {_largest(inner):.3g}")
    for one in records:
        for name, found in one["runtimes"].items():
            if found.get("verdict") == "not rounding" or found.get("notes"):
                print(one["index"], name, found)


def _largest(inner: Sequence[float]) -> float:
    return max((one for one in inner if one <= INNER), default=0.0)


def main() -> None:
    """Hunts, tells of one network, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="file of lines of JSON, which is added to")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no new network after this time")
    parser.add_argument("--seed", type=int, default=0, help="of the networks")
    parser.add_argument("--shard", default="0/1", help="every n-th network from the i-th on: I/N")
    parser.add_argument("--graph", type=int, help="this network only")
    parser.add_argument("--table", action="store_true", help="print what the lines say")
    options = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if options.table:
        table(options.out)
    elif options.graph is not None:
        model, x = network(options.seed, options.graph)
        print(list(x.shape), model, hunted(options.seed, options.graph), sep="\n")
    else:
        number, count = map(int, options.shard.split("/"))
        run(options.out, options.minutes, options.seed, (number, count))


if __name__ == "__main__":
    main()
