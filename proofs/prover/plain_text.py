r"""Markdown with LaTeX as text for a terminal: formulas in Unicode, nothing of the notation left.

The claims use a closed set of LaTeX: what is not in ``_SYMBOLS`` and takes no argument is the name of a function, like
\cos, and stands for itself. A test holds that no claim leaves a backslash or a dollar.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata

_WIDTH = 100  # characters of a line
_PAIRS = (
    "le \u2264 ge \u2265 ne \u2260 to \u2192 in \u2208 notin \u2209 pm \u00b1 sum \u03a3 prod \u03a0 int \u222b "
    "infty \u221e top \u1d40 square \u220e iff \u27fa implies \u27f9 cdot \u00b7 times \u00d7 otimes \u2297 vert | "
    "| \u2016 { { } } dots ... cdots ... lfloor \u230a rfloor \u230b lbrace { rbrace }"
)
_SPACES = {"quad": "  ", "qquad": "   ", ",": " ", " ": " ", ";": " ", ":": " "}
_NOTHING = ("left", "right", "bigl", "bigr", "Bigl", "Bigr", "!")
_SYMBOLS = dict(zip(_PAIRS.split()[::2], _PAIRS.split()[1::2], strict=True)) | _SPACES | dict.fromkeys(_NOTHING, "")
_GREEK = {"varepsilon": "epsilon", "vartheta": "theta", "varphi": "phi"}
_MARKS = {"bar": "\u0304", "hat": "\u0302", "tilde": "\u0303"}  # combining, behind the letter
_NAMES = {"operatorname", "mathrm", "mathbb", "text"}  # their argument is a word as it is
_RAISED = str.maketrans(
    "0123456789+-()nij",
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207a\u207b\u207d\u207e\u207f\u2071\u02b2",
)
_LOWERED = str.maketrans("0123456789+-()", "".join(map(chr, range(0x2080, 0x208F))).replace("\u208c", ""))
_TOKEN = re.compile(r"\\(?:[a-zA-Z]+|.)|\s+|.", re.DOTALL)
_STARS = re.compile(r"\*\*|(?<![\w*])\*(?=\S)|(?<=\S)\*(?!\w)")
_BLACKBOARD = {"R": "\u211d", "N": "\u2115", "Z": "\u2124"}


def plain_text(markdown: str) -> str:
    """The text of Markdown, in lines of a terminal's width; formulas and programs of their own are indented."""
    lines: list[str] = []
    for part in re.split(r"(^```.*?^```$)", markdown, flags=re.DOTALL | re.MULTILINE):
        kind, _, inside = part.removeprefix("```").removesuffix("```").strip("\n").partition("\n")
        if part.startswith("```"):
            shown = formula(inside) if kind == "math" else inside
            broken = [line for long in shown.split("\n") for line in (_folded(long) if kind == "math" else [long])]
            lines += ["", *(f"    {line}".rstrip() for line in broken), ""]
        else:
            lines += [wrapped for line in part.strip("\n").split("\n") for wrapped in _wrapped(plain_line(line))]
    return "\n".join(lines).strip("\n") + "\n"


def _wrapped(line: str) -> list[str]:
    """The lines of a paragraph or a list's item; a table's row stays one."""
    bullet = re.match(r"\s*(?:[-*] |\d+\. )?", line)
    return [line] if line.startswith("|") else _folded(line, bullet.end() if bullet else 0)


def _folded(line: str, indent: int = 4) -> list[str]:
    fold = textwrap.TextWrapper(_WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return fold.wrap(line) or [""]


def plain_line(line: str) -> str:
    """A line without marks, its formulas in Unicode; what stands in backquotes is no Markdown."""
    found = []
    for part in re.split(r"(\$[^$]+\$|`[^`]+`)", re.sub(r"<a id=[^>]*></a>", "", line)):
        if part.startswith("$"):
            found.append(formula(part.strip("$")))
        else:
            found.append(part.strip("`") if part.startswith("`") else _STARS.sub("", part))
    text = re.sub(r"^#+ ", "", "".join(found))
    return re.sub(r"\[([^][]*)\]\([^()]*\)", r"\1", text)


def formula(tex: str) -> str:
    """A formula in Unicode; one of several lines keeps them."""
    return "\n".join(re.sub(r" +", " ", line).strip() for line in _Reader(tex).text().split("\n")).strip("\n")


class _Reader:
    def __init__(self, tex: str) -> None:
        self._tokens = iter(_TOKEN.findall(tex))

    def text(self, end: str | None = None) -> str:
        """Text up to a token, or to the end."""
        found = ""
        for token in self._tokens:
            if token == end:
                break
            found += self._scripts(token) if token in "^_" else self._one(token)
        return found

    def _argument(self) -> str:
        token = next((token for token in self._tokens if not token.isspace()), "")
        return self.text("}") if token == "{" else self._one(token)

    def _one(self, token: str) -> str:
        if token == "{":
            return self.text("}")
        if token in "&~" or token.isspace():
            return " "
        if token == "\\\\":
            return "\n"
        return self._macro(token[1:]) if token.startswith("\\") and len(token) > 1 else token

    def _macro(self, name: str) -> str:
        if name in ("frac", "tfrac"):
            above, below = self._argument(), self._argument()
            return f"{_bracketed(above)}/{_bracketed(below, product=True)}"
        if name == "sqrt":
            return f"\u221a{_bracketed(self._argument(), product=True)}"
        if name in _NAMES:
            word = self._argument()
            return _BLACKBOARD.get(word, word)
        if name in _MARKS:
            return self._argument() + _MARKS[name]
        if name in ("begin", "end"):
            self._argument()
            return ""
        if name == "underbrace":
            return self._argument()
        return _SYMBOLS[name] if name in _SYMBOLS else _letter(name) or name

    def _scripts(self, token: str) -> str:
        inside, small = self._argument().strip(), _RAISED if token == "^" else _LOWERED
        if inside == _SYMBOLS["top"]:
            return inside
        if inside and all(ord(letter) in small for letter in inside):
            return inside.translate(small)
        is_one = (inside.isascii() and inside.isalnum()) or (inside.startswith("(") and inside.endswith(")"))
        return token + (inside if is_one else f"({inside})")


def _letter(name: str) -> str | None:
    small = _GREEK.get(name, name)
    case = "CAPITAL" if small[0].isupper() else "SMALL"
    try:
        return unicodedata.lookup(f"GREEK {case} LETTER {'LAMDA' if small.lower() == 'lambda' else small.upper()}")
    except KeyError:
        return None


def _bracketed(text: str, *, product: bool = False) -> str:
    """A numerator or denominator, in brackets where it would not be read as one."""
    text = text.strip()
    parts = " +-/,=<>" if product else "+-/,=<>"
    closed = text.startswith("(") and text.endswith(")") and text.count("(") == 1
    return text if closed or not any(mark in text.lstrip("-") for mark in parts) else f"({text})"
