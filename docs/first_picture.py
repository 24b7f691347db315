"""The first picture: scenes three and four of the article as a loop of ten seconds, and a still; `make first-picture`.

Chromium draws the article, and the script takes a picture of each moment. The loop has the size of README's text.
"""

from __future__ import annotations

import io
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from conv2attn.show.article.write import make_article

SIZE = 860, 452
FRAME_MS = 100
NINE, SHARP = 64, 36  # frames of the scenes
STILL = 40  # the frame that is the still
MOST_BYTES = 700_000
FONT = '20px system-ui, "DejaVu Sans", sans-serif'
STYLE = f"""
  main {{ max-width: none; padding: 12px 20px 0; }}
  header, footer, .setup, .prose, .goes, .says, .written, .hint {{ display: none !important; }}
  .ends, .choice, .factors, h2 span {{ display: none !important; }}
  .scene {{ display: none; margin: 0; }} .scene.taken {{ display: block; }}
  h2 {{ font: 600 {FONT}; }} .stage {{ margin-top: 6px; gap: 14px 22px; }}
  .stage.nine {{ grid-template-columns: 232px 300px 232px; }}
  #nine .heads {{ gap: 4px 8px; }} .profile {{ height: 270px; }} [data-part="fog"] {{ max-width: 350px; }}
"""


def moments() -> Iterator[tuple[str, dict[str, object]]]:
    """The scene and the state of each frame; the last ones lead back to the first."""
    for frame in range(NINE):
        turn = 2 * math.pi * frame / NINE
        query = [round(16 + 9 * math.sin(turn)), round(18 - 11 * math.cos(turn))]
        yield "nine", {"nine.alpha": 2 ** (2 - 3.5 * math.cos(turn)), "query": query}
    for frame in range(SHARP):
        yield "sharp", {"sharp.alpha": 2 ** (-3 + 9.8 * (1 - abs(1 - 2 * frame / SHARP)))}


def frames(page: Page) -> Iterator[Image.Image]:
    """The pictures of all moments."""
    page.add_style_tag(content=STYLE)
    before = None
    for scene, state in moments():
        if scene != before:
            page.evaluate(
                "id => document.querySelectorAll('.scene').forEach((e) => e.classList.toggle('taken', e.id === id))",
                scene,
            )
            before = scene
        page.evaluate("([scene, state]) => { article.state.set(state, scene); article.drawAll(); }", [scene, state])
        yield Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def taken() -> list[Image.Image]:
    """Opens the article in Chromium and takes the pictures."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "article.html"
        path.write_text(make_article(), encoding="utf-8")
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        view = {"width": SIZE[0], "height": SIZE[1]}
        page = browser.new_page(viewport=view, reduced_motion="reduce", bypass_csp=True)  # the style is inlined
        page.goto(path.as_uri())
        return list(frames(page))


def main() -> None:
    """Writes first.webp and first.png into the folder that is the only argument."""
    folder, pictures = Path(sys.argv[1]), taken()
    options = {"save_all": True, "append_images": pictures[1:], "duration": FRAME_MS, "loop": 0}
    pictures[0].save(folder / "first.webp", quality=50, method=3, **options)
    colours = Image.Quantize.MAXCOVERAGE  # the orange is on few pixels
    still = pictures[STILL].quantize(256, method=colours, dither=Image.Dither.NONE)
    still.save(folder / "first.png", optimize=True)
    size = (folder / "first.webp").stat().st_size
    print(f"Wrote {folder}/first.webp, {size:,} bytes, and first.png")
    if size > MOST_BYTES:
        raise SystemExit(f"the loop is larger than {MOST_BYTES:,} bytes")


if __name__ == "__main__":
    main()
