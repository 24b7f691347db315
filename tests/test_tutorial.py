"""The tutorial's cells run one after another, and print what the notebook shows."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tutorial.ipynb"
ROUNDED = re.compile(r"\d(\.\d)?e[-+]\d\d|0\.0\d\d")  # rounding errors differ between processors


def test_the_tutorial_runs_and_prints_what_it_shows() -> None:
    names: dict[str, object] = {}
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 10
    for cell in cells:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec("".join(cell["source"]), names)
        shown = "".join(text for output in cell["outputs"] for text in output.get("text", ()))
        assert ROUNDED.sub("small", printed.getvalue()) == ROUNDED.sub("small", shown)
