"""The film of a training: what it draws, that it is small and asks for nothing, by mouse and keyboard."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page

from conv2attn.learn.experiment.folder import History, LayerRecord
from conv2attn.learn.heads.positions import Grid
from conv2attn.show.page.write import MOST_FRAMES, film_data, film_page

pytestmark = pytest.mark.browser

MOST_BYTES = 5_000_000
SMALL = Grid(4, 6, padding=1)
OpenFilm = Callable[..., Page]


def history(*, epochs: int = 12, layers: int = 3, heads: int = 4, grid: Grid = SMALL) -> History:
    """A run whose numbers are drawn."""
    generator = torch.Generator().manual_seed(0)

    def layer() -> LayerRecord:
        maps = torch.rand(heads, grid.key_rows * grid.key_columns, generator=generator).softmax(-1)
        spread = torch.rand(heads, 2, generator=generator) + 0.2
        covariances = torch.stack([spread[:, 0], 0.1 * torch.ones(heads), spread[:, 1]], 1)
        return LayerRecord(
            torch.randn(heads, 2, generator=generator),
            covariances,
            maps.view(heads, grid.key_rows, grid.key_columns),
            torch.zeros(heads, 2),
            0.25,
            1.0,
            1.5,
            2.0,
        )

    accuracies = [0.1 + 0.8 * epoch / epochs for epoch in range(epochs)] + [0.85]
    return History("quadratic", 0, grid, accuracies, [[layer() for _ in range(layers)] for _ in range(epochs + 1)])


@pytest.fixture
def open_film(open_html: OpenFilm) -> OpenFilm:
    """Opens the film of a run, as ``open_html``."""

    def open_film(run: History, *, title: str = "A run", **options: Any) -> Page:
        return open_html(film_page(run, title=title), **options)

    return open_film


def set_epoch(page: Page, frame: int) -> None:
    page.locator("#epoch").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", frame
    )


def epoch(page: Page) -> int:
    return int(page.inner_text("#epoch-text").split()[1].rstrip(":,"))


def test_the_page_draws_the_numbers_of_the_run(open_film: OpenFilm) -> None:
    run = history()
    page = open_film(run)
    for frame, layer, head in ((0, 0, 0), (5, 2, 3), (12, 1, 2)):
        recorded = run.layers[frame][layer]
        ellipse = page.evaluate("([f, l, h]) => [...ellipseOf(f, l, h)]", [frame, layer, head])
        assert ellipse == [*recorded.centers[head].tolist(), *recorded.covariances[head].tolist()]
        levels = page.evaluate("([f, l, h]) => [...mapOf(f, l, h)]", [frame, layer, head])
        assert levels == recorded.maps[head].mul(255).round().flatten().int().tolist()


def test_an_ellipse_holds_half_of_its_gaussian(open_film: OpenFilm) -> None:
    page = open_film(history())
    covariance = np.array([[2.0, 0.7], [0.7, 1.0]])  # rows, then columns
    long, short, angle = page.evaluate("axesOf([0, 0, 2.0, 0.7, 1.0])")
    values, vectors = np.linalg.eigh(covariance)
    half = math.sqrt(2 * math.log(2))
    assert [long, short] == pytest.approx([half * math.sqrt(values[1]), half * math.sqrt(values[0])], rel=1e-12)
    row, column = vectors[:, 1] * np.sign(vectors[1, 1])
    assert angle == pytest.approx(math.atan2(row, column), rel=1e-12)  # from the columns' axis to the rows'


def test_the_slider_moves_the_heads(open_film: OpenFilm) -> None:
    page = open_film(history())
    assert epoch(page) == 12
    pictures = []
    for frame in (0, 6, 6):
        set_epoch(page, frame)
        assert epoch(page) == frame
        pictures.append(page.locator("#layers svg").nth(1).inner_html())
    assert pictures[0] != pictures[1] == pictures[2]


def test_the_keyboard_moves_the_epoch_and_chooses_a_layer(open_film: OpenFilm) -> None:
    page = open_film(history())
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert epoch(page) == 10
    page.keyboard.press("PageDown")
    assert epoch(page) == 0
    for _ in range(5):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.inner_text("#layer-name") == "layer 3"


def test_playing_runs_to_the_end(open_film: OpenFilm) -> None:
    page = open_film(history(epochs=3))
    page.keyboard.press(" ")
    assert page.inner_text("#play") == "Stop"
    page.get_by_role("button", name="Play").wait_for()  # it says "Stop" until the end
    assert epoch(page) == 3


def test_a_film_of_100_epochs_is_smaller_than_5_mb() -> None:
    run = history(epochs=100, layers=6, heads=9, grid=Grid(16, 16))
    assert len(film_page(run, title="x").encode()) < MOST_BYTES


def test_of_many_epochs_the_first_and_the_last_are_kept() -> None:
    data = film_data(history(epochs=300, layers=1, heads=1, grid=Grid(2, 2)))
    assert len(data["epochs"]) == MOST_FRAMES
    assert (data["epochs"][0], data["epochs"][-1]) == (0, 300)
