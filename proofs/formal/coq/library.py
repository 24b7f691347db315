"""The theorems that are stated in Coq, in ``proofs/formal``, as a reader finds them there.

Results are called ``Theorem`` or ``Corollary``; a ``Lemma`` is a step on the way, an ``Example`` shows what a
definition means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1]
PROJECT = "_CoqProject"  # lists the files, each after those it needs
LIBRARY = "Conv2Attn"

_STATEMENT = re.compile(r"^ *(?:Theorem|Corollary) ([\w']+)(.*?)\.\n *Proof\.", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)


@dataclass(frozen=True)
class Statement:
    """A theorem as it stands in its file.

    Attributes:
        module: Name of the file without its suffix, like "Theorem1".
        name: Name of the theorem.
        source: Its statement, as its file has it.
    """

    module: str
    name: str
    source: str

    @property
    def text(self) -> str:
        """Its statement, on one line."""
        return " ".join(self.source.split())

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


def sources(folder: Path = FOLDER) -> list[Path]:
    """The files of the library in the order in which they are compiled."""
    lines = (folder / PROJECT).read_text(encoding="utf-8").split()
    return [folder / line for line in lines if line.endswith(".v")]


def statements(folder: Path = FOLDER) -> list[Statement]:
    """The theorems of the library, in the order of its files."""
    return [
        Statement(path.stem, name, text)
        for path in sources(folder)
        for name, text in _STATEMENT.findall(_COMMENT.sub("", path.read_text(encoding="utf-8")))
    ]
