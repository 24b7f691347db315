"""Grafts networks of timm, torchvision and transformers, and compares step 0 with the CNN, bit for bit.

Run by hand, with the libraries installed; the weights are random. Networks are drawn by a seed. Each result is a line
of JSON as soon as it is known, and a run goes on where the last one ended:

    python benchmarks/graft_networks.py build/grafts.jsonl --timm 100 --torchvision 15 --transformers 10 --seed 0
    python benchmarks/graft_networks.py build/grafts.jsonl --table

For every network: heads in front and beside; train and eval mode; float32, bfloat16, float64, autocast and channels
last. Compared are all outputs, the gradients of the CNN's parameters, and all buffers after the step, by
``torch.equal``.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from children import Record, read, write
from torch import Tensor, nn
from torch.utils import _pytree
from zoo import LIBRARIES, create, declare_operators, inputs, module_of, names, parameters

from conv2attn.convert import ConversionError, graft

VARIANTS = ("float32", "bfloat16", "float64", "autocast", "channels_last")
LARGEST = 60e6  # parameters
DETECTING = ("rcnn", "retinanet", "fcos", "ssd")
SMALL = {"min_size": 64, "max_size": 96}  # detectors enlarge their images
FEW = {f"rpn_{when}_nms_top_n_{mode}": 20 for when in ("pre", "post") for mode in ("train", "test")}  # proposals
CONVOLUTIONAL = (
    *("resnet", "convnext", "convnextv2", "regnet", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "cvt"),
    *("efficientnet", "poolformer", "van", "levit", "swiftformer", "bit", "focalnet", "pvt_v2"),
)
"""Model types of transformers' vision networks that have convolutions."""


def drawn(library: str, draw: random.Random) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    """The names of a library's networks in an order that the seed chooses, with the function that builds each."""
    if library == "torchvision":
        kinds = {name: module_of(library, name) for name in names(library)}
        first = [name for name, kind in kinds.items() if "detection" in kind or "segmentation" in kind]
        others = [name for name in kinds if name not in first]
        draw.shuffle(first)
        draw.shuffle(others)
        order = [*first[:8], *others, *first[8:]]
    else:
        order = sorted(names(library)) if library == "timm" else list(CONVOLUTIONAL)
        draw.shuffle(order)
    for name in order:
        options: Record = dict(SMALL) if any(part in name for part in ("rcnn", "retinanet", "fcos")) else {}
        options |= FEW if "rcnn" in name else {}
        yield name, partial(create, library, name, **options)


def called(model: nn.Module, name: str, x: Tensor) -> Any:
    """The network's outputs; a detector wants a list of images, and targets in train mode."""
    if not any(part in name for part in DETECTING):
        return model(x)
    if not model.training:
        return model(list(x))
    boxes = torch.tensor([[10.0, 20.0, 100.0, 90.0]], dtype=x.dtype)
    target: Record = {"boxes": boxes, "labels": torch.tensor([1])}
    if "mask" in name:
        target["masks"] = torch.zeros(1, *x.shape[-2:], dtype=torch.uint8)
    if "keypoint" in name:
        target["keypoints"] = torch.tensor([[[20.0, 30.0, 1.0]] * 17], dtype=x.dtype)
    return model(list(x), [target] * len(x))


def step(model: nn.Module, name: str, x: Tensor, variant: str) -> dict[str, Tensor]:
    """Outputs, gradients and buffers of one step from a fixed state of the generator, by their places."""
    torch.manual_seed(5)
    model.zero_grad()
    context = torch.autocast("cpu", dtype=torch.bfloat16) if variant == "autocast" else nullcontext()
    with context:
        outputs = [each for each in _pytree.tree_leaves(tensors(called(model, name, x))) if isinstance(each, Tensor)]
    loss = sum((each.float().square().mean() for each in outputs if each.requires_grad), torch.zeros(()))
    if loss.requires_grad:
        loss.backward()
    found = {f"output {number}": each.detach() for number, each in enumerate(outputs)}
    own = {key: p.grad for key, p in model.named_parameters() if p.grad is not None and ".spare_" not in f".{key}"}
    found |= {f"gradient {key}": grad for key, grad in own.items()}
    return found | {f"buffer {key}": buffer.clone() for key, buffer in model.named_buffers()}


def tensors(outputs: Any) -> Any:
    """Outputs as plain containers: those of transformers are mappings of their own class."""
    return dict(outputs) if hasattr(outputs, "keys") and not isinstance(outputs, dict) else outputs


def differences(cnn: nn.Module, models: dict[bool, nn.Module], name: str, x: Tensor, variant: str) -> list[str]:
    """The places at which one step of the CNN and of its grafts differs, where the CNN's own steps do not."""
    first = step(copy.deepcopy(cnn), name, x, variant)
    apart: list[str] = []
    for beside, model in models.items():
        found = step(copy.deepcopy(model), name, x, variant)
        apart += [f"beside={beside}: other keys {key}" for key in sorted(first.keys() ^ found.keys())]
        apart += [f"beside={beside}: {key}" for key in sorted(unequal(first, found))]
    if not apart:
        return []
    unsteady = unequal(first, step(copy.deepcopy(cnn), name, x, variant))
    return [place for place in apart if place.partition(": ")[2] not in unsteady]


