"""What the README, the documents and the tutorial show is what happens."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from conv2attn.commands.prove import describe
from conv2attn.convert.examples.networks import load_example
from conv2attn.proofs.prover.claim import all_claims
from conv2attn.proofs.prover.run import Outcome, Result, Verdict
from tests.language_models import language_model, some_ids

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
ROUNDED = re.compile(r"\d(\.\d)?e[-+]\d\d|0\.0\d\d|[\d,]+(?= times)")  # rounding errors differ between processors
PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]


def assert_prints(code: str, expected: str, names: dict[str, object]) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    assert ROUNDED.sub("small", printed.getvalue()) == ROUNDED.sub("small", expected)


def test_the_examples_print_what_the_pages_say() -> None:
    names: dict[str, object] = {}
    examples = [example for page in PAGES for example in EXAMPLES.findall(page.read_text(encoding="utf-8"))]
    assert len(examples) == 5
    for code, expected in examples:
        assert_prints(code, expected, names)


@pytest.mark.parametrize("page", ["checkpoints", "melting"])
def test_the_other_programs_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (README.parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert programs
    for program in programs:
        exec(program, {"cnn": load_example("plain")})


def test_the_recipes_for_language_models_run_and_find_rounding_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (README.parent / "docs" / "language-models.md").read_text(encoding="utf-8")
    recipes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {"model": language_model(), "ids": some_ids()}
    for recipe in recipes:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(recipe, names)
        assert printed.getvalue().startswith(("Rounding: ", "Same bits: ")), recipe
    assert len(recipes) == 7  # six kinds, and left padding of two


def test_the_tutorial_runs_and_prints_what_it_shows() -> None:
    names: dict[str, object] = {}
    notebook = json.loads((README.parent / "docs" / "tutorial.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 10
    for cell in cells:
        shown = "".join(text for output in cell["outputs"] for text in output.get("text", ()))
        assert_prints("".join(cell["source"]), shown, names)


def test_the_claims_that_are_shown_are_the_claims() -> None:
    held = [Result(claim, (Verdict("", Outcome.HOLDS),)) for claim in all_claims()]
    known = {describe(result)[0].partition(" s  ")[2] for result in held}
    page = README.parent / "docs" / "proofs.md"
    shown = re.findall(r"^proved +[\d.]+ s  (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown
    assert set(shown) <= known


def test_the_page_on_proofs_counts_the_claims() -> None:
    page = (README.parent / "docs" / "proofs.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*\*.*\| (\d+) \|.*\| \*([^*]+)\* \|$", page, re.MULTILINE)
    claims = all_claims()
    assert {label: int(count) for count, label in rows} == Counter(claim.status.value for claim in claims)
    assert f"the {len(claims)} claims" in page


OVERSTATED = {
    "no smaller alpha than alpha_for's is excluded": r"the smallest(?: alpha)? (?:that is|for a tolerance|with which)",
    "check checks the bounds of exact layers with alpha a power of two": r"checks? (?:them|the certificates in)\b",
}
PROMISING = [*PAGES, README.parent / "convert/certificate/tolerance.py", README.parent / "learn/melting.py"]


def test_no_page_promises_more_than_is_proved() -> None:
    for page in PROMISING:
        text = " ".join(page.read_text(encoding="utf-8").split())
        assert [why for why, pattern in OVERSTATED.items() if re.search(pattern, text)] == [], page


def test_every_file_a_page_links_to_exists() -> None:
    for page in PAGES:
        links = re.findall(r"\]\((?!http|#)([^)#]+)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == [], page
