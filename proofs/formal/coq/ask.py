"""Has Coq's kernel check the theorems of ``proofs/formal``, and says which axioms each of them rests on.

Every file is compiled; Print Assumptions lists the axioms of every theorem, and an axiom beyond those of the real
numbers is an objection, so that nothing admitted passes; coqchk, a checker of its own, reads the compiled files once
more, and all of the standard library and Flocq that they need; last, Coq evaluates its formulas for tau, and
``proofs/formal/coq/enclosure.py`` must give the same fractions.

Everything is written to a temporary folder. Coq is not installed with conv2attn: it is no Python package.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from .answers import assumption_queries, axioms_of, evaluation_query, fractions_of, summary_objections
from .enclosure import POINTS, tau_lower, tau_upper
from .library import FOLDER, LIBRARY, sources, statements
from .outcome import AXIOMS, FormalResult, FormalTheorem

DEFAULT_LIMIT = 300.0  # seconds a file
TOOLS = ("coqc", "coqchk")


class KernelError(Exception):
    """A program of Coq refused a file, or took too long."""


def count_steps(folder: Path = FOLDER) -> int:
    """Number of times that ``check_formal`` calls ``progress``."""
    return len(sources(folder)) + 3


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
        progress: Called with 1 after each of ``count_steps`` steps.

    Raises:
        ToolError: Coq is not installed.
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise _missing(f"Coq 8.16 or later, and {' and '.join(missing)} cannot be found", "coq")
    start = time.monotonic()
    theorems: list[FormalTheorem] = []
    failures: list[str] = []
    with TemporaryDirectory(prefix="conv2attn-formal-") as name:
        place = Path(name)
        for path in filter(Path.is_file, folder.iterdir()):
            shutil.copyfile(path, place / path.name)
        version = _run(place, limit, "coqc", "--print-version").split()[0]
        _require_flocq(place, limit)
        try:
            for source in sources(place):
                _compile(place, source.name, limit)
                progress(1)
            theorems = _theorems(place, limit)
            failures += _axiom_objections(theorems)
            progress(1)
            failures += _checker_objections(place, limit, whole=whole)
            progress(1)
            failures += _tau_objections(place, limit)
            progress(1)
        except KernelError as error:
            failures.append(str(error))
    return FormalResult(version, tuple(theorems), tuple(failures), time.monotonic() - start)


def _missing(what: str, package: str) -> Exception:
    """The error that something is not installed."""
    from ....convert.errors import ToolError  # imports torch, which no proof needs

    return ToolError(f"the formal proofs need {what}; install it with: apt-get install {package}")


def _require_flocq(place: Path, limit: float) -> None:
    """Raises ToolError if coqc does not find Flocq, which has the formats of floating point."""
    (place / "Needed.v").write_text("From Flocq Require Core.\n", encoding="utf-8")
    try:
        _compile(place, "Needed.v", limit)
    except KernelError as error:
        raise _missing("Flocq, which coqc cannot find", "libcoq-flocq") from error


def _run(place: Path, limit: float, *command: str) -> str:
    """Runs a program, and returns its output.

    Raises:
        KernelError: It failed or took too long.
    """
    try:
        done = subprocess.run(
            command, cwd=place, timeout=limit, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8"
        )
    except subprocess.TimeoutExpired as error:
        raise KernelError(f"{' '.join(command)}: stopped after {limit:g} s") from error
    if done.returncode != 0:
        raise KernelError(f"{command[0]} refused: {' '.join((done.stderr or done.stdout).split())}")
    return done.stdout + done.stderr


def _compile(place: Path, name: str, limit: float) -> None:
    _run(place, limit, "coqc", "-q", "-Q", ".", LIBRARY, name)


def _theorems(place: Path, limit: float) -> list[FormalTheorem]:
    """Every theorem with the axioms that Print Assumptions lists for it."""
    found = statements(place)
    (place / "Assumptions.v").write_text(assumption_queries(found), encoding="utf-8")
    _compile(place, "Assumptions.v", limit)
    return [
        FormalTheorem(statement, axioms_of((place / f"{statement}.out").read_text(encoding="utf-8")))
        for statement in found
    ]


def _axiom_objections(theorems: Sequence[FormalTheorem]) -> list[str]:
    if not theorems:
        return ["there is no theorem"]
    found = ((theorem.statement, name) for theorem in theorems for name in theorem.axioms)
    return [f"{statement} rests on {name}" for statement, name in found if name not in AXIOMS]


def _checker_objections(place: Path, limit: float, *, whole: bool) -> list[str]:
    """Objections of coqchk against this library, and with ``whole`` against everything that it needs."""
    alone = () if whole else ("-norec",)
    modules = [word for source in sources(place) for word in (*alone, f"{LIBRARY}.{source.stem}")]
    return summary_objections(_run(place, limit, "coqchk", "-silent", "-o", "-Q", ".", LIBRARY, *modules))


def _tau_objections(place: Path, limit: float) -> list[str]:
    """Objections where Coq does not evaluate its formulas for tau to the fractions of ``enclosure.py``."""
    (place / "Values.v").write_text(evaluation_query(POINTS), encoding="utf-8")
    _compile(place, "Values.v", limit)
    found = fractions_of((place / "values.out").read_text(encoding="utf-8"))
    expected = [bound(q, terms) for q, terms in POINTS for bound in (tau_lower, tau_upper)]
    return [] if found == expected else [f"tau: Coq evaluates {found}, proofs/formal/coq/enclosure.py {expected}"]
