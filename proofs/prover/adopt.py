"""Makes a claim of today's form of one in the old form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .claim import Check, Checks, Claim, Reference, Status
from .old import claim as old
from .old.prose import render

_ROOT = Path(__file__).parents[2]


def adopted(given: Any, module: str = "") -> Claim:
    """A claim of the old form as one of today's; one of today's as it is."""
    if not isinstance(given, old.Claim):
        return given  # type: ignore[no-any-return]
    checks = [Check(_prose(check.name), check.run, _prose(_cases(check))) for check in given.checks]

    def body() -> Checks:
        yield from checks

    body.__name__, body.__module__ = given.name.replace("-", "_"), module
    lines = [f"{_prose(given.title)}.", "", *_formula(given.statement), ""]
    lines += [f"- {_prose(text)}" for text in given.assumptions]
    for number, step in enumerate(given.steps, start=1):
        lines += ["", f"{number}. {_prose(step.rule)}", "", *_formula(step.formula, "   ")]
    body.__doc__ = "\n".join(lines)
    return Claim(
        body,
        Status.INSTANCES if any(check.cases for check in checks) else Status.ALGEBRA,
        "As assumed below.",
        _prose(given.source),
        tuple(map(_code, given.justifies)),
        tuple(Reference(f"{name.split('.')[0]}.v", (name.split(".")[1],)) for name in given.formal),
        tuple(map(_test, given.tests)),
    )


def _cases(check: old.Check) -> str:
    return check.cases[0] if len(check.cases) == 1 else f"{len(check.cases)} cases" if check.cases else ""


def _code(dotted: str) -> Reference:
    words = dotted.split(".")[1:]
    parts = next(n for n in range(len(words), 0, -1) if (_ROOT / "/".join(words[:n])).with_suffix(".py").exists())
    return Reference(f"{'/'.join(words[:parts])}.py", (".".join(words[parts:]),))


def _test(dotted: str) -> Reference:
    module, _, name = dotted.rpartition(".")
    return Reference(f"{module.replace('.', '/')}.py", (name,))


def _formula(formula: old.Formula, indent: str = "") -> list[str]:
    latex = formula.latex
    if r"\\" in latex:
        latex = rf"\begin{{gathered}} {latex} \end{{gathered}}"
    return [f"{indent}{line}" for line in ("```math", latex.strip(), "```")]


def _prose(text: str) -> str:
    return render(text, words=str, math="${}$".format, code="`{}`".format)
