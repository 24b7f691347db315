"""What the page shows in a browser is what the library computes, and it can be moved by mouse and by keyboard."""

from __future__ import annotations

import io
import re
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Page
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, certify
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.tail import tail_fraction
from conv2attn.convert.examples.images import drawn_image
from conv2attn.convert.examples.networks import load_example
from conv2attn.convert.network.graft import graft
from conv2attn.convert.network.report import Report
from conv2attn.show.page.data import channels_data
from conv2attn.show.page.write import make_page
from conv2attn.show.pictures.scene import Scene
from tests.browser.conftest import Open

pytestmark = pytest.mark.browser

POWERS = (-3, -1, 0, 1, 7)  # of two: the alphas that are tried
QUERIES = 20
AGREEMENT = 1e-6
LARGE_MS = 250
LAYERS = {
    "3x3": nn.Conv2d(3, 4, 3, padding=1),
    "strided, dilated, reflecting": nn.Conv2d(
        3, 2, (3, 2), stride=(2, 1), dilation=(1, 3), padding=2, padding_mode="reflect"
    ),
    "even, circular, no bias": nn.Conv2d(3, 5, (4, 2), padding=1, padding_mode="circular", bias=False),
    "grouped, double": nn.Conv2d(4, 4, 3, padding=(0, 1), groups=2, dtype=torch.float64),
    "wide": nn.Conv2d(16, 3, 3, padding=1),
}


def image_of(conv: nn.Conv2d, rows: int = 13, columns: int = 17) -> Tensor:
    return torch.randn(1, conv.in_channels, rows, columns, dtype=conv.weight.dtype)


def set_slider(page: Page, power: float) -> None:
    page.locator("#alpha").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", power
    )


def query(page: Page) -> list[int]:
    found = re.search(r"\((\d+), (\d+)\)", page.inner_text("#query-text"))
    assert found is not None
    return [int(found[1]), int(found[2])]


def shown(page: Page, queries: list[list[int]]) -> list[dict[str, Any]]:
    """The attention of every head, and the output, of several queries, as the page computes them."""
    found: list[dict[str, Any]] = page.evaluate(
        """queries => queries.map(query => {
          viewer.setQuery(query);
          return { heads: viewer.attention.map(({ rows, columns }) => [[...rows], [...columns]]), ...viewer.output };
        })""",
        queries,
    )
    return found


def random_queries(conv: nn.Conv2d, x: Tensor) -> list[list[int]]:
    output = conv(x).shape[-2:]
    return torch.stack([torch.randint(n, (QUERIES,)) for n in output], 1).tolist()


def largest_gap(page: Page, conv: nn.Conv2d, x: Tensor) -> float:
    """How far the page's attention probabilities are from the library's, over random queries and all alphas."""
    gap, queries = 0.0, random_queries(conv, x)
    for power in POWERS:
        set_slider(page, power)
        layer = attention_from_conv(conv, alpha=2.0**power)
        size = Size(*x.shape[-2:])
        expected = layer.attention_probabilities(size, queries=[(row, column) for row, column in queries])
        for number, result in enumerate(shown(page, queries)):
            for head, (rows, columns) in enumerate(result["heads"]):
                gap = max(gap, float(np.abs(np.outer(rows, columns) - expected[head, number].detach().numpy()).max()))
    return gap


# The numbers


@pytest.mark.parametrize("name", LAYERS)
def test_the_page_s_attention_probabilities_are_the_library_s(name: str, open_page: Open) -> None:
    conv = LAYERS[name]
    x = image_of(conv)
    assert largest_gap(open_page(conv, image=x), conv, x) <= AGREEMENT


@pytest.mark.fault
def test_a_page_that_swaps_rows_and_columns_is_found(open_page: Open) -> None:
    conv = LAYERS["3x3"]
    x = image_of(conv)
    page = open_page(conv, image=x)
    page.evaluate(
        """() => { const honest = headAttention; headAttention = (layer, head, query, alpha) =>
          honest({ ...layer, centers: layer.centers.map(([row, column]) => [column, row]) }, head, query, alpha); }"""
    )
    assert largest_gap(page, conv, x) > 1000 * AGREEMENT


