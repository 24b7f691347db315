"""Calibrates ``same`` on other people's networks: honest changes, which its threshold is chosen by, and planted faults.

Run by hand, with timm, torchvision and transformers installed; weights are random. A line of JSON is written for every
pair as soon as it is known, and a run goes on where the last one ended; networks are drawn by a seed:

    python benchmarks/pairs.py build/pairs.jsonl --seconds 3600
    python benchmarks/pairs.py build/pairs.jsonl --table

Each network is in a child process, with truth and noise computed once; where it dies, the pair that it was at is noted,
and another child goes on with the next. The threshold is chosen on one half of the families, drawn by the hashes of
their names, and judged on the other half. Beside it stand ``allclose(1e-3, 1e-5)``, and the rule of PyTorch's own
comparison of compiled networks: a root mean square error against float64 of at most twice the other side's, plus 1e-5.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import importlib
import json
import math
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.convert import convert_model
from conv2attn.convert.inputs import named_tensors
from conv2attn.convert.sameness.truth import Graph, Lifted

comparison = importlib.import_module("conv2attn.convert.sameness.same")  # the module, not its function

LIBRARIES = ("timm", "timm", "timm", "torchvision", "transformers")  # as often as they are drawn
MOST = 30_000_000  # parameters
LIMIT = 1500  # seconds for the pairs of one network that a child has begun
_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
_TEXT = (
    "bert",
    "roberta",
    "electra",
    "albert",
    "llama",
    "mistral",
    "qwen2",
    "gpt_neox",
    "opt",
    "gpt2",
    "distilbert",
    "deberta-v2",
)
_VISION = (
    "vit",
    "deit",
    "beit",
    "convnext",
    "convnextv2",
    "resnet",
    "regnet",
    "swin",
    "segformer",
    "mobilevit",
    "poolformer",
    "levit",
    "focalnet",
    "dinov2",
)
_TORCHVISION = (
    "_b5",
    "_b6",
    "_b7",
    "vit_",
    "vgg",
    "rcnn",
    "retina",
    "fcos",
    "ssd",
    "raft",
    "s3d",
    "r3d",
    "mc3",
    "r2plus",
    "mvit",
    "swin3d",
    "quantized",
)
Record = dict[str, Any]
_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


def drawn(index: int, seed: int) -> tuple[str, str]:
    """The library and the name of a network: a function of the seed and its index."""
    chance = random.Random(f"{seed}:{index}")
    library = chance.choice(LIBRARIES)
    return library, chance.choice(names(library))


def names(library: str) -> list[str]:
    """Names of the networks of a library."""
    if library == "timm":
        return list(importlib.import_module("timm").list_models())
    if library == "torchvision":
        every = importlib.import_module("torchvision.models").list_models()
        return [name for name in every if not any(part in name for part in _TORCHVISION)]
    return [*_TEXT, *_VISION]


def family(library: str, name: str) -> str:
    """The module that defines a network."""
    if library == "timm":
        entry = importlib.import_module("timm.models").model_entrypoint(name)
        return str(entry.__module__.rpartition(".")[2])
    if library == "torchvision":
        home = importlib.import_module("torchvision.models").get_model_builder(name).__module__
        return str(home.rpartition(".")[2])
    return name


def half(name: str) -> int:
    """The half that a family belongs to: 0 chooses the threshold, 1 judges it."""
    return hashlib.sha256(name.encode()).digest()[0] % 2


def build(library: str, name: str) -> nn.Module:
    """A network with random weights and statistics, in eval mode."""
    torch.manual_seed(0)
    if library == "timm":
        create = importlib.import_module("timm").create_model
        try:
            model = create(name, pretrained=False, img_size=64)
        except Exception:  # the network has no such option, or does not divide
            model = create(name, pretrained=False)
    elif library == "torchvision":
        model = importlib.import_module("torchvision.models").get_model(name, weights=None, **_backbone(name))
    else:
        transformers: Any = importlib.import_module("transformers")
        config = transformers.AutoConfig.for_model(
            name, **(_SMALL if name in (*_TEXT, "vit", "deit", "beit", "dinov2") else {})
        )
        model = transformers.AutoModel.from_config(config, attn_implementation="eager" if name in _VISION else None)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    with torch.no_grad():
        for parameter in model.parameters():  # no branch is switched off, and no bias is 0
            if parameter.ndim <= 1 and not parameter.is_meta and float(parameter.abs().max()) < 1e-3:
                parameter.normal_(0, 0.1)
    return model.eval().requires_grad_(False)


def _parameters(library: str, name: str) -> int:
    """Number of a network's parameters; 0 where it cannot be built without values."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in build(library, name).parameters())
    except Exception:  # other people's code
        return 0


