"""Runs the tests of a mutated module in a fork of a process that has imported torch already.

Importing torch takes longer than most mutants live. The server imports all but conv2attn once, and forks for each
request: a line with the module's path, answered by the exit code of its tests, 0 if the mutant survived. A request for
a module that is not mutated runs all its tests, and notes which of them reach which line (``reached.py``); those that
reach a mutated line run first.

    python -m tests.mutation.server SOCKET        in the mutated tree
    echo convert/spec.py | nc -U SOCKET           what ``run.py`` lets cosmic-ray do for each mutant
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Generator, Iterator
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

from tests.mutation.modules import LAYERS, TESTS
from tests.mutation.reached import Reached, changed_lines

CPU_LIMIT = 300  # seconds of computing for all tests; a mutant that takes longer is killed
LIMIT = 1800.0  # seconds, for one that waits; long, since other programs may have the processor
_MEMORY = 2**34  # bytes of address space


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

    def __init__(self, tests: list[str], seconds: dict[str, float]) -> None:
        self._place = {test: place for place, test in enumerate(tests)}
        self._seconds = seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Ends the process, as a failure would, when a test computes far longer than without a mutant."""
        with _at_most(10 + 10 * self._seconds[item.nodeid]):
            return (yield)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leaves the tests out that are not meant."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._place), key=lambda item: self._place[item.nodeid]
        )


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Ends this process after so many seconds of computing."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)


def survives(module: str, pristine: str) -> bool:
    """Whether neither the module's tests nor the campaign's first layers notice anything.

    Args:
        module: Path in the tree.
        pristine: Its text when no mutant had changed it.
    """
    text, notes = Path(module).read_text(encoding="utf-8"), Path("build", "reached", f"{module}.json")
    if text == pristine:
        reached = Reached(module)
        passed = _passes(_files(module), reached)
        reached.save(notes)
        return passed
    reached = Reached.load(module, notes)
    first, rest = reached.order(changed_lines(pristine, text))
    return (
        _passes(_files_of(first), _Only(first, reached.seconds))
        and (module.startswith("convert/files/readers/") or _agrees())
        and _passes(_files_of(rest), _Only(rest, reached.seconds))
    )


def _agrees() -> bool:
    """Whether the campaign's first layers show no violation."""
    from conv2attn.proofs.evidence.campaign.processes import check_block
    from conv2attn.proofs.evidence.campaign.settings import Settings

    with _at_most(60):
        return not check_block(Settings(), 0, range(LAYERS)).violations


def _files_of(tests: list[str]) -> list[str]:
    return list(dict.fromkeys(test.split("::")[0] for test in tests))


def _files(module: str) -> list[str]:
    return [f"tests/{name}.py" for name in TESTS[module]]


def _passes(files: list[str], plugin: object) -> bool:
    if not files:
        return True
    arguments = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *files]
    code = pytest.main(arguments, plugins=[_FewExamples(), plugin])
    return code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def serve(path: str) -> None:
    """Answers requests, one after the other, until it is ended."""
    torch.set_num_threads(1)
    pristine = {module: Path(module).read_text(encoding="utf-8") for module in TESTS}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):  # who asked may have left
                module = connection.makefile().readline().strip()
                connection.sendall(f"{_tested(module, pristine[module])}\n".encode())


def _tested(module: str, pristine: str) -> int:
    """The exit code of a fork that tests a module; 1 if it takes too long."""
    child = os.fork()
    if child == 0:
        _be_tested(module, pristine)
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return 0 if status == 0 else 1
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


def _be_tested(module: str, pristine: str) -> None:
    """Tests a module and ends this process."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT))
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        code = 0 if survives(module, pristine) else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.path.insert(0, str(Path("build/types").resolve()))
    serve(sys.argv[1])
