"""The document as plain text, for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ..claim import Claim
from ..prose import plain
from ..runner import Result
from .wording import GENERATED, KINDS, TITLE, sentence, summary, verdict

WIDTH = 100


def render_text(results: Sequence[Result]) -> str:
    """The document as plain text."""
    head = [TITLE, "=" * len(TITLE), "", f"{GENERATED}.", summary(results), ""]
    return "\n".join([*head, *(line for result in results for line in (*_claim(result), ""))])


def _claim(result: Result) -> list[str]:
    claim = result.claim
    heading = f"{claim.name}: {plain(claim.title)}"
    return [
        heading,
        "-" * len(heading),
        f"  {result.status}; source: {plain(claim.source)}",
        "",
        *_formula(claim.statement.text, "    "),
        "",
        *_listed("Assumptions", map(plain, claim.assumptions)),
        *_steps(claim),
        *_checks(result),
        *_listed("Found against it", result.failures),
        *_listed("Justifies", claim.justifies),
        *(line for heading, items in claim.references.items() for line in _listed(heading, items)),
    ]


def _listed(heading: str, items: Iterable[str]) -> list[str]:
    lines = [line for item in items for line in _wrapped(item, "    - ")]
    return [f"  {heading}", *lines, ""] if lines else []


def _steps(claim: Claim) -> list[str]:
    lines = ["  Derivation"]
    for number, step in enumerate(claim.steps, start=1):
        lines += _formula(step.formula.text, f"    {number}. ")
        lines += _wrapped(plain(sentence(step.rule)), "         ")
    return [*lines, ""]


def _checks(result: Result) -> list[str]:
    lines = ["  Checks"]
    for check in result.claim.checks:
        lines += _wrapped(
            f"{verdict(result, check)}: {plain(check.name)} [{check.kind}: {KINDS[check.kind]}]", "    - "
        )
        lines += [line for case in check.cases for line in _wrapped(plain(case), "        - ")]
    return [*lines, ""]


def _formula(text: str, start: str) -> list[str]:
    first, *others = text.splitlines()
    indent = " " * len(start)
    return [*_wrapped(first, start), *(line for other in others for line in _wrapped(other, indent))]


def _wrapped(text: str, start: str) -> list[str]:
    indent = " " * len(start)
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