def _backbone(name: str) -> dict[str, Any]:
    home = importlib.import_module("torchvision.models").get_model_builder(name).__module__
    return {"weights_backbone": None} if "segmentation" in home else {}


@torch.no_grad()
def inputs(library: str, name: str, model: nn.Module) -> Tensor:
    """Inputs that a network runs on: small images, or its own size; tokens."""
    generator = torch.Generator().manual_seed(1)
    if name in _TEXT and library == "transformers":
        return torch.randint(0, 1000, (2, 12), generator=generator)
    own = getattr(model, "default_cfg", {}).get("input_size", (3, 224, 224))
    channels = own[0]
    for size in ((64, 64), (96, 96), own[1:]):
        try:
            image = torch.randn(2, channels, *size, generator=generator)
            model(image)
            return image
        except Exception:  # the network takes one size
            continue
    raise ValueError("it runs on no image")


class Plain(nn.Module):
    """A network that gives its first tensors in a list."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> list[Tensor]:
        """Its first four tensors."""
        return list(named_tensors(self.model(x)).values())[:4]


# Honest ways, each from a network to another that computes the same.


def _channels_last(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
    return copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _with_threads(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
    def run(x: Tensor) -> Any:
        torch.set_num_threads(2)
        try:
            return model(x)
        finally:
            torch.set_num_threads(1)

    return run


def _own_loops(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
    def run(x: Tensor) -> Any:
        torch._C._set_mkldnn_enabled(False)
        try:
            return model(x)
        finally:
            torch._C._set_mkldnn_enabled(True)

    return run


def _one_by_one(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
    def run(x: Tensor) -> Any:
        parts = [model(one) for one in x.split(1)]
        return [torch.cat(each) for each in zip(*parts, strict=True)]

    return run


def _folded(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
    from torch.fx.experimental.optimization import fuse

    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        raise NotImplementedError("it has no batch norm")
    assert isinstance(model, Plain)
    return Plain(fuse(copy.deepcopy(model.model))).eval()


def _soft(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
    return convert_model(model, alpha=30.0, skip_unsupported=True).model.eval()


def _onnx(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
    path = Path(tempfile.mkdtemp()) / "network.onnx"
    torch.onnx.export(model, (x,), str(path), dynamo=True, verbose=False)
    return path


def _compiled(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
    return torch.compile(model)


def _instructions(kind: str) -> Callable[..., Any]:
    def way(model: nn.Module, x: Tensor, place: tuple[str, str]) -> Any:
        path = Path(tempfile.mkdtemp()) / "outputs.pt"
        environment = os.environ | {
            "ONEDNN_MAX_CPU_ISA": kind,
            "ATEN_CPU_CAPABILITY": "avx2" if kind == "AVX2" else "default",
        }
        subprocess.run(
            [sys.executable, __file__, str(path), "--outputs", *place], env=environment, check=True, timeout=LIMIT
        )
        kept = torch.load(path)
        return lambda x: [one.clone() for one in kept]

    return way


WAYS: dict[str, Callable[..., Any]] = {
    "channels last": _channels_last,
    "threads": _with_threads,
    "own loops": _own_loops,
    "one by one": _one_by_one,
    "folded": _folded,
    "soft": _soft,
    "AVX2": _instructions("AVX2"),
    "SSE4.1": _instructions("SSE41"),
    "ONNX": _onnx,
    "bfloat16": _own_loops,  # of both sides
    "compiled": _compiled,
}
_EVERY = {"compiled": 12, "SSE4.1": 6, "AVX2": 6}  # every so many networks only


# Faults, each planted in a copy.


def _first(model: nn.Module, kind: Any, *, at: float = 0.5) -> Any:
    found = [module for module in model.modules() if isinstance(module, kind)]
    if not found:
        raise NotImplementedError(f"it has no {kind}")
    return found[int(at * (len(found) - 1))]


def _eps(kind: Any, factor: float) -> Callable[[nn.Module], None]:
    def plant(model: nn.Module) -> None:
        module = _first(model, kind)
        module.eps = module.eps * factor

    return plant


def _gelu(model: nn.Module) -> None:
    module = _first(model, nn.GELU)
    module.approximate = "tanh" if module.approximate == "none" else "none"


def _half_weights(model: nn.Module) -> None:
    module = _first(model, (nn.Conv2d, nn.Linear))
    module.weight.data = module.weight.data.half().float()


def _lost_bias(model: nn.Module) -> None:
    found = [
        one
        for one in model.modules()
        if isinstance(one, nn.Conv2d | nn.Linear) and one.bias is not None and bool(one.bias.any())
    ]
    if not found:
        raise NotImplementedError("it has no bias that is not 0")
    found[len(found) // 2].bias = None


def _transposed(model: nn.Module) -> None:
    found = [
        one for one in model.modules() if isinstance(one, nn.Conv2d) and one.kernel_size[0] == one.kernel_size[1] > 1
    ]
    if not found:
        raise NotImplementedError("it has no square kernel")
    module = found[len(found) // 2]
    module.weight.data = module.weight.data.mT.contiguous()


def _channel_order(model: nn.Module) -> None:
    module = _first(model, nn.Conv2d, at=0.0)
    module.weight.data = module.weight.data.flip(1)


def _statistics(model: nn.Module) -> None:
    module = _first(model, nn.BatchNorm2d)
    module.running_var.mul_(1.01)


def _one_weight(model: nn.Module) -> None:
    module = _first(model, (nn.Conv2d, nn.Linear))
    module.weight.data.view(-1)[0] += module.weight.abs().max() * 1e-2


def _count_pad(model: nn.Module) -> None:
    module = _first(model, nn.AvgPool2d)
    module.count_include_pad = not module.count_include_pad


def _ceil(model: nn.Module) -> None:
    module = _first(model, (nn.MaxPool2d, nn.AvgPool2d))
    module.ceil_mode = not module.ceil_mode


def _padding_mode(model: nn.Module) -> None:
    found = [
        one
        for one in model.modules()
        if isinstance(one, nn.Conv2d) and isinstance(one.padding, tuple) and max(one.padding) == 1
    ]
    if not found:
        raise NotImplementedError("it has no padding")
    found[len(found) // 2].padding_mode = "replicate"


def _group_order(model: nn.Module) -> None:
    found = [one for one in model.modules() if isinstance(one, nn.Conv2d) and one.groups > 1]
    if not found:
        raise NotImplementedError("it has no groups")
    module = found[len(found) // 2]
    module.weight.data = module.weight.data.roll(module.out_channels // module.groups, 0)


def _scale(model: nn.Module) -> None:
    found = [one for one in model.modules() if isinstance(getattr(one, "scale", None), float)]
    if not found:
        raise NotImplementedError("it has no scale")
    module: Any = found[len(found) // 2]
    width = module.scale**-2
    module.scale = (width - 1) ** -0.5


def _silu(model: nn.Module) -> None:
    found = [(name, one) for name, one in model.named_modules() if isinstance(one, nn.SiLU)]
    if not found:
        raise NotImplementedError("it has no SiLU")
    model.set_submodule(found[len(found) // 2][0], nn.Hardswish().eval())


FAULTS: dict[str, Callable[[nn.Module], None]] = {
    "batch norm eps x 100": _eps(nn.BatchNorm2d, 100.0),
    "layer norm eps x 10": _eps(nn.LayerNorm, 10.0),
    "group norm eps x 10": _eps(nn.GroupNorm, 10.0),
    "GELU's form": _gelu,
    "hard swish for SiLU": _silu,
    "weights of a layer through float16": _half_weights,
    "lost bias": _lost_bias,
    "transposed kernel": _transposed,
    "channel order": _channel_order,
    "variance of a norm 1 % off": _statistics,
    "one weight 1 % of the largest off": _one_weight,
    "count_include_pad": _count_pad,
    "ceil_mode": _ceil,
    "padding mode": _padding_mode,
    "group order": _group_order,
    "attention's scale": _scale,
}


def others_say(a: list[Tensor], b: list[Tensor], truth: list[Tensor]) -> dict[str, bool]:
    """Whether allclose(1e-3, 1e-5), and PyTorch's rule for compiled networks, take two lists of outputs as the same."""
    pairs = list(zip(a, b, truth, strict=True))
    close = all(x.shape == y.shape and torch.allclose(x.float(), y.float(), rtol=1e-3, atol=1e-5) for x, y, _ in pairs)
    errors = [
        [(one.double() - exact).square().mean().sqrt() for one in (x, y)] for x, y, exact in pairs if x.shape == y.shape
    ]
    return {"allclose": close, "pytorch": len(errors) == len(pairs) and all(bool(y <= 2 * x + 1e-5) for x, y in errors)}


