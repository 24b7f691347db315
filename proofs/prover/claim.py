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

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

FAMILIES = ("theorem", "computing", "certificate", "sharper", "other_encodings", "errata")  # as the document has them
Named = TypeVar("Named", "Claim", "Heading")
_NEAR = 4  # claims that are suggested
_CLAIMS = f"{__package__.rpartition('.')[0]}.claims"


class Status(StrEnum):
    """Kind of proof that covers a statement's whole scope."""

    COQ = "proved"  # Coq's kernel accepts the statement; algebra is checked besides
    ALGEBRA = "proved by algebra"  # the derivation's formulas are decided for all values of their symbols
    INSTANCES = "tested"  # the derivation is an argument; listed cases are computed


Failures = Iterable[str]  # reasons why a check does not hold, one for each case that was found


@dataclass(frozen=True)
class Check:
    """One decision by machine."""

    name: str  # the checked statement, as a clause in Markdown
    run: Callable[[], Failures]  # gives the failures, none if it holds
    cases: str = ""  # the instances that are covered, like "21 geometries"; empty if all that the claim speaks of are


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
    """A claim with its proof; ``claim`` makes it of a function."""

    body: Callable[..., Checks]  # yields the checks; its docstring is the text
    status: Status  # kind of proof
    scope: str  # scope of the statement, as sentences in Markdown
    source: str = "new"  # where the paper states it; "new" if nowhere
    justifies: tuple[Reference, ...] = ()  # code that relies on it
    # its theorems. If ``status`` is COQ, those of the first file are the statement; otherwise they are a part.
    coq: tuple[Reference, ...] = ()
    tests: tuple[str, ...] = ()  # files below tests/ that test it, or the code that it is about
    is_lemma: bool = False  # whether it belongs to the proposition before it
    variant: Mapping[str, Any] = field(default_factory=dict)  # arguments of the body that make a false variant

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
    code, theorems = (tuple(map(Reference.parse, texts)) for texts in (justifies, coq))
    return lambda body: Claim(body, status, scope, source, code, theorems, tests, is_lemma)


def claim_modules() -> list[str]:
    """The modules of the families, in the order of the document."""
    found = []
    for family in FAMILIES:
        package = importlib.import_module(f"{_CLAIMS}.{family}")
        names = [module.name for module in pkgutil.iter_modules(package.__path__)]
        ordered = [*package.ORDER, *(name for name in names if name not in package.ORDER)]
        found += [f"{package.__name__}.{name}" for name in ordered]
    return found


def claims_of(module: str) -> list[Claim]:
    """The claims that a module makes, in the order in which they stand there."""
    made = importlib.import_module(module)
    return [value for value in vars(made).values() if isinstance(value, Claim) and value.module == module]


def all_claims(modules: Sequence[str] | None = None) -> list[Claim]:
    """All claims of some modules, in order; by default of all that conv2attn has."""
    return [claim for module in (claim_modules() if modules is None else modules) for claim in claims_of(module)]


class Heading(NamedTuple):
    """Name and title of a claim."""

    name: str
    title: str


def claim_headings() -> list[Heading]:
    """The claims of conv2attn in alphabetical order of their files, read from the sources: no sympy is imported."""
    found = []
    for path in sorted(Path(__file__).parents[1].joinpath("claims").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list and _gives_checks(node):
                title = (ast.get_docstring(node) or "").partition("\n")[0].removesuffix(".")
                found.append(Heading(node.name.replace("_", "-"), title))
    return found


def _gives_checks(node: ast.FunctionDef) -> bool:
    return isinstance(node.returns, ast.Name) and node.returns.id == "Checks"


def select(found: Sequence[Named], names: Sequence[str] | None) -> list[Named]:
    """The claims with these names, in the order of ``found``; None means all.

    Raises:
        SelectionError: There is no claim of one of the names; the message has the nearest names.
    """
    if names is None:
        return list(found)
    known = [claim.name for claim in found]
    if unknown := [name for name in dict.fromkeys(names) if name not in known]:
        from ...convert.errors import SelectionError, close_names, listed

        described = listed([f"{name!r}{_near(name, found) or close_names(name, known)}" for name in unknown])
        raise SelectionError(f"there is no claim {described}; conv2attn claims lists all")
    return [claim for claim in found if claim.name in names]


def _near(name: str, found: Sequence[Claim | Heading]) -> str:
    """The end of a sentence that lists the claims whose name or title has all words of a name; empty if none has."""
    words = re.findall(r"\w+", name.lower())
    near = [claim for claim in found if words and all(word in f"{claim.name} {claim.title}".lower() for word in words)]
    named = [f"{claim.name} ({claim.title})" for claim in near[:_NEAR]]
    more = f", and {len(near) - _NEAR} more" if len(near) > _NEAR else ""
    return f"; near it: {', '.join(named)}{more}" if named else ""
