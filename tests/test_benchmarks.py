"""The programs that compare grafts: what they draw, how they divide and score, and the tables that they print."""

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

from conv2attn.learn.data.datasets import digits
from conv2attn.learn.data.images import ImageData, Split
from conv2attn.learn.grafting import TITLES, compare_grafts
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
def comparing(denoisers: ModuleType) -> ModuleType:
    return importlib.import_module("comparing")


@pytest.fixture
def cells(denoisers: ModuleType) -> ModuleType:
    return importlib.import_module("cells")


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
def test_a_larger_kernel_has_the_trained_one_in_its_middle(kind: str, denoisers: ModuleType) -> None:
    torch.manual_seed(0)
    cnn: nn.Module = getattr(denoisers, kind)().eval()
    small = cnn.get_parameter(f"{denoisers.LOOKS}.weight")
    large = denoisers.with_larger_kernel(copy.deepcopy(cnn)).get_parameter(f"{denoisers.LOOKS}.weight")
    assert torch.equal(large, F.pad(small, (3,) * 4))


def test_cells_that_choose_are_never_tested_and_each_seed_tests_others(cells: ModuleType) -> None:
    numbers = torch.arange(200).view(-1, 1, 1, 1)
    divided = [cells.parts(numbers, torch.arange(200) % 4, seed) for seed in (0, 1, cells.STAGE)]
    chosen = divided[0][1].images
    for parts in divided:
        assert torch.cat([part.images for part in parts]).unique().numel() == len(numbers)
        assert torch.equal(parts[1].images, chosen)
    first, second, stage = (parts[2].images for parts in divided)
    assert torch.equal(first, stage)
    assert not torch.equal(first, second)


def test_macro_f1_is_the_mean_over_grades(cells: ModuleType) -> None:
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    called = torch.tensor([0, 0, 1, 1, 0, 0])
    test = Split(F.one_hot(called, 4).float().view(6, 4, 1, 1), labels)
    data = ImageData("called", cells.GRADES, test, test, test)
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 4, bias=False))
    nn.init.eye_(network.get_parameter("1.weight"))
    found = cells.score_grades(network, 0, data=lambda _: data)
    assert found["accuracy"] == pytest.approx(0.5)
    assert found["macro-F1"] == pytest.approx((4 / 7 + 2 / 4 + 0 + 0) / 4)  # 2 of 3 found, 4 called; 1 of 2, 2 called


def test_crops_lie_in_their_pictures(cells: ModuleType) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (3, 1, 100, 120), generator=generator, dtype=torch.uint8)
    held = Split(images, torch.zeros(3)).pictures().unfold(2, cells.SIDE, 1).unfold(3, cells.SIDE, 1)
    for crop in cells.crops(images[..., :100], 4, generator):
        assert bool((held[:, 0] == crop[0]).all(-1).all(-1).any())


def test_psnr_is_that_of_the_mean_square(
    denoisers: ModuleType, stamps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy, clean = stamps.unseen_pages(4)
    network: nn.Module = denoisers.PageDenoiser()
    monkeypatch.setattr(network, "forward", lambda x: clean[: len(x)] + 0.2)
    assert denoisers.psnr(network, (noisy, clean)) == pytest.approx(20.0, rel=1e-5)  # 10 log10(4 / 0.04); float32


@pytest.mark.slow
def test_each_program_prints_a_row_for_every_way_and_who_won(
    denoisers: ModuleType, stamps: ModuleType, photographs: ModuleType, comparing: ModuleType, tmp_path: Path
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
        found = compare_grafts(small, tmp_path / whole.name, seeds=2)
        header, _, *rows, _, verdict = comparing.summary(small, found).splitlines()
        first = whole.measures[0]
        assert header.startswith(f"|  | {first.title}: before | after | difference |")
        titles = [*TITLES.values(), *(arm.title for arm in whole.arms.values())]
        assert [row.split(" | ")[0] for row in rows] == [f"| {title}" for title in titles]
        gain = statistics.fmean(found.gains("block", first.name))
        (row,) = (row for row in rows if row.startswith(f"| {TITLES['block']} |"))
        assert row.split(" | ")[3].startswith(f"{gain:+.{first.digits}f} ")
        assert verdict.startswith(("Grafting pays", "Grafting does not", "Undecided: "))
