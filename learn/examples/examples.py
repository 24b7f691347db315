"""The two examples: what is cleaned, by which CNN, in which ways it is trained further, and what it is tested with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...convert.attention.computed import in_eval_mode
from ...convert.errors import ToolError
from ..melting.comparison import Arm, Comparison, unchanged
from ..melting.melt import melt
from ..training.evaluate import evaluate
from ..training.recipe import Recipe
from .batches import DrawnData
from .denoiser import LOOKS, PageDenoiser, PhotographDenoiser, with_context, with_larger_kernel
from .pages import training_pages, unseen_pages, validation_pages
from .photographs import LEVELS, RECURRING, SCENES, grid_crops, training_crops

CONTENT = 8
"""Dimension of queries and keys."""
STAMPS_OF_A_PAGE = 1, 2, 3, 4, 6, 12
"""Different stamps of a page of twelve: each recurs as often as the others."""
GROUPS = {"recurring": RECURRING, "scenes": SCENES}
_PEAK = 2.0  # from black to white
_BATCH = 100


_positions = partial(melt, filter_fn=lambda _, name: name == LOOKS)
_content = partial(_positions, content=CONTENT)


def psnr(network: nn.Module, pairs: tuple[Tensor, Tensor]) -> float:
    """Peak signal-to-noise ratio of cleaned images, in dB, by the mean square over all pairs (noisy, clean)."""
    noisy, clean = pairs
    batches = list(zip(noisy.split(_BATCH), clean.split(_BATCH), strict=True))
    return 10 * math.log10(_PEAK**2 / evaluate(network, batches, F.mse_loss)["loss"])


def ssim(network: nn.Module, pairs: tuple[Tensor, Tensor]) -> float:
    """Mean structural similarity of cleaned images (Wang et al., 2004), as scikit-image computes it.

    Raises:
        ToolError: scikit-image is not installed.
    """
    try:
        from skimage.metrics import structural_similarity
    except ModuleNotFoundError as error:
        raise ToolError('SSIM needs scikit-image: pip install "conv2attn[learn]"') from error
    with torch.no_grad(), in_eval_mode(network):
        found = network(pairs[0])
    options = {"data_range": _PEAK, "gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    both = zip(found[:, 0].numpy(), pairs[1][:, 0].numpy(), strict=True)
    measure: Callable[..., float] = structural_similarity
    return statistics.fmean(float(measure(one, other, **options)) for one, other in both)


def score_pages(network: nn.Module, *, count: int = 400) -> dict[str, float]:
    """PSNR on test pages in dB, by the number of different stamps of a page."""
    return {str(kinds): psnr(network, unseen_pages(count, kinds=kinds)) for kinds in STAMPS_OF_A_PAGE}


def score_photographs(network: nn.Module, *, rows: int = 4) -> dict[str, float]:
    """PSNR in dB and SSIM on test crops: for each picture and noise, and means over each group of pictures."""
    found: dict[str, float] = {}
    for level in LEVELS:
        for group, names in GROUPS.items():
            for measure, measured in (("PSNR", psnr), ("SSIM", ssim)):
                values = {name: measured(network, grid_crops(name, "test", level, rows=rows)) for name in names}
                found |= {f"{name} {level} {measure}": value for name, value in values.items()}
                found[f"{group} {level} {measure}"] = statistics.fmean(values.values())
    return found


@cache
def validation_crops(rows: int = 2) -> list[tuple[Tensor, Tensor]]:
    """Crops of every picture under every noise, to choose with."""
    names = (*RECURRING, *SCENES)
    return [grid_crops(name, "validation", level, rows=rows) for name in names for level in LEVELS]


STAMPS = Comparison(
    name="stamps",
    new=PageDenoiser,
    what="to clean pages",
    data=DrawnData("stamps", training_pages, lambda: [validation_pages()], steps=100, batch=32),
    loss=F.mse_loss,
    score=score_pages,
    tables={"PSNR, dB": {"each digit 6 times": "2", "nothing recurs": "12"}},
    arms={
        "cnn": Arm("as the CNN", unchanged, 5e-3),
        "content": Arm("melted, content in the last 3x3 layer", _content, 5e-3),
    },
    controls={
        "context": Arm("with a global context", with_context, 5e-3),
        "kernel": Arm("with a 9x9 kernel in the last 3x3 layer", with_larger_kernel, 5e-3),
        "positions": Arm("melted, positions alone", _positions, 5e-3),
        "longer": Arm("as the CNN, four times the steps", unchanged, 5e-3, 4, rate_of="cnn"),
        "scratch": Arm("content, from random weights, all the steps", _content, 5e-3, 11 / 5, True, "content"),
    },
    start=Recipe(epochs=6, lr=3e-3, clip=1.0),
    onward=Recipe(epochs=5, lr=3e-3, clip=1.0),
    rates=(1e-3, 2e-3, 3e-3, 5e-3),
)

PHOTOGRAPHS = Comparison(
    name="photographs",
    new=PhotographDenoiser,
    what="to clean photographs",
    data=DrawnData("photographs", training_crops, validation_crops, steps=250, batch=8),
    loss=F.mse_loss,
    score=score_photographs,
    tables={
        title: {
            f"{group}, noise {level}": f"{group} {level} {title.partition(',')[0]}"
            for group in GROUPS
            for level in LEVELS
        }
        for title in ("PSNR, dB", "SSIM")
    },
    arms={
        "cnn": Arm("as the CNN", unchanged, 1e-3),
        "content": Arm("melted, content in the last 3x3 layer", _content, 3e-3),
        "time": Arm("as the CNN, for as much time", unchanged, 1e-3, 2.5, rate_of="cnn"),
    },
    controls={
        "context": Arm("with a global context", with_context, 1e-3, rate_of="cnn"),
        "kernel": Arm("with a 9x9 kernel in the last 3x3 layer", with_larger_kernel, 1e-3, rate_of="cnn"),
    },
    start=Recipe(epochs=4, lr=4e-3, clip=1.0),
    onward=Recipe(epochs=4, clip=1.0, batch_statistics=False),  # those of 8 crops move more than the weights
    rates=(3e-4, 1e-3, 3e-3),
    rounds=10,
    one_start=True,
)

EXAMPLES = {example.name: example for example in (STAMPS, PHOTOGRAPHS)}
