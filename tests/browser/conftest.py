"""A headless Chromium with an empty profile, and pages that are opened from files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from torch import Tensor, nn

from conv2attn.convert.network.convert import convert_model
from conv2attn.convert.network.report import Report
from conv2attn.show.page.write import make_page
from conv2attn.show.pictures.scene import set_alpha

Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; without one, the tests fail."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or "chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], headless=True)
        yield opened
        opened.close()


@pytest.fixture
def open_html(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens HTML as one file, at a fragment, in a fresh profile; then no error is logged and nothing is asked for."""
    complaints: list[str] = []
    asked: list[str] = []

    def open_html(html: str, fragment: str = "", **options: Any) -> Page:
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        page = browser.new_context(**({"viewport": {"width": 1280, "height": 1000}} | options)).new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path.as_uri() + fragment)
        return page

    yield open_html
    for context in browser.contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []
    assert len([url for url in asked if url.startswith("file://")]) == 1


@pytest.fixture
def open_page(open_html: Open) -> Open:
    """Opens the page of a network, as ``open_html``."""

    def open_page(
        network: nn.Module, *, alpha: float | None = None, image: Tensor | None = None, **options: Any
    ) -> Page:
        model, _ = convert_model(network.eval())
        if alpha is not None:
            set_alpha(model, alpha)
        return open_html(make_page(model, Report.of(model), title="A network", image=image).text, **options)

    return open_page
