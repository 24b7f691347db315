"""What the README and the documents show is what happens."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from conv2attn.proofs.prover.claim import all_claims
from conv2attn.proofs.prover.document import describe
from conv2attn.proofs.prover.run import Outcome, Result, Verdict

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
SMALL_NUMBER = re.compile(r"\d\.\de-\d\d")  # rounding errors differ between processors


PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]


def test_the_examples_print_what_the_pages_say() -> None:
    names: dict[str, object] = {}
    examples = [example for page in PAGES for example in EXAMPLES.findall(page.read_text(encoding="utf-8"))]
    assert len(examples) == 3
    for code, expected in examples:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert SMALL_NUMBER.sub("small", printed.getvalue()) == SMALL_NUMBER.sub("small", expected)


@pytest.mark.parametrize("page", ["README.md", "docs/proofs.md"])
def test_the_claims_that_are_shown_are_the_claims(page: str) -> None:
    text = (README.parent / page).read_text(encoding="utf-8")
    held = [Result(claim, (Verdict("", Outcome.HOLDS),)) for claim in all_claims()]
    known = {describe(result)[0].partition(" s  ")[2] for result in held}
    shown = re.findall(r"^holds +[\d.]+ s  (.*)$", text, re.MULTILINE)
    assert shown
    assert set(shown) <= known


OVERSTATED = {
    "no smaller alpha than alpha_for's is excluded": r"the smallest(?: alpha)? (?:that is|for a tolerance|with which)",
    "check checks the bounds of exact layers with alpha a power of two": r"checks? (?:them|the certificates in)\b",
}
PROMISING = [*PAGES, README.parent / "convert/certificate/tolerance.py", README.parent / "learn/melting/melt.py"]


@pytest.mark.parametrize("page", PROMISING, ids=lambda page: page.name)
def test_no_page_promises_more_than_is_proved(page: Path) -> None:
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert {why: re.findall(pattern, text) for why, pattern in OVERSTATED.items()} == {why: [] for why in OVERSTATED}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_short_enough_to_read() -> None:
    assert len(re.sub(r"\]\([^)]*\)", "]", README.read_text(encoding="utf-8"))) < 10_000  # without where links lead