def _remembering() -> None:
    """Makes truth, noise and graphs of one network be computed once, and the worst case of one way only."""
    graphs: dict[int, tuple[Any, Graph]] = {}
    runs: dict[Any, Any] = {}
    own_graph, own_typical = Graph.of, comparison.typical

    def of(network: Any, args: Any, kwargs: Any) -> Graph:
        if id(network) not in graphs:
            graphs[id(network)] = network, own_graph(network, args, kwargs)
        return graphs[id(network)][1]

    def typical(graph: Graph, args: Any, kwargs: Any, precisions: Any, **options: Any) -> Any:
        key = id(graph), tuple(precisions), options.get("watched")
        if key not in runs:
            runs[key] = own_typical(graph, args, kwargs, precisions, **options)
        return runs[key]

    own_worst = comparison._Comparison._worst

    def worst(self: Any, *rest: Any) -> Any:
        return (
            own_worst(self, *rest) if getattr(self.sides[1].call, "__qualname__", "").startswith("_own_loops") else None
        )

    comparison._Comparison._worst = worst  # type: ignore[method-assign]
    Graph.of = staticmethod(of)  # type: ignore[method-assign,assignment]
    comparison.typical = typical  # type: ignore[assignment]


@torch.no_grad()
def child(library: str, name: str, ways: list[str], most: int) -> Iterator[Record]:
    """The pairs of a network, each as it becomes known."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    _remembering()
    try:
        if _parameters(library, name) > most:
            raise ValueError("it has too many parameters")
        model: nn.Module = Plain(build(library, name)).eval()
        x = inputs(library, name, model)
    except Exception as error:  # other people's code
        yield {"way": None, "error": f"{type(error).__name__}: {error}"[:200]}
        return
    truth: list[Tensor] = []
    for way in ways:
        start = time.perf_counter()
        yield {
            "way": way,
            **_pair(model, x, way, (library, name), truth),
            "seconds": round(time.perf_counter() - start, 1),
        }


def _pair(model: nn.Module, x: Tensor, way: str, place: tuple[str, str], truth: list[Tensor]) -> Record:
    try:
        a = copy.deepcopy(model).bfloat16() if way == "bfloat16" else model
        if way in WAYS:
            b = WAYS[way](a, x, place)
        else:
            b = copy.deepcopy(model)
            FAULTS[way](b)
        found = comparison.same(a, b, x)
        if not truth:
            graph = Graph.of(model, (x,), {})
            truth += Lifted(graph).outputs((x,), {}).values()
        told = {} if way in WAYS else others_say(model(x), b(x), truth)
    except NotImplementedError as error:
        return {"skipped": str(error)[:100]}
    except Exception as error:  # other people's code
        return {"error": f"{type(error).__name__}: {error}"[:200]}
    rows = found.outputs
    return {
        "verdict": found.verdict,
        "ratio": found.ratio if math.isfinite(found.ratio) else 1e300,
        "rms": max((row.rms for row in rows), default=0.0),
        "a": max((row.a for row in rows), default=0.0),
        "b": max((row.b for row in rows), default=0.0),
        "worst": None if found.worst is None else found.worst.is_beyond,
        "where": str(found.where[0])[:160] if found.where else None,
        "reason": found.reason[:160],
        **told,
    }


def run(out: Path, seconds: float, seed: int, *, most: int, count: int) -> None:
    """Runs pairs until the time is over, and adds a line for each to the file."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    seen = {(record["library"], record["name"]) for record in done if record["way"] in (None, "end")}
    end, index = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        library, name = drawn(index, seed)
        every = [way for way in WAYS if index % _EVERY.get(way, 1) == 0] + list(FAULTS)
        ways = random.Random(f"{seed}:{index}:ways").sample(every, min(count, len(every)))
        index += 1
        if (library, name) in seen:
            continue
        seen.add((library, name))
        have = {record["way"] for record in done if (record["library"], record["name"]) == (library, name)}
        _network(out, library, name, [way for way in ways if way not in have], most)


