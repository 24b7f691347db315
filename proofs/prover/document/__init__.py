"""Renders claims with what their checks said: as text, Markdown, LaTeX or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ..runner import Result
from .data import render_json
from .latex import render_latex
from .markdown import render_markdown
from .text import render_text
from .wording import MARKS

RENDERERS: dict[str, Callable[[Sequence[Result]], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "latex": render_latex,
    "json": render_json,
}


def render(results: Sequence[Result], form: str) -> str:
    """The document of these results.

    Only JSON holds timings: the other forms are the same on every machine, so that they can be committed.

    Args:
        results: What ``prove`` returned.
        form: "text", "markdown", "latex" or "json".
    """
    return RENDERERS[form](results)


def document_file(path: Path | None) -> AbstractContextManager[Callable[[str], None]]:
    """Takes the place of a document, and gives what writes it; nothing happens without a path.

    Raises:
        OutputError: The file cannot be written, or holds something that is no such document.
    """
    if path is None:
        return nullcontext(lambda _: None)
    from ....convert.files.write import marked_file  # imports torch, which no claim needs

    return marked_file(path, marks=MARKS)
