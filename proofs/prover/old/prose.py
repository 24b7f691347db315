r"""Texts of claims: sentences that mark mathematics, ``$alpha > 0$``, and, in backquotes, code and names of claims.

What is marked is typed once, the way a terminal shows it. ``latex`` translates mathematics sign by sign: Delta_h
becomes \Delta_{h}, R^D_p a power of the real numbers, C_in x C_out a product, and a longer name an operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MARKED = re.compile(r"(\$[^$]*\$|`[^`]*`)")

_SIGNS = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", "->": r"\to", "...": r"\dots", "*": " ", "infinity": r"\infty"}
_SIGNS |= {" x ": r" \times ", " . ": r" \cdot ", " (x) ": r" \otimes "}
_COMMAND = re.compile(
    "alpha|beta|gamma|delta|epsilon|eta|theta|lambda|mu|pi|rho|sigma|tau|phi|omega|Delta|Sigma|Phi"
    "|exp|ln|log|max|min|det|cos|sin|tanh|sum|sqrt|hat"
)
_GROUP = r"\{[^{}]*\}|\((?:[^()]|\([^()]*\))*\)"
_TOKEN = re.compile(
    rf"""(?P<sign><=|>=|!=|->|\.\.\.|(?<=\w)\*(?=[\w(])|infinity|(?<=[\w)])\ (?:x|\.|\(x\))\ (?=[\w(]))
    | (?P<set>[RZ])\^(?P<dimension>{_GROUP}|\w+)
    | (?P<place>[_^])(?P<script>{_GROUP}|-?[A-Za-z0-9]+|\*)
    | (?P<name>[A-Za-z]{{2,}})""",
    re.VERBOSE,
)


def plain(text: str) -> str:
    """The text without its marks, as a terminal shows it."""
    return re.sub(r"[$`]", "", text)


def render(text: str, *, words: Callable[[str], str], math: Callable[[str], str], code: Callable[[str], str]) -> str:
    """The text with each part in the form that its function gives it.

    Args:
        text: With marks.
        words: Called with what is not marked.
        math: Called with the LaTeX of what stands between dollar signs.
        code: Called with what stands between backquotes.
    """
    marked = {"$": lambda part: math(latex(part[1:-1])), "`": lambda part: code(part[1:-1])}
    return "".join(marked.get(part[0], words)(part) for part in _MARKED.split(text) if part)


def latex(formula: str) -> str:
    r"""Translates a formula as a terminal shows it: ``Delta_h != 0`` is \Delta_{h} \ne 0."""
    return _TOKEN.sub(_translated, formula)


def _translated(token: re.Match[str]) -> str:
    if token["sign"]:
        return _SIGNS[token["sign"]]
    if token["set"]:
        return rf"\mathbb{{{token['set']}}}^{{{_script(token['dimension'])}}}"
    if token["place"]:
        return f"{token['place']}{{{_script(token['script'])}}}"
    name = token["name"]
    return rf"\{name}" if _COMMAND.fullmatch(name) else rf"\operatorname{{{name}}}"


def _script(text: str) -> str:
    """The LaTeX of an index or a power: brackets around the whole are left out, and a word is upright."""
    bare = text[1:-1] if text[0] in "{(" else text
    if not bare.isalpha() or _COMMAND.fullmatch(bare):
        return latex(bare)
    return rf"\mathrm{{{bare}}}" if bare.islower() and len(bare) > 1 else bare
