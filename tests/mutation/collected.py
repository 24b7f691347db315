"""Collects the tests of a module once, and runs those that are asked for in a fork of it, for one mutant each."""

from __future__ import annotations

import itertools
import pickle
import signal
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection

import pytest

from tests.mutation.forks import Counter, at_most, holds, outcome
from tests.mutation.patch import Patches
from tests.mutation.reached import Reached

ALL = 3600.0  # seconds of computing that the tests of an unchanged module have
SLOW, ENDLESS = 2.0, 5.0  # seconds of computing: a test that takes more is left out, and ended


class Collected:
    """A pytest plugin that answers requests instead of running what was collected.

    Answers first what the tests reach, or which of them fails; then requests of a module, a mutant's text and the names
    of tests: how the fork ends that runs them, or None if the mutant must be imported anew, and the place of the last
    test that began.

    Args:
        modules: Paths in the tree.
        asked: Whence requests come, and whither answers go.
    """

    def __init__(self, modules: Sequence[str], asked: Connection) -> None:
        self._modules, self._asked = modules, asked
        self._patches = Patches(modules)
        self._patches.start()  # before a conftest.py, the tests, and what they test, are imported
        self._items: dict[str, pytest.Item] = {}
        self._failed = False
        self._begun = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answers until nobody asks any more."""
        self._patches.stop()
        self._items = {item.nodeid: item for item in session.items}
        reached = "one that cannot be imported" if session.testsfailed else self._reached()
        self._asked.send(reached)
        while isinstance(reached, Reached):
            try:
                module, text, tests = self._asked.recv()
            except EOFError:
                break
            self._asked.send((self._answer(module, text, tests, reached.seconds), self._begun.value))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hears of a test that fails."""
        self._failed |= report.failed

    def _reached(self) -> Reached | str:
        """What the tests reach, all of which run in a fork; or the name of one that fails.

        Those that take too long to run for every mutant are left out.
        """

        def note() -> bool:
            reached = Reached(self._modules)
            for module in self._modules:
                self._patches.give(module, reached.noting(module))
            signal.signal(signal.SIGPROF, _too_slow)
            for item, following in itertools.pairwise([*self._items.values(), None]):
                assert item is not None
                with reached.during(item.nodeid):
                    signal.setitimer(signal.ITIMER_PROF, ENDLESS, ENDLESS)
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    signal.setitimer(signal.ITIMER_PROF, 0)
                if reached.seconds[item.nodeid] > SLOW:
                    reached.leave_out(item.nodeid)
                elif self._failed:
                    pickle.dump(item.nodeid, notes)
                    break
                self._failed = False
            else:
                pickle.dump(reached, notes)
            notes.flush()
            return True

        with tempfile.TemporaryFile() as notes:
            if not holds(note, seconds=ALL):
                return "one of them, whose process ended"
            notes.seek(0)
            reached: Reached | str = pickle.load(notes)
            return reached

    def _answer(self, module: str, text: str, tests: list[str], seconds: dict[str, float]) -> str | None:
        anew = Counter()

        def passes() -> bool:
            if not self._patches.apply(module, text):
                anew.value = 1
                return False
            return self._pass(tests, seconds)

        self._begun.value = 0
        ended = outcome(passes, seconds=limit(tests, seconds))
        return None if anew.value else ended

    def _pass(self, tests: list[str], seconds: dict[str, float]) -> bool:
        """Whether tests pass, each within a time that depends on what it took before."""
        items = [self._items[test] for test in tests]
        for place, (item, following) in enumerate(itertools.pairwise([*items, None])):
            assert item is not None
            self._begun.value = place
            with at_most(3 + 5 * seconds[item.nodeid]):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return False
        return True


def _too_slow(*_: object) -> None:
    raise RuntimeError(f"it takes more than {ENDLESS} s")


def limit(tests: list[str], seconds: dict[str, float]) -> float:
    """Seconds of computing that tests together have: more than they need, also where each finds something slower."""
    return 100 + 10 * sum(seconds[test] for test in tests)
