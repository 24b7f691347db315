r'''A claim is a function: its docstring states and derives it, its body yields the checks that a machine runs.

    @claim(status=Status.COQ, scope="Real numbers.", justifies=("convert/heads/encoding.py: head_vectors",))
    def encoding_identity(*, head_vector=HEAD_VECTOR) -> Checks:
        r"""The quadratic encoding scores by distance.

        For every $\delta$: $v_h \cdot r_\delta = {=score}$.

        **Proof.** Complete the square.
        """
        score = -alpha * distance(delta, center)
        yield equal("the inner product is the score", dot(ENCODING, head_vector), score)

The docstring is Markdown with LaTeX; its first line is the title. A field ``{=expression}`` is replaced by the LaTeX of
the expression, evaluated with the body's variables as they are at its last ``yield``: what is printed is what is
checked. Arguments of the function are what could be wrong; called with others, a claim is a false variant of itself.
'''

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple


class Status(StrEnum):
    """Kind of proof that covers a statement's whole scope."""

    COQ = "Coq"  # Coq's kernel accepts the statement; algebra is checked besides
    ALGEBRA = "algebra checked"  # the derivation's formulas are decided for all values of their symbols
    INSTANCES = "argued, instances checked"  # the derivation is an argument; listed cases are computed


@dataclass(frozen=True)
class Check:
    """One decision by machine.

    Attributes:
        name: The checked statement, as a clause in Markdown.
        run: Returns the failures, empty if it holds.
        cases: The instances that are covered, like "21 geometries"; empty if all that the claim speaks of are.
    """

    name: str
    run: Callable[[], list[str]]
    cases: str = ""


Checks = Generator[Check, None, None]


class Reference(NamedTuple):
    """Names in a file, written "convert/heads/encoding.py: head_vectors, relative_encoding"."""

    path: str
    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Reference:
        """The reference of a text."""
        path, _, names = text.partition(": ")
        return cls(path, tuple(names.split(", ")))


@dataclass(frozen=True, eq=False)
class Claim:
    """A claim with its proof; ``claim`` makes it of a function.

    Attributes:
        body: Yields the checks; its docstring is the text.
        status: Kind of proof.
        scope: Scope of the statement, as sentences in Markdown.
        source: Where the paper states it; "new" if nowhere.
        justifies: Code that relies on it.
        coq: Its theorems. If ``status`` is COQ, those of the first file are the statement; otherwise they are a part.
        tests: Tests of it, or of the code that it is about.
        is_lemma: Whether it belongs to the proposition before it.
        variant: Arguments of the body that make a false variant.
    """

    body: Callable[..., Checks]
    status: Status
    scope: str
    source: str = "new"
    justifies: tuple[Reference, ...] = ()
    coq: tuple[Reference, ...] = ()
    tests: tuple[Reference, ...] = ()
    is_lemma: bool = False
    variant: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, **variant: Any) -> Claim:
        """The claim with other arguments of the body, as a false variant has."""
        return replace(self, variant=variant)

    @property
    def name(self) -> str:
        """Short name for the command line, like "encoding-identity"."""
        return self.body.__name__.replace("_", "-")

    @property
    def module(self) -> str:
        """The module that makes it."""
        return self.body.__module__

    @property
    def file(self) -> str:
        """The file that makes it, from the top of the project."""
        return f"{self.module.removeprefix('conv2attn.').replace('.', '/')}.py"

    @property
    def title(self) -> str:
        """Title for people."""
        return self._docstring.partition("\n")[0].removesuffix(".")

    @property
    def text(self) -> str:
        """Statement and derivation, with their fields."""
        return self._docstring.partition("\n")[2].strip()

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks that a machine decides."""
        return self._evaluated[0]

    @property
    def names(self) -> dict[str, Any]:
        """Values that the fields of the text may name."""
        return {**self.body.__globals__, **self._evaluated[1]}

    @property
    def _docstring(self) -> str:
        return inspect.cleandoc(self.body.__doc__ or "")

    @cached_property
    def _evaluated(self) -> tuple[tuple[Check, ...], dict[str, Any]]:
        """The checks, and the body's variables at its last yield."""
        checks, variables, running = [], dict[str, Any](), self.body(**self.variant)
        for check in running:
            checks.append(check)
            variables = inspect.getgeneratorlocals(running)
        return tuple(checks), variables


def claim(
    *,
    status: Status,
    scope: str,
    source: str = "new",
    justifies: tuple[str, ...] = (),
    coq: tuple[str, ...] = (),
    tests: tuple[str, ...] = (),
    is_lemma: bool = False,
) -> Callable[[Callable[..., Checks]], Claim]:
    """Turns a function into a claim; the arguments are the attributes of ``Claim``, with references as texts."""
    code, theorems, tested = (tuple(map(Reference.parse, texts)) for texts in (justifies, coq, tests))
    return lambda body: Claim(body, status, scope, source, code, theorems, tested, is_lemma)
