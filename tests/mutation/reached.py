"""Which tests reach which lines of a module, and how long each takes."""

from __future__ import annotations

import ast
import difflib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


class Reached:
    """A pytest plugin that traces one module.

    Args:
        module: Path in the tree.

    Attributes:
        seconds: Computed by each test.
    """

    def __init__(self, module: str) -> None:
        self._ending = f"/{module}"
        self._lines: dict[str, set[int]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self._test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Traces one test with its fixtures."""
        self._test, start = item.nodeid, time.process_time()
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            self.seconds[item.nodeid] = time.process_time() - start

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith(self._ending):
            return None
        self._lines[self._test].add(frame.f_lineno)
        return self._trace

    def save(self, path: Path) -> None:
        """Writes what was seen."""
        path.parent.mkdir(parents=True, exist_ok=True)
        seen = {test: [seconds, sorted(self._lines[test])] for test, seconds in self.seconds.items()}
        path.write_text(json.dumps(seen), encoding="utf-8")

    @classmethod
    def load(cls, module: str, path: Path) -> Reached:
        """Reads what ``save`` wrote."""
        reached = cls(module)
        for test, (seconds, lines) in json.loads(path.read_text(encoding="utf-8")).items():
            reached.seconds[test] = seconds
            reached._lines[test] = set(lines)
        return reached

    def order(self, lines: set[int]) -> tuple[list[str], list[str]]:
        """The tests that reach one of the lines, the quickest first, and those that may all the same.

        The second are the tests that reach no line of the module at all: they may run it in another process. Lines that
        no test reaches run when the module is imported; all tests are of the first kind then.
        """
        quickest = sorted(self.seconds, key=self.seconds.__getitem__)
        first = [test for test in quickest if self._lines[test] & lines]
        if not first:
            return quickest, []
        return first, [test for test in quickest if not self._lines[test]]


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
