"""The film of a training: what it draws, that it is quick, small and asks for nothing, by mouse, keyboard and touch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page

from conv2attn.learn.experiment.history import History, LayerRecord
from conv2attn.learn.heads.positions import Grid
from conv2attn.proofs.show.page.film import MOST_FRAMES, film_data, film_page

pytestmark = pytest.mark.browser

REDRAW_MS = 16
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


@pytest.mark.parametrize(
    ("mean", "box"),
    [
        ((90, 40), (87, 37, 93, 43)),
        ((500, 50), (89, 45, 100, 55)),
        ((-9, -9), (0, 0, 13, 13)),
        ((30, 101), (25, 89, 35, 100)),
    ],
)
def test_a_head_that_looks_beyond_the_square_is_marked_at_its_edge(
    mean: tuple[float, float], box: tuple[int, int, int, int], open_film: OpenFilm
) -> None:
    page = open_film(history())
    drawn = page.evaluate(
        """([x, y]) => {
          const context = Object.assign(document.createElement("canvas"), {width: 100, height: 100}).getContext("2d");
          drawMean(context, x, y, 100, 100);
          const alphas = context.getImageData(0, 0, 100, 100).data.filter((_, index) => index % 4 === 3);
          return [...alphas.keys()].filter(place => alphas[place]);
        }""",
        list(mean),
    )
    left, top, right, bottom = box
    assert len(drawn) > 12
    assert all(left <= place % 100 < right and top <= place // 100 < bottom for place in drawn)


def test_the_slider_moves_the_heads(open_film: OpenFilm) -> None:
    page = open_film(history())
    assert epoch(page) == 12
    pictures = []
    for frame in (0, 6, 6):
        set_epoch(page, frame)
        assert epoch(page) == frame
        pictures.append(page.locator("#layers canvas").nth(1).evaluate("canvas => canvas.toDataURL()"))
    assert pictures[0] != pictures[1] == pictures[2]


def test_the_best_epoch_is_told(open_film: OpenFilm) -> None:
    run = history()
    page = open_film(run)
    set_epoch(page, run.best)
    assert "the best" in page.inner_text("#epoch-text")
    set_epoch(page, run.best - 1)
    assert "the best" not in page.inner_text("#epoch-text")


def test_the_keyboard_moves_the_epoch_and_chooses_a_layer(open_film: OpenFilm) -> None:
    page = open_film(history())
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert epoch(page) == 10
    page.keyboard.press("PageDown")
    assert epoch(page) == 0
    reached = []
    for _ in range(5):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label')"))
    assert reached[:3] == ["play", "epoch", "Layer 1: show its maps"]
    page.keyboard.press("Enter")
    assert page.inner_text("#layer-name") == "layer 3"
    page.focus("#epoch")
    page.keyboard.press("End")
    assert epoch(page) == 12


def test_playing_runs_to_the_end(open_film: OpenFilm) -> None:
    page = open_film(history(epochs=3))
    page.keyboard.press(" ")
    assert page.inner_text("#play") == "Stop"
    page.get_by_role("button", name="Play").wait_for()  # it says "Stop" until the end
    assert epoch(page) == 3


def test_touch_chooses_a_layer_and_an_epoch(open_film: OpenFilm) -> None:
    page = open_film(history(), has_touch=True, viewport={"width": 390, "height": 800})
    page.locator("#layers button").nth(1).tap()
    assert page.inner_text("#layer-name") == "layer 2"
    box = page.locator("#epoch").bounding_box()
    assert box is not None
    page.touchscreen.tap(box["x"] + 0.5 * box["width"], box["y"] + box["height"] / 2)
    assert epoch(page) == 6


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_film_fits_its_width_in_both_colours(width: int, scheme: str, open_film: OpenFilm) -> None:
    page = open_film(history(layers=6, heads=9), viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_an_epoch_is_drawn_in_less_than_16_ms(open_film: OpenFilm) -> None:
    page = open_film(history(epochs=100, layers=6, heads=9, grid=Grid(16, 16)))
    for frame in range(40):
        set_epoch(page, frame)
    times = page.evaluate("performance.getEntriesByName('conv2attn update').map(entry => entry.duration)")
    assert float(np.median(times[-30:])) < REDRAW_MS


def test_a_film_of_100_epochs_is_smaller_than_5_mb() -> None:
    run = history(epochs=100, layers=6, heads=9, grid=Grid(16, 16))
    assert len(film_page(run, title="x").encode()) < MOST_BYTES


def test_of_many_epochs_the_first_and_the_last_are_kept() -> None:
    data = film_data(history(epochs=300, layers=1, heads=1, grid=Grid(2, 2)))
    assert len(data["epochs"]) == MOST_FRAMES
    assert (data["epochs"][0], data["epochs"][-1]) == (0, 300)


def test_a_title_with_markup_is_text(open_film: OpenFilm) -> None:
    page = open_film(history(), title="<script>window['ran'] = 1</script>")
    assert page.evaluate("window.ran") is None
    assert page.inner_text("h1") == "<script>window['ran'] = 1</script>"