def _network(out: Path, library: str, name: str, ways: list[str], most: int) -> None:
    """Runs the pairs of one network, in as many children as it takes."""
    about = {"library": library, "name": name, "family": family(library, name)}

    def write(record: Record) -> None:
        with out.open("a") as file:
            file.write(json.dumps({**about, **record}) + "\n")

    while ways:
        count, end = 0, time.monotonic() + LIMIT
        for record in _children(library, name, ways, most, end):
            write(record)
            count += 1
            if record["way"] is None:
                return
        if ways := ways[count:]:
            is_late = time.monotonic() > end
            write({"way": ways[0], "error": f"took more than {LIMIT} s" if is_late else "died"})
            ways = [] if is_late else ways[1:]
    write({"way": "end"})


def _children(library: str, name: str, ways: list[str], most: int, end: float) -> Iterator[Record]:
    """The pairs that a child tells of before it ends, or the time is over. It is forked, as importing takes seconds."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_told, args=(theirs, library, name, ways, most), daemon=False)
    process.start()
    theirs.close()
    try:
        while ours.poll(max(0.0, end - time.monotonic())):
            yield ours.recv()
    except EOFError:
        pass
    finally:
        process.kill()
        process.join()


def _told(pipe: Any, library: str, name: str, ways: list[str], most: int) -> None:
    """A child's work, without what libraries print."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    for record in child(library, name, ways, most):
        pipe.send(record)


