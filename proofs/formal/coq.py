"""The theorems in Coq, as a reader finds them in ``proofs/formal``, and Coq's answers on them.

Results are called ``Theorem`` or ``Corollary``; a ``Lemma`` is a step on the way, an ``Example`` shows what a
definition means.

Coq's kernel compiles every file. Print Assumptions lists the axioms of every theorem, and an axiom beyond those of the
real numbers is an objection, so that nothing admitted passes. coqchk, a checker of its own, reads the compiled files
once more, and all of the standard library and Flocq that they need. Last, Coq evaluates its formulas for tau, and
``tau_lower`` and ``tau_upper`` must give the same fractions. What is not understood of an answer is an objection.

    theta_partial(q, N) = 1 + 2 sum_{n=1..N} q^(n^2)  <=  theta_3(q)  <=  theta_partial(q, N) + 2 q^((N+1)^2) / (1 - q)

so tau = 1 - theta_3(q)^-2 lies between what the two give; the theorem ``tau_enclosed`` of ``Enclosure.v`` says so.
``convert.bounds.tail.tail_fraction`` is tested against these formulas.

Everything is written to a temporary folder. Coq is not installed with conv2attn: it is no Python package.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ...show.text import Table

FOLDER = Path(__file__).parent
PROJECT = "_CoqProject"  # lists the files, each after those it needs
LIBRARY = "Conv2Attn"

_STATEMENT = re.compile(r"^ *(?:Theorem|Corollary) ([\w']+)(.*?)\.\n *Proof\.", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\(\*.*?\*\)", re.DOTALL)
# What the standard library's real numbers rest on, and the excluded middle, by which it proves that exp grows: the name
# of each axiom in a table, and what it says.
AXIOMS = {
    "ClassicalDedekindReals.sig_not_dec": ("S1", "not P or not not P can be decided"),
    "ClassicalDedekindReals.sig_forall_dec": (
        "S2",
        "of decidable P, all n have it or a counterexample can be found",
    ),
    "FunctionalExtensionality.functional_extensionality_dep": ("F", "functions with the same values are the same"),
    "Classical_Prop.classic": ("C", "P or not P"),
}


@dataclass(frozen=True)
class Statement:
    """A theorem as it stands in its file."""

    module: str  # the file without its suffix, like "Theorem1"
    name: str
    source: str  # its statement, as its file has it

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


class FormalTheorem(NamedTuple):
    """A theorem that the kernel accepted, and the axioms that it uses beyond Coq's logic."""

    statement: Statement
    axioms: tuple[str, ...]


@dataclass(frozen=True)
class FormalResult:
    """Coq's answer."""

    coq: str  # its version
    theorems: tuple[FormalTheorem, ...]  # all of them, if all files were accepted
    failures: tuple[str, ...]  # objections against them
    seconds: float

    @property
    def is_proved(self) -> bool:
        """Whether every theorem was accepted, on the axioms of the real numbers alone."""
        return bool(self.theorems) and not self.failures

    @property
    def exit_code(self) -> int:
        """0 if every theorem was accepted."""
        return int(not self.is_proved)

    def to_json(self) -> dict[str, Any]:
        """The theorems as plain data."""
        theorems = [
            {"name": str(theorem.statement), "statement": theorem.statement.text, "axioms": list(theorem.axioms)}
            for theorem in self.theorems
        ]
        answer = {"coq": self.coq, "proved": self.is_proved, "theorems": theorems}
        return answer | {"failures": list(self.failures), "seconds": self.seconds}

    def shown(self) -> list[Table | str]:
        """A row for each theorem with its axioms, then the axioms, and the verdict."""
        rows = []
        for theorem in self.theorems:
            short = sorted(AXIOMS[name][0] if name in AXIOMS else name for name in theorem.axioms)
            rows.append((str(theorem.statement), " ".join(short) or "nothing"))
        axioms = [f"  {short:2}  {name}: {text}" for name, (short, text) in AXIOMS.items()]
        resting = ["The axioms of the standard library's real numbers:", *axioms] if rows else []
        accepted = f"Coq {self.coq} accepts {len(rows)} theorems, and coqchk the library, in {self.seconds:.0f} s."
        verdict = accepted if self.is_proved else "Not proved."
        return [Table(("theorem", "rests on"), tuple(rows)), *resting, *self.failures, verdict]