@pytest.mark.parametrize("name", ["strided, dilated, reflecting", "grouped, double", "wide"])
def test_the_page_s_output_is_the_library_s_and_stays_within_the_bound(name: str, open_page: Open) -> None:
    conv = LAYERS[name]
    x = image_of(conv)
    page, queries, wide = open_page(conv, image=x), random_queries(conv, x), deepcopy(conv).double()
    expected = wide(x.double())[0, 0]
    rounding = certify(attention_from_conv(conv), input_range=(x.min().item(), x.max().item())).bound
    for power in POWERS:
        set_slider(page, power)
        attended = attention_from_conv(wide, alpha=2.0**power, engine="literal")(x.double())[0, 0]
        for (row, column), result in zip(queries, shown(page, queries), strict=True):
            assert abs(result["attention"] - attended[row, column].item()) <= rounding
            assert abs(result["convolution"] - expected[row, column].item()) <= rounding
            assert result["difference"] <= result["bound"]


def test_the_bound_that_is_shown_can_be_exceeded_only_by_a_wrong_output(open_page: Open) -> None:
    conv = LAYERS["3x3"]
    page = open_page(conv, image=image_of(conv))
    page.evaluate("() => { viewer.subject.bias += 0.01; viewer.update(); }")
    assert ">" in page.inner_text("#result")


# Moving


def test_the_mouse_moves_the_query(open_page: Open) -> None:
    page = open_page(LAYERS["3x3"], image=image_of(LAYERS["3x3"]))
    box = page.locator("#image canvas").bounding_box()
    assert box is not None
    pixel = [box["height"] / 15, box["width"] / 19]  # 13 x 17 and the padding
    page.mouse.click(box["x"] + 4.5 * pixel[1], box["y"] + 2.5 * pixel[0])
    assert query(page) == [1, 3]  # padded pixel (2, 4) is under the middle of the kernel
    page.mouse.down()
    page.mouse.move(box["x"] + 9.5 * pixel[1], box["y"] + 8.5 * pixel[0], steps=4)
    assert query(page) == [7, 8]
    page.mouse.move(box["x"] + 9 * box["width"], box["y"] - 9 * box["height"])
    assert query(page) == [0, 16]  # it stays inside


def test_the_keyboard_moves_the_query_and_alpha(open_page: Open) -> None:
    page = open_page(LAYERS["3x3"], image=image_of(LAYERS["3x3"]))
    page.focus("#image")
    start = query(page)
    for key, moved in [("ArrowUp", (-1, 0)), ("ArrowLeft", (0, -1)), ("ArrowDown", (1, 0)), ("ArrowRight", (0, 1))]:
        before = query(page)
        page.keyboard.press(key)
        assert [after - at for after, at in zip(query(page), before, strict=True)] == list(moved)
    assert query(page) == start
    page.keyboard.press("Shift+ArrowDown")
    assert query(page) == [start[0] + 5, start[1]]
    page.focus("#alpha")
    page.keyboard.press("Home")
    assert page.inner_text("#alpha-value") == "= 0.0313"
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#alpha-value") == "= 0.0324"


def test_another_layer_is_shown_by_choice_or_from_the_table(open_page: Open) -> None:
    page = open_page(load_example("plain"))
    page.select_option("#layer", "3")
    assert page.locator("#heads figure").count() == 25
    page.click("[data-layer='9']")
    assert page.locator("#heads figure").count() == 9
    assert page.inner_text("tr.shown th") == "9"
    page.select_option("#channel", "1")
    assert "output channel 1 of layer 9" in page.inner_text("#chart-caption")


def test_pointing_at_a_head_gives_its_numbers(open_page: Open) -> None:
    conv = LAYERS["3x3"]
    page = open_page(conv, alpha=1.0, image=image_of(conv))
    row, column = query(page)
    page.locator("#heads .panel").nth(4).hover()
    words = page.inner_text("#readout")
    place = re.search(r"Head 4, pixel \((\d+), (\d+)\)", words)
    assert place is not None
    layer = attention_from_conv(conv, alpha=1.0)
    maps = layer.attention_probabilities((13, 17), heads=[4], queries=[(row, column)])
    probability = maps[0, 0, int(place[1]), int(place[2])].item()
    read = re.search(r"probability ([\d.]+)", words)
    assert read is not None
    assert float(read[1]) == pytest.approx(probability, rel=0.005)  # three digits are shown


def wait_for_the_curve(page: Page) -> None:
    page.evaluate(
        """() => new Promise((done) => {
             const look = () => viewer.subject.curve?.length === ALPHAS.length ? done() : setTimeout(look, 20);
             look(); })"""
    )


