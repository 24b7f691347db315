"""Everyone can use the pages: axe-core finds nothing, the keyboard reaches everything, programs are lint-clean."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Page
from torch import nn

from conv2attn.convert import convert_model
from conv2attn.convert.network.graft import graft
from conv2attn.convert.network.report import Report
from conv2attn.learn.experiment.folder import History, LayerRecord
from conv2attn.learn.heads.positions import Grid
from conv2attn.show.article.write import make_article
from conv2attn.show.page.write import film_page, make_page
from tests.browser.conftest import Open

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "node"
"""Where ``make build/node`` puts axe-core and ESLint."""


def report() -> str:
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 5, stride=2)).eval()
    model, _ = convert_model(graft(network, where="0", heads=2).model)
    nn.init.ones_(model.get_submodule("0").spare_out)  # type: ignore[arg-type]
    return make_page(model, Report.of(model), title="A network").text


def film() -> str:
    heads, grid = 4, Grid(4, 6, padding=1)
    maps = torch.rand(heads, grid.key_rows, grid.key_columns)
    shape = torch.tensor([[1.0, 0.1, 0.5]]).expand(heads, 3)
    layer = LayerRecord(torch.zeros(heads, 2), shape, maps, torch.zeros(heads, 2), 0.25, 1.0, 1.5, 2.0)
    return film_page(History("quadratic", 0, grid, [0.1, 0.5], [[layer], [layer]]), title="A run")


PAGES = {"article": make_article, "report": report, "film": film}


def violations(page: Page) -> list[str]:
    page.evaluate((TOOLS / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    return [f"{each['id']}: {node['html'][:150]}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing(kind: str, width: int, scheme: str, open_html: Open) -> None:
    page = open_html(
        PAGES[kind](), viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert violations(page) == []
    if kind == "article":
        page.get_by_role("button", name="Hide the text").click()
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert violations(page) == []


@pytest.mark.fault
def test_a_control_without_a_name_is_found(open_html: Open) -> None:
    page = open_html(make_article().replace("<label>Image <select", "<label><select"), reduced_motion="reduce")
    assert [each for each in violations(page) if each.startswith("select-name")] != []


def test_the_keyboard_goes_through_the_article_in_the_order_of_reading_and_shows_where_it_is(open_html: Open) -> None:
    page = open_html(make_article(), reduced_motion="reduce")
    tops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        at = page.evaluate(
            """() => { const element = document.activeElement;
                 const style = getComputedStyle(element.matches("input[type=file]") ? element.parentElement : element);
                 const section = element.closest("section")?.id ?? "";
                 const { outlineStyle, outlineWidth } = style;
                 return { name: element.tagName, section, outline: outlineStyle, width: parseFloat(outlineWidth) }; }"""
        )
        if at["name"] == "BODY":
            break
        assert at["outline"] != "none", at
        assert at["width"] >= 1, at
        tops.append(at["section"])
    sections = list(dict.fromkeys(tops))
    assert sections == ["", "sum", "head", "nine", "sharp", "border", "blur", "spare"][: len(sections)]
    assert len(sections) >= 7


def test_programs_are_lint_clean(tmp_path: Path) -> None:
    for folder in ("page", "article"):
        shutil.copytree(ROOT / "show" / folder / "static", tmp_path / folder)
    shutil.copy(ROOT / "tests" / "browser" / "eslint.config.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(TOOLS / "node_modules")
    command = ["node", str(TOOLS / "node_modules" / "eslint" / "bin" / "eslint.js"), "page", "article"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
