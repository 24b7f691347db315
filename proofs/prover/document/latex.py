r"""The document as LaTeX: amsmath and hyperref, nothing that a small installation lacks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from ...claims.common.notation import NOTATION
from ..claim import Formula, Kind
from ..prose import plain, render
from ..runner import Result
from .wording import GENERATED, INTRODUCTION, KINDS, TITLE, sentence, summary, verdict

_PREAMBLE = r"""\documentclass[11pt]{article}
\usepackage[a4paper, margin=27mm]{geometry}
\usepackage{amsmath, amssymb}
\usepackage[hidelinks]{hyperref}
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.6ex plus 0.4ex}
\newcommand{\code}[1]{\texttt{\small\def\_{\textunderscore\allowbreak}#1}}
\newcommand{\head}[1]{\par\textbf{#1}\par}
\renewcommand{\labelitemi}{$\bullet$}
\allowdisplaybreaks
\raggedright
\makeatletter
\@beginparpenalty=10000 % a heading stays with its list
\renewcommand*{\l@section}{\@dottedtocline{1}{0em}{2.3em}}
\makeatother
\begin{document}
"""

_ESCAPES = {
    **{character: rf"\{character}" for character in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
}


def render_latex(results: Sequence[Result]) -> str:
    """The document as LaTeX."""
    names = [result.claim.name for result in results]
    kinds = [rf"\item[{kind}] {KINDS[kind]}" for kind in Kind]
    rows = [rf"${formula.latex}$ & {_prose(meaning, names)} \\" for formula, meaning in NOTATION]
    lines = [
        f"% {GENERATED}",
        _PREAMBLE + rf"\begin{{center}}\LARGE {_prose(TITLE, names)}\end{{center}}",
        *(_prose(text, names) + "\n" for text in INTRODUCTION),
        *(r"\begin{description}\setlength{\itemsep}{0pt}", *kinds, r"\end{description}"),
        rf"\textbf{{{_prose(summary(results), names)}}}",
        r"\tableofcontents",
        *(r"\section*{Notation}", r"\begin{tabular}{@{}ll@{}}", *rows, r"\end{tabular}"),
        *(line for result in results for line in _claim(result, names)),
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"


def _claim(result: Result, names: Collection[str]) -> list[str]:
    claim = result.claim
    title = rf"\texorpdfstring{{{_prose(claim.title, names)}}}{{{_escaped(plain(claim.title))}}}"
    facts = (
        rf"\code{{{_escaped(claim.name)}}}: \textbf{{{result.status}}}. Source: {_prose(sentence(claim.source), names)}"
    )
    return [
        "",
        rf"\section{{{title}}}\label{{{claim.name}}}",
        facts,
        _display(claim.statement),
        *_listed("Assumptions", (_prose(sentence(text), names) for text in claim.assumptions)),
        *_steps(result, names),
        *_listed("Checks", (_check(result, number, names) for number in range(len(claim.checks)))),
        *_listed("Found against it", map(_escaped, result.failures)),
        *_references({"Justifies": claim.justifies, **claim.references}),
    ]


def _references(listed: Mapping[str, Iterable[str]]) -> list[str]:
    return [
        line
        for heading, items in listed.items()
        for line in _listed(heading, (rf"\code{{{_escaped(item)}}}" for item in items))
    ]


def _steps(result: Result, names: Collection[str]) -> list[str]:
    lines = [r"\head{Derivation}", r"\begin{enumerate}"]
    for step in result.claim.steps:
        rows = [rf"$\displaystyle {row}$ \\" for row in _rows(step.formula.latex)]
        lines += [r"\item", *rows, rf"{{\small {_prose(sentence(step.rule), names)}}}"]
    return [*lines, r"\end{enumerate}"]


def _check(result: Result, number: int, names: Collection[str]) -> str:
    check = result.claim.checks[number]
    cases = "; ".join(_prose(case, names) for case in check.cases)
    listed = rf" \\ {{\small {cases}.}}" if cases else ""
    return (
        rf"\textbf{{{verdict(result, check)}}} (\emph{{{check.kind}}}): {_prose(sentence(check.name), names)}{listed}"
    )


def _listed(heading: str, items: Iterable[str]) -> list[str]:
    lines = [rf"\item {item}" for item in items]
    opening = r"\begin{itemize}\setlength{\itemsep}{0pt}"
    return [rf"\head{{{heading}}}", opening, *lines, r"\end{itemize}"] if lines else []


def _display(formula: Formula) -> str:
    rows = r" \\ ".join(_rows(formula.latex))
    return rf"\begin{{gather*}} {rows} \end{{gather*}}"


def _rows(latex: str) -> list[str]:
    r"""The lines of a formula: split at every \\ that is not inside an environment."""
    rows, depth = [""], 0
    for piece in re.split(r"(\\begin\{|\\end\{|\\\\)", latex):
        depth += (piece == r"\begin{") - (piece == r"\end{")
        if piece == r"\\" and depth == 0:
            rows.append("")
        else:
            rows[-1] += piece
    return [row.strip() for row in rows]


def _escaped(text: str) -> str:
    quoted = re.sub(r'(?<![^\s(])"', "``", text).replace('"', "''")  # opening after a space or a bracket
    return "".join(_ESCAPES.get(character, character) for character in quoted)


def _prose(text: str, names: Collection[str]) -> str:
    def code(name: str) -> str:
        known = rf"\hyperref[{name}]{{{_escaped(name)}}}~\S\ref{{{name}}}"
        return known if name in names else rf"\code{{{_escaped(name)}}}"

    return render(text, words=_escaped, math="${}$".format, code=code)
