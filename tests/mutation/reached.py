"""Which tests reach which lines of some modules, and how long each takes."""

from __future__ import annotations

import ast
import difflib
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Reached:
    """Traces some modules, while tests run.

    Args:
        modules: Paths in the tree.

    Attributes:
        seconds: Computed by each test.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        self._modules = tuple(modules)
        self._found: dict[str, set[int] | None] = {}  # the lines that this test reaches, by the file that code names
        self._lines: dict[str, dict[str, set[int]]] = {}  # by test and module
        self._elsewhere: set[str] = set()  # the tests that had other processes run
        self.seconds: dict[str, float] = {}

    @contextmanager
    def tracing(self, test: str) -> Iterator[None]:
        """Traces one test with its fixtures."""
        self._lines[test] = {module: set() for module in self._modules}
        self._found, start, ended = {}, time.process_time(), _ended()
        self._test = test
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)
            self.seconds[test] = time.process_time() - start
            if _ended() != ended or _running():
                self._elsewhere.add(test)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if name not in self._found:
            module = next((module for module in self._modules if name.endswith(f"/{module}")), None)
            self._found[name] = None if module is None else self._lines[self._test][module]
        lines = self._found[name]
        if lines is None:
            return None
        lines.add(frame.f_lineno)
        return self._trace

    def order(self, module: str, lines: set[int], kills: Counter[str]) -> tuple[list[str], list[str]]:
        """The tests that reach one of a module's lines, and those that may all the same.

        Those come first that noticed the most mutants before, in the time that they take. The second may reach one in
        another process. Lines that no test reaches run when the module is imported; then all tests that reach any line
        are of the first kind.
        """
        best = sorted(self.seconds, key=lambda test: (self.seconds[test] + 0.01) / (kills[test] + 0.1))
        reached = {test: self._lines[test][module] for test in best}
        first = [test for test in best if reached[test] & lines] or [test for test in best if reached[test]]
        return first, [test for test in best if test in self._elsewhere - set(first)]


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
    """The lines of each statement, of a compound one those before its body."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            yield set(range(node.lineno, max(last, node.lineno) + 1))
