"""The document as Markdown with the mathematics of GitHub."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from ...claims.common.notation import NOTATION
from ..claim import Formula, Kind
from ..prose import render
from ..runner import Result
from .overview import HEADER, LEGEND, rows
from .wording import GENERATED, INTRODUCTION, KINDS, TITLE, sentence, summary, verdict

_COMMAND = "conv2attn prove --format markdown --out docs/theorem.md"


def render_markdown(results: Sequence[Result]) -> str:
    """The document as Markdown."""
    names = [result.claim.name for result in results]
    kinds = [f"- *{kind}*: {KINDS[kind]}" for kind in Kind]
    titles = {result.claim.name: _prose(result.claim.title, names) for result in results}
    contents = [f"| [{titles[name]}](#{name}) | {' | '.join(cells)} |" for name, *cells in rows(results)]
    notation = [f"| ${formula.latex}$ | {_prose(meaning, names)} |" for formula, meaning in NOTATION]
    head = [
        f"<!-- {GENERATED}; to renew it: {_COMMAND} -->",
        *("", f"# {TITLE}", "", INTRODUCTION[0], "", INTRODUCTION[1], "", *kinds),
        *("", "## Notation", "", "| symbol | meaning |", "| --- | --- |", *notation),
        *("", "## Claims", "", summary(results), "", LEGEND, ""),
        *(f"| {' | '.join(HEADER)} |", f"|{' --- |' * len(HEADER)}", *contents, ""),
    ]
    return "\n".join([*head, *(line for result in results for line in _claim(result, names))])


def _claim(result: Result, names: Collection[str]) -> list[str]:
    claim = result.claim
    lines = [
        f"## {claim.name}",
        "",
        f"**{_prose(claim.title, names)}.** Source: {_prose(sentence(claim.source), names)}",
        "",
    ]
    lines += [*_formula(claim.statement), ""]
    lines += _listed("Assumptions", (_prose(text, names) for text in claim.assumptions))
    lines += ["**Derivation**", ""]
    for number, step in enumerate(claim.steps, start=1):
        lines += [f"{number}. {_prose(sentence(step.rule), names)}", "", *_formula(step.formula, indent="   "), ""]
    lines += _listed("Checks", (_check(result, number, names) for number in range(len(claim.checks))))
    lines += _listed("Found against it", map(_escaped, result.failures))
    for heading, items in {"Justifies": claim.justifies, **claim.references}.items():
        lines += _listed(heading, (f"`{item}`" for item in items))
    return lines


def _check(result: Result, number: int, names: Collection[str]) -> str:
    check = result.claim.checks[number]
    cases = "".join(f"\n  - {_prose(case, names)}" for case in check.cases)
    return f"**{verdict(result, check)}** (*{check.kind}*): {_prose(check.name, names)}{cases}"


def _listed(heading: str, items: Iterable[str]) -> list[str]:
    lines = [f"- {item}" for item in items]
    return [f"**{heading}**", "", *lines, ""] if lines else []


def _formula(formula: Formula, indent: str = "") -> list[str]:
    """A displayed formula; in a fence, because Markdown would take backslashes out of anything else."""
    latex = formula.latex
    if r"\\" in latex:
        latex = rf"\begin{{gathered}} {latex} \end{{gathered}}"
    return [f"{indent}{line}" for line in ("```math", latex.strip(), "```")]


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_<>|$`])", r"\\\1", text)


def _prose(text: str, names: Collection[str]) -> str:
    return render(
        text,
        words=_escaped,
        math="${}$".format,
        code=lambda name: f"[{name}](#{name})" if name in names else f"`{name}`",
    )
