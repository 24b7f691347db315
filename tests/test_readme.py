"""What the README shows is what happens."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from conv2attn.proofs.prover.registry import entries

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
SMALL_NUMBER = re.compile(r"\d\.\de-\d\d")  # rounding errors differ between processors


def test_the_readmes_examples_print_what_it_says() -> None:
    examples = EXAMPLES.findall(README.read_text(encoding="utf-8"))
    assert len(examples) == 3
    names: dict[str, object] = {}
    for code, expected in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert SMALL_NUMBER.sub("small", printed.getvalue()) == SMALL_NUMBER.sub("small", expected)


def test_the_claims_the_readme_shows_are_the_claims() -> None:
    text = README.read_text(encoding="utf-8")
    claims = {entry.claim.name: entry.claim.title for entry in entries()}
    shown = re.findall(r"^proved +[\d.]+ s  ([\w-]+): (.*)$", text, re.MULTILINE)
    assert shown
    assert dict(shown).items() <= claims.items()
    assert f"\n{len(claims)} of {len(claims)} claims proved.\n" in text


def test_every_file_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\((?!http)([^)]+)\)", README.read_text(encoding="utf-8"))
    assert links
    assert all((README.parent / link).exists() for link in links)
