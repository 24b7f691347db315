"""The programs that train a denoiser: what they draw, and that every way to go on begins as the CNN."""

from __future__ import annotations

import copy
import importlib
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conv2attn.learn.comparison import run_comparison
from conv2attn.learn.data.datasets import digits
from conv2attn.learn.training.recipe import Recipe

PROGRAMS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def denoisers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PROGRAMS)
    return importlib.import_module("denoisers")


@pytest.fixture
def stamps(denoisers: ModuleType) -> ModuleType:
    return importlib.import_module("stamps")


@pytest.fixture
def photographs(denoisers: ModuleType) -> ModuleType:
    return importlib.import_module("photographs")


@pytest.mark.parametrize("kinds", [1, 4])
def test_each_stamp_is_as_often_on_a_page_as_the_others(kinds: int, stamps: ModuleType) -> None:
    _, clean = stamps.pages(digits().train, 3, torch.Generator().manual_seed(0), kinds=kinds)
    cells = clean.unfold(2, stamps.PITCH, stamps.PITCH).unfold(3, stamps.PITCH, stamps.PITCH).flatten(2, 3).flatten(3)
    for page in cells[:, 0]:
        _, often = page.unique(dim=0, return_counts=True)
        assert often.tolist() == [12 // kinds] * kinds


def test_noise_is_as_strong_as_it_says(stamps: ModuleType, photographs: ModuleType) -> None:
    # the mean of n squares of normal numbers has variance 2 / n: six deviations
    drawn = (stamps.NOISE, stamps.unseen_pages(50)), (50 / 127.5, photographs.grid_crops("moon", "test", 50))
    for level, (noisy, clean) in drawn:
        squares = (noisy - clean).square()
        assert abs(float(squares.mean()) - level**2) <= 6 * level**2 * (2 / squares.numel()) ** 0.5


def test_batches_come_from_their_seed_and_epoch(denoisers: ModuleType, stamps: ModuleType) -> None:
    one, other = map(denoisers.DrawnData("pages", stamps.training_pages, list, steps=3, batch=2), (0, 1))
    assert not torch.equal(next(iter(one.train))[0], next(iter(other.train))[0])
    first, *_, last = [batch for batch, _ in one.train]
    assert not torch.equal(first, last)
    assert torch.equal(first, next(iter(one.train))[0])


def test_the_parts_of_a_photograph_share_no_pixel_and_crops_come_from_theirs(photographs: ModuleType) -> None:
    parts = [photographs.photographs(part) for part in ("train", "validation", "test")]
    for name in parts[0]:
        widths = [part[name].shape[2] for part in parts]
        assert min(widths) >= photographs.SIDE
        assert len({part[name].shape[1] for part in parts}) == 1
        assert widths[0] == int(0.55 * sum(widths)), name
    _, clean = photographs.grid_crops("text", "test", photographs.LEVELS[0])
    held = parts[2]["text"][0].unfold(0, photographs.SIDE, 1).unfold(1, photographs.SIDE, 1)
    assert all(bool((held == crop[0]).all(-1).all(-1).any()) for crop in clean[:2])


@pytest.mark.parametrize("kind", ["PageDenoiser", "PhotographDenoiser"])
def test_every_way_to_go_on_begins_as_the_cnn_and_can_learn(kind: str, denoisers: ModuleType) -> None:
    torch.manual_seed(0)
    noisy, clean = torch.randn(2, 2, 1, 36, 48)
    cnn: nn.Module = getattr(denoisers, kind)().eval()
    wanted = cnn(noisy)
    small = cnn.get_parameter(f"{denoisers.LOOKS}.weight")
    large = denoisers.with_larger_kernel(copy.deepcopy(cnn)).get_parameter(f"{denoisers.LOOKS}.weight")
    assert torch.equal(large, F.pad(small, (3,) * 4))
    with_block: nn.Module = denoisers.with_block(copy.deepcopy(cnn))
    block = with_block.get_submodule(f"{denoisers.LOOKS}.0")
    assert torch.equal(with_block(noisy), wanted)
    (with_block(noisy) - clean).square().mean().backward()
    gradient = block.get_parameter("z.weight").grad
    assert gradient is not None
    assert bool(gradient.any(0).all())  # of each channel that it looks for
    assert not torch.equal(denoisers.with_block(copy.deepcopy(cnn), is_zero=False)(noisy), wanted)


def test_psnr_is_that_of_the_mean_square(
    denoisers: ModuleType, stamps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy, clean = stamps.unseen_pages(4)
    network: nn.Module = denoisers.PageDenoiser()
    monkeypatch.setattr(network, "forward", lambda x: clean[: len(x)] + 0.2)
    assert denoisers.psnr(network, (noisy, clean)) == pytest.approx(20.0, rel=1e-5)  # 10 log10(4 / 0.04); float32


@pytest.mark.slow
def test_each_program_prints_a_row_for_every_arm(
    denoisers: ModuleType, stamps: ModuleType, photographs: ModuleType, tmp_path: Path
) -> None:
    short = Recipe(epochs=1, lr=3e-3, clip=1.0)
    crops = [photographs.grid_crops("brick", "validation", 25, rows=1)]
    pages = [stamps.validation_pages(4)]
    for whole, draw, chosen, score in (
        (stamps.STAMPS, stamps.training_pages, pages, partial(stamps.score_pages, count=4)),
        (photographs.PHOTOGRAPHS, photographs.training_crops, crops, partial(photographs.score_photographs, rows=1)),
    ):
        data = denoisers.DrawnData(whole.name, draw, lambda chosen=chosen: chosen, steps=1, batch=2)
        small = replace(whole, data=data, start=short, onward=short, score=score, rates=(1e-3,), rounds=1)
        found = run_comparison(small, tmp_path / whole.name, full=True, seeds=2)
        (title, columns), *_ = small.tables.items()
        header, _, *rows = denoisers.table(small, found, title, columns).splitlines()
        assert header.startswith(f"| {title} | {' | '.join(columns)} |")
        arms = {**small.arms, **small.controls}
        assert [row.split(" | ")[0] for row in rows] == [
            "| the CNN at the start",
            *(f"| {a.title}" for a in arms.values()),
        ]
        gain = statistics.fmean(found.gains("block", next(iter(columns.values()))))
        assert rows[2].split(" | ")[1].startswith(f"{gain:+.2f} ")
