"""One thing has one name: the words that docs/words.md lists as not used are used nowhere that a user reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIST = ROOT / "docs" / "words.md"
READ = ("README.md", "docs/**/*", "benchmarks/*.md", "cli.py", "commands/*.py", "show/**/*")  # help, page, article, too
TEXTS = {".md", ".ipynb", ".html", ".svg", ".js", ".css", ".py"}
BETWEEN = r"""(?:\\n|[\s"',*_])+"""  # a line's end, also of a string in Python or JSON, and emphasis


def unused() -> list[str]:
    """The words in the last column of the list."""
    rows = re.findall(r"^\|.*\|.*\|(.*)\|$", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def found_in(text: str, words: list[str]) -> Iterator[tuple[int, str]]:
    """The line and the word of each occurrence."""
    for word in words:
        pattern = BETWEEN.join(map(re.escape, word.split()))
        for place in re.finditer(rf"(?<!\w){pattern}(?!\w)", text, re.IGNORECASE):
            yield text.count("\n", 0, place.start()) + 1, word


def test_no_text_uses_a_word_that_the_list_replaces() -> None:
    words, paths = unused(), [path for pattern in READ for path in ROOT.glob(pattern) if path.suffix in TEXTS]
    assert len(words) > 10
    assert len(paths) > 80
    told = []
    for path in paths:
        if path != LIST:
            found = found_in(path.read_text(encoding="utf-8"), words)
            told += [f"{path.relative_to(ROOT)}:{line}: {word}" for line, word in found]
    assert told == [], "\n".join(["docs/words.md has the words that are used instead of", *told])


@pytest.mark.parametrize(
    "planted",
    [
        "a\nLocality strength",
        "a\nthe *locality*\nstrength",
        'a\nhelp="Its locality " "strength."',
        '"a\n",\n"locality\\n", "strength"',
    ],
)
def test_a_planted_word_is_found_with_its_line(planted: str) -> None:
    assert [word for _, word in found_in(planted, unused())] == ["locality strength"]
    assert next(found_in("a\nusual rounding", unused())) == (2, "usual rounding")