# All outputs, a picture of one's own, many layers


@pytest.mark.parametrize("name", ["strided, dilated, reflecting", "grouped, double", "wide"])
def test_the_maps_of_outputs_are_the_library_s(name: str, open_page: Open) -> None:
    conv = LAYERS[name]
    x = image_of(conv)
    page, wide = open_page(conv, image=x), deepcopy(conv).double()
    rounding = certify(attention_from_conv(conv), input_range=(x.min().item(), x.max().item())).bound
    for power in POWERS:
        found = page.evaluate("alpha => [...attend(viewer.subject, alpha)]", 2.0**power)
        expected = attention_from_conv(wide, alpha=2.0**power, engine="literal")(x.double())[0, 0]
        gap = torch.tensor(found, dtype=torch.float64) - expected.detach().flatten()
        assert float(gap.abs().max()) <= rounding
    page.get_by_text("All outputs of channel 0").wait_for()
    assert page.locator("#map-difference canvas").evaluate("canvas => canvas.height") == expected.shape[0]


@pytest.mark.parametrize("name", ["3x3", "strided, dilated, reflecting", "grouped, double", "wide"])
def test_the_curve_of_the_largest_difference_against_alpha_is_the_library_s(name: str, open_page: Open) -> None:
    conv = LAYERS[name]
    x = image_of(conv)
    page, wide = open_page(conv, image=x), deepcopy(conv).double()
    wait_for_the_curve(page)
    layer = attention_from_conv(conv)
    rounding = certify(layer, input_range=(x.min().item(), x.max().item())).bound
    (channel,) = channels_data(Scene("conv", layer, x, (0, 0)), 1)["channels"]
    for alpha, measured, worst in page.evaluate("viewer.subject.curve"):
        attended = attention_from_conv(wide, alpha=alpha, engine="literal")(x.double())[0, 0].detach()
        expected = conv(x)[0, 0].detach().double()
        assert abs(measured - float((attended - expected).abs().max())) <= rounding
        assert worst == pytest.approx(tail_fraction(alpha) * channel["scale"] + channel["rounding"], rel=1e-9)
        assert measured <= worst
    assert page.locator("#chart .dot").count() > 10


def test_a_picture_of_one_s_own_becomes_the_input_within_the_same_range(open_page: Open) -> None:
    conv = LAYERS["3x3"]
    x = image_of(conv)
    page = open_page(conv, image=x)
    picture = io.BytesIO()
    Image.fromarray(np.arange(13 * 17 * 3, dtype=np.uint8).reshape(13, 17, 3)).save(picture, "PNG")
    page.set_input_files("#own-image", {"name": "x.png", "mimeType": "image/png", "buffer": picture.getvalue()})
    page.get_by_text("Your picture, as this layer").wait_for()
    numbers = page.evaluate("viewer.subject.planes.flatMap((plane) => [...plane])")
    planes = torch.tensor(numbers, dtype=torch.float64).view(1, 3, 15, 19)
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    assert bool((planes.amin((2, 3)) >= padded.amin((2, 3)) - 1e-6).all())
    assert bool((planes.amax((2, 3)) <= padded.amax((2, 3)) + 1e-6).all())
    expected = nn.functional.conv2d(planes, conv.weight.double(), conv.bias.double())[0, 0]  # type: ignore[union-attr]
    found = torch.tensor(page.evaluate("[...viewer.subject.expected]"), dtype=torch.float64)
    assert float((found - expected.detach().flatten()).abs().max()) <= AGREEMENT
    for power in POWERS:
        set_slider(page, power)
        for result in shown(page, random_queries(conv, x)):
            assert result["difference"] <= result["bound"]
    page.set_input_files("#own-image", {"name": "x.png", "mimeType": "image/png", "buffer": b"no picture"})
    page.get_by_text("x.png is not a picture that this browser can read.").wait_for()


