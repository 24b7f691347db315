"""The article in a browser: it is moved by mouse, keys and links, takes files, and says what it cannot take."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Page
from safetensors.torch import save, save_file

from conv2attn.show.article.write import make_article
from tests.browser.conftest import Open

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SCENES = ("sum", "head", "nine", "sharp", "border", "blur", "spare")
MOST_BYTES = 2_000_000
STILL: dict[str, Any] = {"reduced_motion": "reduce"}  # nothing moves by itself
LATE_MS = 100  # medians were 3 to 12 ms; a machine that does other things is slower


@pytest.fixture
def article(open_html: Open) -> Page:
    """The article, without motion."""
    return open_html(make_article(), **STILL)


def get(page: Page, name: str) -> Any:
    return page.evaluate("name => article.state.get(name)", name)


def drag(page: Page, selector: str, start: tuple[float, float], end: tuple[float, float], steps: int = 6) -> None:
    """Drags from one place of an element to another, in shares of its width and height."""
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + end[0] * box["width"], box["y"] + end[1] * box["height"], steps=steps)
    page.mouse.up()


def png(rows: int, columns: int, value: int = 90) -> Any:
    file = io.BytesIO()
    Image.new("RGB", (columns, rows), (value, value, value)).save(file, "PNG")
    return {"name": "mine.png", "mimeType": "image/png", "buffer": file.getvalue()}


def settled(page: Page, scene: str, part: str) -> str:
    """The text of a part of a scene once everything is drawn."""
    page.evaluate("article.drawAll()")
    return page.inner_text(f"#{scene} [data-part={part}]")


def numbers(page: Page, scene: str) -> Any:
    return page.evaluate(
        """scene => JSON.parse(JSON.stringify(article.scenes[scene].numbers(),
             (_, value) => ArrayBuffer.isView(value) ? [...value] : value))""",
        scene,
    )


def said(page: Page) -> str:
    return page.inner_text("#setup-says")


# What the file is


def test_the_article_of_the_documents_is_what_the_command_writes() -> None:
    assert (ROOT / "docs" / "article" / "index.html").read_text(encoding="utf-8") == make_article()


def test_the_article_is_small(article: Page) -> None:
    assert len(make_article().encode()) < MOST_BYTES
    assert [scene.get_attribute("id") for scene in article.locator("section").all()] == list(SCENES)


# Moving


@pytest.mark.parametrize("scene", ["sum", "nine", "blur"])
def test_dragging_moves_the_query_of_all_scenes(scene: str, article: Page) -> None:
    drag(article, f"#{scene} [data-part=image]", (0.5, 0.5), (0.26, 0.75))
    rows, columns = 42, 42  # with the padding
    assert get(article, "query") == [int(0.75 * rows) - 1, int(0.26 * columns) - 1]
    words = f"({int(0.75 * rows) - 1}, {int(0.26 * columns) - 1})"
    assert words in settled(article, "sum", "says")


def test_dragging_beyond_the_image_stays_inside(article: Page) -> None:
    drag(article, "#border [data-part=image]", (0.5, 0.5), (3.0, -2.0))
    assert get(article, "border.query") == [0, 39]


def test_dragging_moves_the_bottom_of_the_bowl_to_the_pointer(article: Page) -> None:
    article.locator("#head").scroll_into_view_if_needed()
    to = article.evaluate("article.scenes.head.place([2, -3])")
    size = article.evaluate(
        "(({ clientWidth, clientHeight }) => [clientWidth, clientHeight])(article.scenes.head.canvas)"
    )
    drag(article, "#head [data-part=surface]", (0.5, 0.5), (to[0] / size[0], to[1] / size[1]))
    assert get(article, "head.at") == [2, -3]
    assert "v = (\u22120.250, 1.00, \u22121.50)" in settled(article, "head", "vector")


@pytest.mark.parametrize("scene", ["sum", "nine", "border", "blur", "spare"])
def test_the_keyboard_moves_what_the_mouse_moves(scene: str, article: Page) -> None:
    name = {"border": "border.query", "spare": "spare.token"}.get(scene, "query")
    part = "page" if scene == "spare" else "image"
    article.focus(f"#{scene} [data-part={part}]")
    row, column = get(article, name)
    article.keyboard.press("ArrowDown")
    article.keyboard.press("ArrowRight")
    assert get(article, name) == [row + 1, column + 1]
    article.keyboard.press("ArrowLeft")
    article.keyboard.press("Shift+ArrowUp")
    assert get(article, name) == [max(row - 4, 0), column]


def test_a_finger_moves_the_query(open_html: Open) -> None:
    page = open_html(make_article(), has_touch=True, viewport={"width": 360, "height": 760}, **STILL)
    page.locator("#sum [data-part=image]").scroll_into_view_if_needed()
    box = page.locator("#sum [data-part=image]").bounding_box()
    assert box is not None
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert get(page, "query") == [20, 20]


def test_scenes_that_are_hidden_are_drawn_to_their_end(article: Page) -> None:
    article.evaluate("document.querySelectorAll('section').forEach((section) => { section.style.display = 'none'; })")
    assert article.evaluate("article.drawAll() ?? 'drawn'") == "drawn"


def test_pressing_a_head_takes_its_weight_away(article: Page) -> None:
    before = article.evaluate("article.scenes.nine.numbers().sum")
    added = article.evaluate("article.scenes.nine.numbers().added[4]")
    article.locator("#nine [data-part=heads] button").nth(4).click()
    article.evaluate("article.drawAll()")
    assert article.locator("#nine [data-part=heads] button").nth(4).get_attribute("aria-pressed") == "true"
    assert article.evaluate("article.scenes.nine.numbers().sum") == pytest.approx(before - added, abs=1e-12)


def test_103_still_counts_and_104_does_not(article: Page) -> None:
    article.locator("#sharp").get_by_role("button", name="\u03b1 = 103").click()
    assert "1.40 \u00d7 10⁻⁴⁵: it still counts" in settled(article, "sharp", "written")
    assert "5 pixels get any attention" in settled(article, "sharp", "says")
    article.locator("#sharp").get_by_role("button", name="\u03b1 = 104").click()
    assert "exactly 0" in settled(article, "sharp", "written")
    assert "one pixel gets any attention" in settled(article, "sharp", "says")
    article.locator("#sharp").get_by_role("button", name="\u03b1 = 745").click()
    assert "it still counts" in settled(article, "sharp", "written")
    article.locator("#sharp").get_by_role("button", name="746").click()
    assert "exactly 0" in settled(article, "sharp", "written")


def test_why_the_sum_of_heads_is_not_the_convolution_is_said_where_it_is_not(article: Page) -> None:
    article.evaluate("article.state.set({ 'nine.alpha': 2 })")
    assert "heads still see a blur" in settled(article, "nine", "says")
    article.evaluate("article.state.set({ 'nine.alpha': 746 })")
    assert "here." in settled(article, "nine", "says")
    assert "blur" not in settled(article, "nine", "says")
    article.evaluate("article.state.set({ 'nine.off': '4' })")
    assert "another kernel" in settled(article, "nine", "says")


def test_with_the_padded_keys_nothing_is_wrong(article: Page) -> None:
    padding = article.locator("#border [data-part=image] path")
    assert "156 of 1,600 outputs are wrong (9.8 %)" in settled(article, "border", "written")
    assert padding.get_attribute("fill") == "var(--paper)"
    article.check("#border [data-part=padded]")
    assert "none of 1,600 outputs is wrong" in settled(article, "border", "written")
    assert str(padding.get_attribute("fill")).startswith("url(#hatch")


def test_at_a_corner_four_heads_of_nine_see_its_pixel_and_two_each_the_pixels_beside_it(article: Page) -> None:
    article.evaluate("article.state.set({ 'border.query': [0, 0] })")
    shares = numbers(article, "border")["attentions"]
    seen = [tuple(max(range(len(one)), key=one.__getitem__) for one in head.values()) for head in shares]
    assert sorted(seen.count(place) for place in set(seen)) == [1, 2, 2, 4]
    assert seen.count((1, 1)) == 4  # of the padded image


def test_all_controls_change_the_geometry_and_the_kernel(article: Page) -> None:
    article.get_by_role("button", name="Hide the text").click()
    assert not article.locator("#sum .prose").is_visible()
    article.fill("#stride", "2")
    article.press("#stride", "Tab")
    assert article.evaluate("article.subject.output_size") == [20, 20]
    article.fill("#kernel", "0 1 0 0")
    article.press("#kernel", "Tab")
    assert article.evaluate("article.subject.kernel_size") == [2, 2]
    article.fill("#kernel", "1 2 3")
    article.press("#kernel", "Tab")
    assert "A kernel is a square of numbers" in said(article)


# Links and history


def test_a_link_shows_the_state_and_the_scene_it_was_made_in(open_html: Open) -> None:
    words = "nine?layer=sobel&query=3,33&nine.alpha=0.5"
    page = open_html(make_article(), f"#{words}", **STILL)
    assert (get(page, "nine.alpha"), get(page, "query"), get(page, "layer")) == (0.5, [3, 33], "sobel")
    page.wait_for_timeout(100)
    assert page.evaluate("Math.abs(document.getElementById('nine').getBoundingClientRect().top) < 200")
    assert page.evaluate("article.state.link") == f"#{words}"


@pytest.mark.parametrize(
    "words", ["query=3", "query=a,b", "nine.alpha=-1", "nine.alpha=NaN", "image=<img>", "layer=x", "what=1", "&&=="]
)
def test_what_is_no_value_of_a_link_is_left_out(words: str, article: Page) -> None:
    article.evaluate("hash => { location.hash = hash; }", f"#nine?{words}")
    article.wait_for_timeout(50)
    assert get(article, "nine.alpha") == 128
    assert get(article, "query") == [12, 14]
    assert article.input_value("#layer") == "emboss"


def test_the_back_button_returns_to_the_state_before(article: Page) -> None:
    first = get(article, "query")
    drag(article, "#sum [data-part=image]", (0.5, 0.5), (0.8, 0.8))
    second = get(article, "query")
    article.select_option("#layer", "sobel")
    article.go_back()
    assert (get(article, "layer"), get(article, "query")) == ("emboss", second)
    assert article.input_value("#layer") == "emboss"
    article.go_back()
    assert get(article, "query") == first
    article.go_forward()
    assert get(article, "query") == second


# Files


def safetensors(header: object, body: bytes = b"", length: int | None = None) -> dict[str, Any]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    content = struct.pack("<Q", len(text) if length is None else length) + text + body
    return {"name": "net.safetensors", "mimeType": "application/octet-stream", "buffer": content}


def entry(shape: list[object], start: int, end: int, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


KERNEL = entry([1, 1, 3, 3], 0, 36)
DAMAGED: dict[str, tuple[Any, str]] = {
    "short": ({"name": "net.safetensors", "mimeType": "", "buffer": b"1234"}, "it has 4 bytes"),
    "huge header": (safetensors({}, length=2**62), "its header would have 4,611,686,018,427,388,000 bytes"),
    "cut header": (safetensors({}, length=99), "it ends within its header"),
    "no JSON": (safetensors(b"{'a'"), "its header is not JSON"),
    "no UTF-8": (safetensors(b'{"\xff": 1}'), "its header is not JSON"),
    "a list": (safetensors([1]), "its header names no tensors"),
    "null": (safetensors({"weight": None}), "has no shape or place"),
    "negative": (safetensors({"weight": entry([1, 1, -3, 3], 0, 36)}, bytes(36)), "has no shape or place"),
    "fraction": (safetensors({"weight": entry([1, 1, 4.5, 2], 0, 36)}, bytes(36)), "has no shape or place"),
    "dtype": (
        safetensors({"weight": entry([1, 1, 3, 3], 0, 36, "constructor")}, bytes(36)),
        "of a kind that is not known",
    ),
    "too large": (safetensors({"weight": entry([9, 9, 3, 3], 0, 36)}, bytes(36)), "does not fit its place"),
    "beyond": (safetensors({"weight": entry([1, 1, 3, 3], 36, 72)}, bytes(36)), "does not fit its place"),
    "cut": (safetensors({"weight": KERNEL}, bytes(20)), "does not fit its place"),
    "overlap": (safetensors({"a.weight": KERNEL, "b.weight": KERNEL}, bytes(36)), "overlap, or leave bytes out"),
    "hole": (safetensors({"weight": KERNEL}, bytes(40)), "overlap, or leave bytes out"),
    "no kernel": (safetensors({"weight": entry([3, 3], 0, 36)}, bytes(36)), "holds no convolution over two axes"),
    "not finite": (safetensors({"weight": KERNEL}, b"\xff" * 36), "are not all finite"),
    "not a picture": ({"name": "x.png", "mimeType": "image/png", "buffer": b"\x89PNG hello"}, "is not a picture"),
    "text": ({"name": "x.txt", "mimeType": "text/plain", "buffer": b"hello"}, "is not a picture"),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(kind: str, article: Page) -> None:
    file, reason = DAMAGED[kind]
    before = article.evaluate("article.state.link")
    article.set_input_files("#own-network", file)
    article.get_by_text(reason).wait_for()
    assert said(article).count(". ") == 0
    assert article.evaluate("article.state.link") == before
    drag(article, "#sum [data-part=image]", (0.5, 0.5), (0.1, 0.1))
    assert get(article, "query") == [3, 3]


@pytest.mark.parametrize(
    ("rows", "columns", "shown"), [(1, 1, [1, 1]), (10_000, 10_000, [64, 64]), (5, 3_000, [1, 64])]
)
def test_pictures_of_any_size_are_shown(rows: int, columns: int, shown: list[int], article: Page) -> None:
    article.set_input_files("#own-image", png(rows, columns))
    article.get_by_text(f"shown with {shown[0]} \u00d7 {shown[1]} pixels").wait_for()
    article.evaluate("article.drawAll()")
    assert article.evaluate("article.subject.input_size") == shown
    article.select_option("#image", "cat")
    assert article.evaluate("article.subject.input_size") == [40, 40]


def test_a_kernel_that_does_not_fit_is_refused_and_undone(article: Page) -> None:
    article.evaluate("article.state.set({ padding: 'valid', layer: 'log' })")
    article.set_input_files("#own-image", png(2, 2))
    article.get_by_text("The kernel does not fit on an image of 2 \u00d7 2 pixels.").wait_for()
    assert article.input_value("#image") == "cat"
    article.evaluate("article.drawAll()")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_safetensors_file_gives_its_convolutions(dtype: torch.dtype, article: Page) -> None:
    weight, bias = torch.randn(3, 2, 5, 2).to(dtype), torch.randn(3).to(dtype)
    content = save({"stem.weight": weight, "stem.bias": bias, "fc.weight": torch.zeros(2, 2), "bn.num": torch.ones(2)})
    file: Any = {"name": "net.safetensors", "mimeType": "", "buffer": content}
    article.set_input_files("#own-network", file)
    article.get_by_text("1 convolution found").wait_for()
    layer = article.evaluate(
        "(({ weight, bias, shape }) => ({ weight: [...weight], bias: [...bias], shape }))(article.setup.chosen().layer)"
    )
    assert layer["shape"] == [3, 2, 5, 2]
    assert layer["weight"] == weight.double().flatten().tolist()
    assert layer["bias"] == bias.double().tolist()


def test_names_from_a_file_are_text(article: Page, tmp_path: Path) -> None:
    save_file({"<img src=x onerror=alert(1)>.weight": torch.ones(1, 1, 2, 2)}, tmp_path / "net.safetensors")
    article.set_input_files("#own-network", tmp_path / "net.safetensors")
    article.get_by_text("1 convolution found").wait_for()
    assert article.locator("#layer option:checked").inner_text() == "yours: <img src=x onerror=alert(1)>"
    assert article.locator("img").count() == 0


def test_a_picture_can_be_dropped_and_pasted(article: Page) -> None:
    give = """([type, target]) => { const transfer = new DataTransfer();
      const bytes = Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0));
      transfer.items.add(new File([bytes], `${type}.png`, { type: "image/png" }));
      const event = type === "drop" ? new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true })
        : new ClipboardEvent(type, { clipboardData: transfer, bubbles: true });
      document.querySelector(target).dispatchEvent(event); }"""
    data = base64.b64encode(png(7, 9)["buffer"]).decode()
    for kind in ("drop", "paste"):
        article.evaluate(give.replace("atob(png)", f"atob('{data}')"), [kind, "#blur"])
        article.get_by_text(f"{kind}.png: shown with 7 \u00d7 9 pixels").wait_for()


# Print


def test_the_article_is_printed_on_five_pages_without_holes_in_its_sentences(article: Page) -> None:
    assert len(re.findall(rb"/Type\s*/Page\b", article.pdf())) <= 5
    article.emulate_media(media="print")
    assert "In single precision, at \u03b1 = 103, a neighbour\u2019s share" in " ".join(
        article.inner_text("#sharp .prose").split()
    )
    assert not article.locator("#setup").is_visible()
    buttons = [each for each in article.locator("#sharp button:not(.go), #spare button").all() if each.is_visible()]
    assert [button.inner_text() for button in buttons] == ["single precision"]
    paper = article.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert paper == "rgb(255, 255, 255)"


# Motion and speed


def test_a_scene_moves_by_itself_once_and_a_touch_ends_it(open_html: Open) -> None:
    page = open_html(make_article())
    page.locator("#nine").scroll_into_view_if_needed()
    page.wait_for_timeout(800)
    assert get(page, "nine.alpha") != 128
    page.keyboard.press("Tab")
    page.wait_for_timeout(100)
    stopped = get(page, "nine.alpha")
    page.wait_for_timeout(300)
    assert get(page, "nine.alpha") == stopped
    assert page.evaluate("location.hash") == ""


def test_nothing_moves_by_itself_for_people_who_ask_for_that(article: Page) -> None:
    article.locator("#nine").scroll_into_view_if_needed()
    article.wait_for_timeout(600)
    assert get(article, "nine.alpha") == 128


@pytest.mark.parametrize("scene", SCENES)
def test_dragging_shifts_nothing_and_is_quick(scene: str, article: Page) -> None:
    article.evaluate(
        """() => { window.shifts = [];
             const seen = (list) => window.shifts.push(...list.getEntries().map((entry) => entry.value));
             new PerformanceObserver(seen).observe({ type: "layout-shift", buffered: false }); }"""
    )
    article.set_input_files("#own-image", png(64, 64))
    article.get_by_text("shown with 64 \u00d7 64 pixels").wait_for()
    part = {"head": "surface", "sharp": None, "spare": "page"}.get(scene, "image")
    article.locator(f"#{scene}").scroll_into_view_if_needed()
    article.evaluate("performance.clearMeasures(); window.shifts.length = 0")
    if part is not None:
        drag(article, f"#{scene} [data-part={part}]", (0.2, 0.2), (0.9, 0.6), steps=40)
    for slider in article.locator(f"#{scene} input[type=range]:visible").all():
        for value in range(0, 65, 2):
            slider.evaluate("(e, value) => { e.value = value; e.dispatchEvent(new Event('input')); }", value)
            article.evaluate("() => new Promise(requestAnimationFrame)")
    times = article.evaluate("performance.getEntriesByName('conv2attn update').map((entry) => entry.duration)")
    assert len(times) > 10
    print(f"\n{scene}: median {np.median(times):.1f} ms, 95 % {np.percentile(times, 95):.1f} ms of {len(times)}")
    assert float(np.median(times)) < LATE_MS
    assert article.evaluate("window.shifts") == []
