"""Tests mutants in forks of processes that have imported before what the tests need.

Importing torch takes longer than most mutants live, and so does collecting the tests. The server imports all but
conv2attn once. For modules that have the same tests, a fork of it collects these (``collected.py``) and runs them once,
noting which of them reach which line (``reached.py``); for each mutant of a function's body, a fork of this fork gives
the function its new code (``patch.py``) and runs the tests that reach it, those first that noticed others. Other
mutants are imported anew, in a fork of the server. The mutant also stands in the tree, for tests that start processes.

    python -m tests.mutation.server SOCKET        in the mutated tree

A connection is for one module: it sends the path, and hears which test fails without a mutant, or None; then it sends
the text of each mutant, and hears None if it survived, or the test that noticed it and how that ended, as ``forks.py``
names it. ``mutants.py`` asks.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, Listener
from pathlib import Path

import hypothesis.strategies  # this, and what is not used below, is imported here so that the forks need not
import matplotlib.pyplot  # noqa: F401
import mpmath  # noqa: F401
import numpy  # noqa: F401
import onnx  # noqa: F401
import PIL.Image  # noqa: F401
import pytest
import safetensors.torch  # noqa: F401
import sympy.core.evalf  # noqa: F401
import torch.export
import typer.testing  # noqa: F401

from tests.mutation import forks
from tests.mutation.collected import Collected, limit
from tests.mutation.modules import COMPUTING, LAYERS, TESTS
from tests.mutation.reached import Reached, changed_lines


class _FewExamples:
    """A pytest plugin: the properties with fewer examples, the same for every mutant."""

    def pytest_sessionstart(self) -> None:
        """Comes after conftest.py and before the tests are imported."""
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile(
            "mutation", deadline=None, max_examples=10, derandomize=True, database=None, phases=phases
        )
        hypothesis.settings.load_profile("mutation")


class _Only:
    """A pytest plugin: some tests alone, in their order, each within a time that depends on what it took before."""

    def __init__(self, tests: list[str], seconds: dict[str, float], begun: forks.Counter) -> None:
        self._place = {test: place for place, test in enumerate(tests)}
        self._seconds, self._begun = seconds, begun

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves the tests out that are not meant."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid]
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Ends the process, as a failure would, when a test computes far longer than without a mutant."""
        self._begun.value = self._place[item.nodeid]
        with forks.at_most(3 + 5 * self._seconds[item.nodeid]):
            return (yield)