@pytest.mark.parametrize("options", [{}, {"beside": True}, {"heads": 2, "positions": True}], ids=str)
def test_spare_heads_are_shown_before_and_after_training_as_the_library_has_them(
    options: dict[str, Any], open_html: Open
) -> None:
    conv = nn.Conv2d(3, 4, 3, stride=2, padding=2)
    model = graft(nn.Sequential(conv), where="0", **options).model.eval()
    layer, x = model[0], image_of(conv)  # type: ignore[index]
    for parameter in layer.spare_parameters():
        parameter.data = 0.3 * torch.randn(parameter.shape)
    page = open_html(make_page(model, Report.of(model), title="A network", image=x).text)
    assert page.get_by_text("after training").count() == options.get("heads", 1)
    size, wide = Size(*x.shape[-2:]), deepcopy(layer).double()
    spare = range(9, 9 + options.get("heads", 1))
    for row, column in [[0, 0], [1, 0], [3, 4], [6, 9]]:
        page.evaluate("query => viewer.setQuery(query)", [row, column])
        found = page.evaluate("viewer.spare.numbers(viewer).map((shares) => [...shares])")
        pairs = [
            one.attention_probabilities(size, heads=spare, queries=[(row, column)], x=x.double())[0, :, 0]
            for one in (wide.with_first_spare_weights(), wide)
        ]
        expected = torch.stack(pairs, 1).flatten(0, 1).flatten(1).detach()
        assert float((torch.tensor(found, dtype=torch.float64) - expected).abs().max()) <= AGREEMENT
    attention, convolution = (page.evaluate(f"viewer.output.{name}") for name in ("attention", "convolution"))
    assert page.evaluate("viewer.output.bound") is None  # one would leave the trained heads out
    taps = conv(layer.read_by_taps(x))[0, 0, 6, 9].item()
    assert [attention, convolution] == pytest.approx([taps, taps], abs=1e-5)


def test_untrained_spare_heads_are_shown_once_and_bounds_stay(open_html: Open) -> None:
    model = graft(load_example("plain"), where="last").model.eval()
    page = open_html(make_page(model, Report.of(model), title="A network").text)
    assert page.locator("#spare-heads figure").count() == 1
    assert "They add nothing yet." in page.inner_text("#spare-caption")
    assert page.evaluate("viewer.output.bound") is not None


def test_layers_are_found_by_words_and_opened_from_the_chain(open_page: Open) -> None:
    network = nn.Sequential(*(nn.Conv2d(3, 3, 1 + 2 * (n % 2), padding=n % 2) for n in range(30)))
    page = open_page(network)
    page.fill("#search input", "3x3")
    assert page.inner_text("#search output") == "15 of 30 layers"
    assert page.locator("#layers tbody tr:visible").count() == 15
    assert page.locator("#chain li").count() == 30
    page.get_by_role("button", name="29: 3x3, 3->3, padding 1, heads 9").click()
    assert page.input_value("#layer") == "29"


def test_a_dark_page_is_printed_on_white_with_its_figures_and_without_controls(open_page: Open) -> None:
    page = open_page(load_example("plain"), color_scheme="dark")
    wait_for_the_curve(page)
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf())) <= 3
    page.emulate_media(media="print")
    shown = {name: page.locator(name).is_visible() for name in (".controls", "#alpha", "#heads", "#chart", "#maps")}
    assert shown == {".controls": False, "#alpha": False, "#heads": True, "#chart": True, "#maps": True}
    page.wait_for_timeout(50)
    corner = page.locator("#heads canvas").first.evaluate(
        "(c) => [...c.getContext('2d').getImageData(0, 0, 1, 1).data]"
    )
    assert min(corner) > 150  # the light style's faint input


# Speed and size


def milliseconds(page: Page, moves: int = 15) -> float:
    """The median time of an update, over moves of the slider, after a few to warm up."""
    for move in range(moves + 5):
        set_slider(page, -4 + 0.1 * move)
    times = page.evaluate("performance.getEntriesByName('conv2attn update').map(entry => entry.duration)")
    return float(np.median(times[-moves:]))


def test_49_heads_over_a_large_image_are_cropped_and_stay_usable(open_page: Open) -> None:
    conv = nn.Conv2d(3, 4, 7, padding=3)
    page = open_page(conv, image=drawn_image(3, Size(112, 112)))
    assert page.locator("#heads figure").count() == 49
    assert "Heads show 21 \u00d7 21 pixels around the query" in page.inner_text("#caption")
    assert milliseconds(page) < LARGE_MS
    page.select_option("#extent", "all")
    assert "pixels around the query" not in page.inner_text("#caption")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_the_page_fits_its_width_in_both_colours(width: int, scheme: str, open_page: Open) -> None:
    page = open_page(load_example("residual"), viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    dark = sum(map(int, re.findall(r"\d+", paper)[:3])) < 3 * 128
    assert dark == (scheme == "dark")