DEFAULT_LIMIT = 300.0  # seconds a file
TOOLS = ("coqc", "coqchk")
CLOSED = "Closed under the global context"

_SECTION = re.compile(r"^\* (.+?):(.*?)(?=^\* |\Z)", re.MULTILINE | re.DOTALL)
_PREDICATIVE = "Theory"  # the one section of coqchk's summary that is never empty
_FRACTION = re.compile(r"(\d+)\s*#\s*(\d+)")


class KernelError(Exception):
    """A program of Coq refused a file, or took too long."""


def check_formal(
    *,
    folder: Path = FOLDER,
    limit: float = DEFAULT_LIMIT,
    whole: bool = True,
    progress: Callable[[int], None] = lambda _: None,
) -> FormalResult:
    """Checks the formal proofs with Coq.

    Args:
        folder: The library: its files and _CoqProject.
        limit: Seconds that each file, and each later check, may take.
        whole: Have coqchk read what the library needs of other libraries, too.
        progress: Called with 1 after each file.

    Raises:
        ToolError: Coq is not installed.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        from ...convert.errors import ToolError  # imports torch, which no proof needs

        raise ToolError(
            f"the formal proofs need Coq 8.16 or later with Flocq, and {' and '.join(missing)} cannot be found; "
            "install them with: apt-get install coq libcoq-flocq"
        )
    start = time.monotonic()
    theorems: list[FormalTheorem] = []
    failures: list[str] = []
    with TemporaryDirectory(prefix="conv2attn-formal-") as name:
        # Coq writes beside its sources, so it works on a copy.
        coq = _Coq(Path(name), limit)
        for path in filter(Path.is_file, folder.iterdir()):
            shutil.copyfile(path, coq.place / path.name)
        version = coq.run("coqc", "--print-version").split()[0]
        try:
            for source in sources(coq.place):
                coq.compile(source.name)
                progress(1)
            # What each theorem rests on must be among the axioms that are known.
            theorems = _theorems(coq)
            failures += [] if theorems else ["there is no theorem"]
            failures += [f"{t.statement} rests on {name}" for t in theorems for name in t.axioms if name not in AXIOMS]
            # coqchk reads the compiled files again, on its own.
            alone = () if whole else ("-norec",)
            modules = [word for source in sources(coq.place) for word in (*alone, f"{LIBRARY}.{source.stem}")]
            failures += summary_objections(coq.run("coqchk", "-silent", "-o", "-Q", ".", LIBRARY, *modules))
            failures += _tau_objections(coq)
        except KernelError as error:
            failures.append(str(error))
    return FormalResult(version, tuple(theorems), tuple(failures), time.monotonic() - start)


@dataclass(frozen=True)
class _Coq:
    """Coq, working on a copy of the library."""

    place: Path  # the folder with the copy
    limit: float  # seconds that each run may take

    def run(self, *command: str) -> str:
        """Runs a program, and returns its output.

        Raises:
            KernelError: It failed or took too long.
        """
        try:
            done = subprocess.run(
                command,
                cwd=self.place,
                timeout=self.limit,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
            )
        except subprocess.TimeoutExpired as error:
            raise KernelError(f"{' '.join(command)}: stopped after {self.limit:g} s") from error
        if done.returncode != 0:
            raise KernelError(f"{command[0]} refused: {' '.join((done.stderr or done.stdout).split())}")
        return done.stdout + done.stderr

    def compile(self, name: str) -> None:
        self.run("coqc", "-q", "-Q", ".", LIBRARY, name)

    def ask(self, name: str, lines: list[str]) -> None:
        """Compiles a file of queries, whose answers are redirected to files."""
        (self.place / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.compile(name)

    def answer(self, name: object) -> str:
        return (self.place / f"{name}.out").read_text(encoding="utf-8")


def _theorems(coq: _Coq) -> list[FormalTheorem]:
    """Every theorem with the axioms that Print Assumptions lists for it."""
    found = statements(coq.place)
    modules = " ".join(dict.fromkeys(statement.module for statement in found))
    queries = [f'Redirect "{statement}" Print Assumptions {LIBRARY}.{statement}.' for statement in found]
    coq.ask("Assumptions.v", [f"From {LIBRARY} Require {modules}.", *queries])
    return [FormalTheorem(statement, axioms_of(coq.answer(statement))) for statement in found]


def axioms_of(printed: str) -> tuple[str, ...]:
    """The axioms that Print Assumptions lists; a line of another kind is listed as it is."""
    lines = [line for line in printed.splitlines() if line.strip()]
    if lines == [CLOSED]:
        return ()
    if not lines or lines[0] != "Axioms:":
        return (f"not understood: {printed.strip()!r}",)
    named = [line for line in lines[1:] if not line[0].isspace()]
    return tuple(re.split(r"\s*:\s*|\s+", line)[0] if re.match(r"[\w.']+(\s|$)", line) else line for line in named)


def summary_objections(printed: str) -> list[str]:
    """Objections in the summary of coqchk -o against a library: an axiom of its own, or a skipped check.

    It lists all axioms of everything that is loaded, and the sealed definitions of the standard library among them;
    what a theorem uses of those is for ``axioms_of`` to say.
    """
    sections = dict(_SECTION.findall(printed.partition("CONTEXT SUMMARY")[2]))
    if _PREDICATIVE not in sections or "Axioms" not in sections:
        return [f"coqchk: its answer was not understood: {printed.strip()[-200:]!r}"]
    del sections[_PREDICATIVE]
    axioms = [name for name in sections.pop("Axioms").split() if name != "<none>"]
    skipped = [f"{name}: {' '.join(text.split())}" for name, text in sections.items() if "<none>" not in text]
    return [f"coqchk: {what}" for what in (*(f"the axiom {n}" for n in axioms if not n.startswith("Coq.")), *skipped)]


def _tau_objections(coq: _Coq) -> list[str]:
    """Objections where Coq does not evaluate its formulas for tau to the fractions that these functions give."""
    names = ("tau_lower", "tau_upper")
    terms = [f"({bound} ({q.numerator} # {q.denominator}) {n})" for q, n in POINTS for bound in names]
    needed = ["From Coq Require Import QArith List.", "Import ListNotations."]
    needed.append(f"From {LIBRARY} Require Import Enclosure.")
    coq.ask("Values.v", [*needed, f'Redirect "values" Eval vm_compute in [{"; ".join(terms)}].'])
    found = [Fraction(int(a), int(b)) for a, b in _FRACTION.findall(coq.answer("values"))]
    expected = [bound(q, n) for q, n in POINTS for bound in (tau_lower, tau_upper)]
    return [] if found == expected else [f"tau: Coq evaluates {found}, proofs/formal/coq.py {expected}"]


# Values of q and numbers of terms at which Coq's formulas and these are compared.
POINTS = ((Fraction(1, 10), 1), (Fraction(1, 2), 4), (Fraction(2, 3), 5), (Fraction(99, 100), 2), (Fraction(1, 7), 1))


def theta_partial(q: Fraction, terms: int) -> Fraction:
    """The series of theta_3 cut after q^(terms^2)."""
    return 1 + 2 * sum((q ** (n * n) for n in range(1, terms + 1)), Fraction(0))


def theta_upper(q: Fraction, terms: int) -> Fraction:
    """The same, plus what is left at most."""
    return theta_partial(q, terms) + 2 * q ** ((terms + 1) ** 2) / (1 - q)


def tau_lower(q: Fraction, terms: int) -> Fraction:
    """At most tau, for 0 < q = exp(-alpha) < 1; grows with q and with the number of terms."""
    return 1 - 1 / theta_partial(q, terms) ** 2


def tau_upper(q: Fraction, terms: int) -> Fraction:
    """At least tau, likewise; grows with q."""
    return 1 - 1 / theta_upper(q, terms) ** 2