def unequal(one: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    """Names of the tensors that are not the same bits; NaN counts as one value."""
    shared = one.keys() & other.keys()
    return {key for key in shared if not torch.equal(one[key].nan_to_num(), other[key].nan_to_num())}


def compare(library: str, name: str, build: Callable[[], nn.Module], seed: int, slowest: float) -> Record:
    """One network: how many steps were compared, and where they differ."""
    if parameters(build) > LARGEST:
        return {"left": "too large"}
    torch.manual_seed(seed)
    cnn = build()
    x = inputs(library, name, cnn.eval(), run=partial(called, cnn, name))
    with torch.no_grad():
        start = time.process_time()
        called(cnn, name, x)
    if time.process_time() - start > slowest:
        return {"left": "too slow"}
    record: Record = {"steps": 0, "differ": [], "errors": []}
    example = {"images": list(x)} if any(part in name for part in DETECTING) else x
    models: dict[bool, nn.Module] = {}
    for beside in (False, True):
        try:
            models[beside], report = grafted(cnn, name, example, beside=beside)
            record["layers"] = [each.name for each in report.layers]
        except ConversionError as error:
            record["refused"] = str(error)[:300]
    for variant in VARIANTS if models else ():
        for training in (True, False):
            one, images = varied(cnn, x, variant, training=training)
            others = {beside: varied(model, x, variant, training=training)[0] for beside, model in models.items()}
            try:
                apart = differences(one, others, name, images, variant)
            except Exception as error:  # of the network's own code, as in half precision
                record["errors"].append(f"{variant} {training}: {type(error).__name__}: {str(error)[:80]}")
                continue
            record["steps"] += len(models)
            record["differ"] += [f"{variant} training={training} {place}" for place in apart[:3]]
    return record


def grafted(cnn: nn.Module, name: str, example: Any, *, beside: bool) -> Any:
    """The network with spare heads; detectors take lists, which an example is not, and get them on the last layer."""
    where = "last" if isinstance(example, dict) else "auto"
    return graft(cnn, where=where, beside=beside, example=None if isinstance(example, dict) else example)


def varied(model: nn.Module, x: Tensor, variant: str, *, training: bool) -> tuple[nn.Module, Tensor]:
    """A copy of a network, and the images, in a precision, memory format and mode."""
    copied: Any = copy.deepcopy(model).train(training)
    if variant in ("bfloat16", "float64"):
        dtype = getattr(torch, variant)
        return copied.to(dtype), x.to(dtype)
    if variant == "channels_last":
        return copied.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    return copied, x


def run(file: Path, counts: dict[str, int], seed: int, slowest: float) -> None:
    """Compares networks until as many of each library are done, and writes a line a network."""
    declare_operators()
    done = {(each["library"], each["name"]): each for each in read(file) if each["seed"] == seed}
    for library, count in counts.items():
        compared = sum(1 for (kind, _), each in done.items() if kind == library and each.get("steps"))
        for name, build in drawn(library, random.Random(seed)) if count else ():
            if compared >= count:
                break
            if (library, name) in done:
                continue
            start = time.time()
            try:
                record = compare(library, name, build, seed, slowest)
            except Exception as error:  # whatever a network's own code raises
                record = {"left": f"{type(error).__name__}: {str(error)[:200]}"}
            about = {"library": library, "name": name, "seed": seed}
            write(file, {**about, **record, "seconds": round(time.time() - start, 1)})
            compared += bool(record.get("steps"))
            outcome = record.get("left") or record["differ"] or record.get("refused", "same")
            print(library, name, record.get("steps", 0), outcome, flush=True)


def table(file: Path) -> None:
    """Prints for each library how many networks were compared, in how many steps, and which differ."""
    lines = read(file)
    for library in LIBRARIES:
        found = [each for each in lines if each["library"] == library]
        compared = [each for each in found if each.get("steps")]
        steps, differing = (
            sum(each["steps"] for each in compared),
            [each["name"] for each in compared if each["differ"]],
        )
        print(f"{library}: {len(compared)} networks, {steps} steps, {len(differing)} differ: {differing}")
        why = Counter(
            str(each.get("left") or each.get("refused") or "")[:60] for each in found if not each.get("steps")
        )
        for reason, count in why.most_common(5):
            print(f"  {count} not compared: {reason}")


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--slowest", type=float, default=0.2, help="processor seconds of a forward pass; a network takes some 400"
    )
    for library, count in zip(LIBRARIES, (100, 15, 10), strict=True):
        parser.add_argument(f"--{library}", type=int, default=count)
    given = parser.parse_args()
    if given.table:
        table(given.file)
    else:
        run(given.file, {library: getattr(given, library) for library in LIBRARIES}, given.seed, given.slowest)


if __name__ == "__main__":
    main()
