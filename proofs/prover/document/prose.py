r"""Finds the mathematics in a plain sentence: "If alpha > 0, ..." has \alpha > 0 in it.

Sentences in proofs are typed once, as plain text. Where a form can show mathematics, names like Delta_h, powers like
Z^2, and what stands between them in the way of numbers, operators and brackets become formulas; the rest stays words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from enum import Enum, auto
from typing import NamedTuple


class Sort(Enum):
    """What a part of a sentence is."""

    WORDS = auto()
    MATH = auto()  # LaTeX
    CODE = auto()
    CLAIM = auto()  # the name of a claim


class Part(NamedTuple):
    """A part of a sentence."""

    sort: Sort
    text: str


_GREEK = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "Delta",
    "epsilon",
    "theta",
    "lambda",
    "mu",
    "pi",
    "rho",
    "sigma",
    "Sigma",
    "tau",
    "phi",
    "omega",
]
_FUNCTIONS = {
    "exp": r"\exp",
    "max": r"\max",
    "min": r"\min",
    "det": r"\det",
    "log": r"\log",
    "cos": r"\cos",
    "sin": r"\sin",
    "infinity": r"\infty",
}
_OPERATORS = {"<=": r"\le", ">=": r"\ge", "!=": r"\ne", "->": r"\to", "*": "", "...": r"\dots", ".": r"\cdot"}
_SETS = {"Z": r"\mathbb{Z}", "R": r"\mathbb{R}", "N": r"\mathbb{N}"}

_NAME = rf"(?:{'|'.join(_GREEK)}|[A-Za-z])"
_INDEX = rf"(?:\{{[^{{}}]*\}}|(?:{'|'.join(_GREEK)}|[A-Za-z0-9]+)(?:_[A-Za-z0-9]+)?)"
_POWER = r"(?:\{[^{}]*\}|\([^()]*\)|-?[A-Za-z0-9]+(?:_[A-Za-z0-9]+)?)"
_TOKEN = re.compile(
    rf"""(?P<dotted>[A-Za-z]\w*(?:\.[A-Za-z_]\w*)+)
    | (?P<word>\w+(?:['-][A-Za-z]\w*)+ | (?<=\w)'\w+)
    | (?P<function>(?:sum_{_INDEX} | (?:{"|".join(_FUNCTIONS)})(?:_{_INDEX})?) (?![A-Za-z0-9_]))
    | (?P<name>(?:{_NAME}(?:_{_INDEX})?(?:\^{_POWER})? | \d+\^{_POWER}) (?![A-Za-z0-9_]))
    | (?P<code>(?:[a-z]{{2,}}\d*_)+[a-z]\w* | [A-Z][a-z]+[A-Z]\w*)
    | (?P<number>\d+(?:,\d{{3}})*(?:\.\d+)?(?![A-Za-z0-9]))
    | (?P<operator><=|>=|!=|->|\.\.\.|[-+*/=<>|]|(?<=\ )\.(?=\ ))
    | (?P<power>\^{_POWER})
    | (?P<bracket>[()\[\]])
    | (?P<space>\ +)
    | (?P<other>\w+|.)""",
    re.VERBOSE,
)
_ARTICLES = {"a", "A", "I"}  # letters that are words, unless an operator or a bracket is beside them
_AFTER, _BEFORE = re.compile(r" [-+=<>!*/]|[*)_,\[]"), re.compile(r"[-+=<>*/(] ?$")


def parts(sentence: str, claims: Collection[str] = ()) -> list[Part]:
    """Splits a sentence into words, mathematics, code and names of claims."""
    found: list[Part] = []
    run: list[tuple[str, str]] = []
    for kind, text in (*_tokens(sentence), ("end", "")):
        if (
            kind in _IN_RUNS
            or (text in (",", ";") and _depth(run) > 0)
            or (text == "!" and run and run[-1][0] in ("name", "number"))
        ):
            run.append((kind, text))
            continue
        found += _settled(run)
        run = []
        if kind in ("code", "dotted"):
            found.append(Part(Sort.CODE, text))
        elif kind != "end":
            found.append(Part(Sort.CLAIM if text in claims else Sort.WORDS, text))
    return list(_joined(found))


_IN_RUNS = ("function", "name", "number", "operator", "power", "bracket", "space")


def _tokens(sentence: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(sentence):
        kind, text = str(match.lastgroup), match[0]
        if text in _ARTICLES and not (_AFTER.match(sentence, match.end()) or _BEFORE.search(sentence[: match.start()])):
            kind = "other"
        yield kind, text


def _depth(run: list[tuple[str, str]]) -> int:
    texts = [text for _, text in run]
    return texts.count("(") + texts.count("[") - texts.count(")") - texts.count("]")


def _settled(run: list[tuple[str, str]]) -> list[Part]:
    """A run of what may be mathematics, as words, mathematics and words."""
    start, end = 0, len(run)
    while start < end and (run[start][0] == "space" or _is_loose(run[start:end], first=True)):
        start += 1
    while start < end and (run[end - 1][0] == "space" or _is_loose(run[start:end], first=False)):
        end -= 1
    core = run[start:end]
    if not any(kind in ("name", "function") or text in ("<=", ">=", "!=") for kind, text in core):
        return [Part(Sort.WORDS, "".join(text for _, text in run))]
    before, after = ("".join(text for _, text in outer) for outer in (run[:start], run[end:]))
    return [Part(Sort.WORDS, before), Part(Sort.MATH, _latex(core)), Part(Sort.WORDS, after)]


def _is_loose(run: list[tuple[str, str]], *, first: bool) -> bool:
    """Whether the first or last token does not belong to a formula: an open bracket, a dangling operator."""
    kind, text = run[0] if first else run[-1]
    if kind == "bracket":
        opening = text in "(["
        return _depth(run) > 0 if first and opening else _depth(run) < 0 if not first and not opening else True
    if text in ("|", "...", "!"):
        return False
    return (text != "-" if first else True) if kind == "operator" else text == ","


def _latex(run: list[tuple[str, str]]) -> str:
    pieces = []
    for position, (kind, text) in enumerate(run):
        if text == "x" and _is_factor(run, position - 2) and _is_factor(run, position + 2):
            pieces.append(r"\times")
        elif kind in ("name", "function"):
            pieces.append(_name(text))
        elif kind == "power":
            pieces.append(f"^{{{_inner(text[1:])}}}")
        else:
            pieces.append(_OPERATORS.get(text, text.replace(",", "{,}") if kind == "number" else text))
    return " ".join(piece for piece in pieces if piece.strip())


def _is_factor(run: list[tuple[str, str]], position: int) -> bool:
    return 0 <= position < len(run) and run[position][0] in ("number", "name", "bracket")


def _name(text: str) -> str:
    """The LaTeX of a name with its index and power."""
    match = re.fullmatch(rf"(sum|{'|'.join(_FUNCTIONS)}|{_NAME}|\d+)(?:_({_INDEX}))?(?:\^({_POWER}))?", text)
    if match is None:
        return text
    stem, index, power = match.groups()
    latex = _FUNCTIONS.get(stem) or (f"\\{stem}" if stem in (*_GREEK, "sum") else stem)
    if stem in _SETS and power is not None and index is None:
        latex = _SETS[stem]
    return latex + (f"_{{{_inner(index)}}}" if index else "") + (f"^{{{_inner(power)}}}" if power else "")


def _inner(text: str) -> str:
    """The LaTeX of an index or a power."""
    bare = text[1:-1] if text[0] in "{(" else text
    found = [(str(match.lastgroup), match[0]) for match in _TOKEN.finditer(bare)]
    if len(found) == 1 and found[0][0] == "other" and len(bare) > 1:
        return rf"\mathrm{{{bare}}}" if bare.isalpha() and bare.islower() else bare
    return _latex(found)


def _joined(found: list[Part]) -> Iterator[Part]:
    """The parts without empty ones, words next to words put together."""
    words = ""
    for part in found:
        if part.sort is Sort.WORDS:
            words += part.text
            continue
        if words:
            yield Part(Sort.WORDS, words)
        words = ""
        yield part
    if words:
        yield Part(Sort.WORDS, words)