def table(out: Path) -> None:
    """Prints what the lines say: honest ratios by half and way, and faults beside other rules."""
    records = [json.loads(line) for line in out.read_text().splitlines()]
    pairs = [record for record in records if "ratio" in record]
    honest = [record for record in pairs if record["way"] in WAYS]
    print(f"{len({(r['library'], r['name']) for r in pairs})} networks of {len({r['family'] for r in pairs})} families")
    for part in (0, 1):
        own = [record for record in honest if half(record["family"]) == part and record["verdict"] != "cannot say"]
        ratios = sorted(record["ratio"] for record in own)
        worst = [(round(r["ratio"], 2), r["name"], r["way"]) for r in sorted(own, key=lambda r: -r["ratio"])[:6]]
        print(f"half {part}: {len(own)} honest pairs, same bits {ratios.count(0.0)}, largest {worst}")
        counted = Counter(min(int(math.log2(ratio) + 20), 40) for ratio in ratios if ratio)
        print(
            "  "
            + ", ".join(
                f"{2.0 ** (power - 20):.2g}-{2.0 ** (power - 19):.2g}: {n}" for power, n in sorted(counted.items())
            )
        )
    print("not judged:", Counter(record["reason"][:60] for record in honest if record["verdict"] == "cannot say"))
    by_way = defaultdict(list)
    for record in honest:
        by_way[record["way"]].append(record["ratio"])
    for way, ratios in by_way.items():
        print(f"  {way}: {len(ratios)}, median {sorted(ratios)[len(ratios) // 2]:.2g}, largest {max(ratios):.2g}")
    _faults([record for record in pairs if record["way"] in FAULTS])
    print("errors:", Counter((r["way"], r["error"][:70]) for r in records if "error" in r).most_common(12))


def _faults(faults: list[Record]) -> None:
    changed = [record for record in faults if record["verdict"] != "same bits"]
    print(f"{len(changed)} faults that change a bit")
    for name in FAULTS:
        own = [record for record in changed if record["way"] == name]
        if own:
            found = sum(record["verdict"] == "not rounding" for record in own)
            named = sum(record["where"] is not None for record in own if record["verdict"] == "not rounding")
            passes = [sum(record.get(rule, False) for record in own) for rule in ("allclose", "pytorch")]
            print(f"| {name} | {len(own)} | {found} | {named} | {len(own) - passes[0]} | {len(own) - passes[1]} |")
    missed = [(r["name"], r["way"], round(r["ratio"], 2)) for r in changed if r["verdict"] == "rounding"]
    print("missed:", missed)


def main() -> None:
    """Runs pairs, those of one network, or prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="file of lines of JSON, which is added to")
    parser.add_argument("--seconds", type=float, default=3600.0, help="start no new network after this time")
    parser.add_argument("--seed", type=int, default=0, help="of the networks that are drawn")
    parser.add_argument("--most", type=int, default=MOST, help="parameters of a network, at most")
    parser.add_argument("--ways", type=int, default=100, help="pairs of a network, at most; they are drawn")
    parser.add_argument("--table", action="store_true", help="print what the lines say")
    parser.add_argument("--outputs", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        table(options.out)
    elif options.outputs:
        torch.set_num_threads(1)
        model = Plain(build(*options.outputs)).eval()
        with torch.no_grad():
            torch.save(model(inputs(*options.outputs, model)), options.out)
    else:
        run(options.out, options.seconds, options.seed, most=options.most, count=options.ways)


if __name__ == "__main__":
    main()
