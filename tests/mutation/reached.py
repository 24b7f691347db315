"""Which tests reach which statements of some modules, and how long each takes.

Tracing every line takes many times what the tests do. Instead the functions of the modules get code that notes each
statement before it runs, as they get a mutant's code (``patch.py``); all else runs at its own speed.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import os
import resource
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from types import CodeType

ENOUGH = 2.0  # seconds of computing for a mutant


class Reached:
    """Notes what is reached, while tests run.

    Args:
        modules: Paths in the tree.

    Attributes:
        seconds: Computed by each test.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        self._modules = tuple(modules)
        self._lines: dict[str, dict[str, set[int]]] = {}  # where the statements begin, by test and module
        self._elsewhere: set[str] = set()  # the tests that had other processes run
        self.seconds: dict[str, float] = {}

    def noting(self, module: str) -> CodeType:
        """The code of a module that notes which statements of its functions run."""
        tree = ast.parse(Path(module).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                _note(node, _probe(self._modules.index(module)))
        return compile(tree, module, "exec", dont_inherit=True)

    @contextmanager
    def during(self, test: str) -> Iterator[None]:
        """Notes what one test with its fixtures reaches, and what it computes, with the processes that it starts."""
        self._lines[test] = {module: set() for module in self._modules}
        for place, lines in enumerate(self._lines[test].values()):
            setattr(builtins, _probe(place), lines.add)
        start, ended = time.process_time(), _ended()
        yield
        self.seconds[test] = time.process_time() - start + sum(_ended()[:2]) - sum(ended[:2])
        if _ended() != ended or _running():
            self._elsewhere.add(test)

    def leave_out(self, test: str) -> None:
        """Forgets a test."""
        del self._lines[test], self.seconds[test]
        self._elsewhere.discard(test)

    def order(self, module: str, lines: set[int], kills: Counter[str]) -> tuple[list[str], list[str]]:
        """The tests that reach one of a module's lines, and those that may all the same.

        Those come first that noticed the most mutants before, in the time that they take. The second may reach one in
        another process. Lines that no test reaches run when the module is imported; then all tests that reach any line
        are of the first kind. Of each kind, as many as take ``ENOUGH`` seconds.
        """
        best = sorted(self.seconds, key=lambda test: (self.seconds[test] + 0.01) / (kills[test] + 0.1))
        reached = {test: self._lines[test][module] for test in best}
        first = [test for test in best if reached[test] & lines] or [test for test in best if reached[test]]
        return self._enough(first), self._enough([test for test in best if test in self._elsewhere - set(first)])

    def _enough(self, tests: list[str]) -> list[str]:
        together = accumulate(self.seconds[test] for test in tests)
        return [test for test, seconds in zip(tests, together, strict=True) if seconds <= ENOUGH]


def _probe(place: int) -> str:
    return f"_reached_{place}"


def _note(node: ast.AST, probe: str) -> None:
    """Puts a call of a probe before each statement in a node, but for those of functions in it."""
    for field in ("body", "orelse", "finalbody"):
        if not isinstance(statements := getattr(node, field, []), list):
            continue
        noted: list[ast.stmt] = []
        for statement in statements:
            call = ast.Expr(ast.Call(ast.Name(probe, ast.Load()), [ast.Constant(statement.lineno)], []))
            noted += [ast.fix_missing_locations(ast.copy_location(call, statement)), statement]
            if not isinstance(statement, ast.FunctionDef):
                _note(statement, probe)
        setattr(node, field, noted)
    for inner in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
        _note(inner, probe)


def _ended() -> tuple[float, ...]:
    """What the processes took that this one started and waited for."""
    return tuple(resource.getrusage(resource.RUSAGE_CHILDREN))


def _running() -> bool:
    """Whether a process runs that this one started."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def changed_lines(pristine: str, text: str) -> set[int]:
    """The lines of the statements of a text that another text changes, from 1 on."""
    before, after = pristine.splitlines(), text.splitlines()
    changed = set()
    for kind, start, stop, _, _ in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            changed |= set(range(start + 1, max(stop, start + 1) + 1))
    statements = list(_statements(ast.parse(pristine)))
    return set().union(*(lines for lines in statements if lines & changed), changed)


def _statements(tree: ast.AST) -> Iterator[set[int]]:
    """The lines of each statement, of a compound one those that lie in none of its parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            for inner in ast.walk(node):
                if isinstance(inner, ast.stmt) and inner is not node:
                    lines -= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
            yield lines