class Modules:
    """Tests the mutants of modules that have the same tests.

    Args:
        modules: Paths in the tree, where they are not mutated yet.
        tests: Their tests, as ``TESTS`` names them.
    """

    def __init__(self, modules: list[str], tests: Sequence[str]) -> None:
        self._pristine = {module: Path(module).read_text(encoding="utf-8") for module in modules}
        self._kills: Counter[str] = Counter()
        self._confirmed: set[tuple[str, bool]] = set()
        self._collected = _collect(modules, [f"tests/{name}.py" for name in tests])
        self._reached: Reached | str = self._collected.recv()

    def answer(self, module: str, asking: Connection) -> None:
        """Says which test fails without a mutant, if one does; then which survive, until nobody asks any more."""
        asking.send(None if isinstance(self._reached, Reached) else self._reached)
        while isinstance(self._reached, Reached):
            text, path = asking.recv(), Path(module)
            path.write_text(text, encoding="utf-8")
            try:
                noticed = self._noticed(module, text, self._reached)
            finally:
                path.write_text(self._pristine[module], encoding="utf-8")
            asking.send(noticed)

    def _noticed(self, module: str, text: str, reached: Reached) -> tuple[str, str] | None:
        """The test that notices a mutant, or the campaign's first layers, and how that ended; or None."""
        first, rest = reached.order(module, changed_lines(self._pristine[module], text), self._kills)

        def by(tests: list[str]) -> tuple[str, str] | None:
            while tests:
                ended, begun, anew = self._run(module, text, tests, reached.seconds)
                if ended == forks.HELD:
                    break
                test = tests[begun]  # the last that began
                if self._passes_without(module, tests[: begun + 1], reached.seconds, anew=anew):
                    self._kills[test] += 1
                    return test, ended
                reached.leave_out(tests.pop(begun))
            return None

        if TESTS[module] is not COMPUTING:
            return by(first)  # what starts processes is slow, and a campaign is about what is computed
        return by(first) or _by_the_campaign() or by(rest)

    def _run(self, module: str, text: str, tests: list[str], seconds: dict[str, float]) -> tuple[str, int, bool]:
        """How tests end, the place of the last that began, and whether what they test was imported anew."""
        self._collected.send((module, text, tests))
        ended, begun = self._collected.recv()
        if ended is not None:
            return ended, begun, False
        return *self._run_anew(tests, seconds), True

    def _run_anew(self, tests: list[str], seconds: dict[str, float]) -> tuple[str, int]:
        counter = forks.Counter()
        ended = forks.outcome(lambda: _pass_anew(tests, seconds, counter), seconds=limit(tests, seconds))
        return ended, counter.value

    def _passes_without(self, module: str, tests: list[str], seconds: dict[str, float], *, anew: bool) -> bool:
        """Whether the last of some tests passes without a mutant, behind the others; found out once for each."""
        if (tests[-1], anew) in self._confirmed:
            return True
        if anew:
            mutant = Path(module).read_text(encoding="utf-8")
            Path(module).write_text(self._pristine[module], encoding="utf-8")
            ended, _ = self._run_anew(tests, seconds)
            Path(module).write_text(mutant, encoding="utf-8")
        else:
            ended, _, _ = self._run(module, self._pristine[module], tests, seconds)
        passed = ended == forks.HELD
        if passed:
            self._confirmed.add((tests[-1], anew))
        else:
            print(f"left out: {tests[-1]} fails without a mutant, too, where other tests come before it", flush=True)
        return passed


def _collect(modules: list[str], files: list[str]) -> Connection:
    """The way to a fork that has collected tests."""
    ours, theirs = Pipe()
    if os.fork() == 0:
        try:
            ours.close()
            forks.be_silent()
            pytest.main([*_OPTIONS, *files], plugins=[_FewExamples(), Collected(modules, theirs)])
        finally:
            os._exit(0)
    theirs.close()
    return ours


_OPTIONS = ("-x", "-q", "--assert=plain", "-p", "no:cacheprovider")


def _pass_anew(tests: list[str], seconds: dict[str, float], begun: forks.Counter) -> bool:
    """Whether tests pass that are imported here."""
    files = dict.fromkeys(test.split("::")[0] for test in tests)
    return (
        pytest.main([*_OPTIONS, *files], plugins=[_FewExamples(), _Only(tests, seconds, begun)]) == pytest.ExitCode.OK
    )


def _by_the_campaign() -> tuple[str, str] | None:
    ended = forks.outcome(_agrees, seconds=60)
    return None if ended == forks.HELD else ("the campaign", ended)


def _agrees() -> bool:
    """Whether the campaign's first layers, imported here, show no violation."""
    from conv2attn.proofs.evidence.campaign.processes import check_block
    from conv2attn.proofs.evidence.campaign.settings import Settings

    return not check_block(Settings(), 0, range(LAYERS)).violations


def serve(path: str) -> None:
    """Answers connections, one after the other, until it is ended."""
    torch.set_num_threads(1)
    alike: dict[tuple[str, ...], Modules] = {}
    with Listener(path, family="AF_UNIX") as listener:
        while True:
            with listener.accept() as connection, contextlib.suppress(EOFError, OSError):  # who asked may have left
                module = connection.recv()
                tests = TESTS[module]
                if tests not in alike:
                    alike[tests] = Modules([other for other in TESTS if TESTS[other] == tests], tests)
                alike[tests].answer(module, connection)


if __name__ == "__main__":
    sys.path.insert(0, str(Path("build/types").resolve()))
    serve(sys.argv[1])
