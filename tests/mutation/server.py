"""Runs the tests of a mutated module in a fork of a process that has imported torch already.

Importing torch takes longer than most mutants live. The server imports all but conv2attn once, and forks for each
request: a line with the module's path, answered by the exit code of its tests, 0 if the mutant survived.

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
from pathlib import Path

import hypothesis
import mpmath  # noqa: F401  imported here so that the forks need not
import numpy  # noqa: F401
import pytest
import safetensors.torch  # noqa: F401
import torch

from tests.mutation.modules import LAYERS, TESTS

CPU_LIMIT = 90  # seconds of computing; a mutant that takes longer is killed
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


def survives(module: str) -> bool:
    """Whether neither the campaign's first layers nor the module's tests notice anything."""
    from conv2attn.proofs.evidence.campaign.processes import check_block
    from conv2attn.proofs.evidence.campaign.settings import Settings

    if not module.startswith("convert/files/readers/") and check_block(Settings(), 0, range(LAYERS)).violations:
        return False
    files = [f"tests/{name}.py" for name in TESTS[module]]
    return (
        pytest.main(["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", *files], plugins=[_FewExamples()])
        == pytest.ExitCode.OK
    )


def serve(path: str) -> None:
    """Answers requests, one after the other, until it is ended."""
    torch.set_num_threads(1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):  # who asked may have left
                module = connection.makefile().readline().strip()
                connection.sendall(f"{_tested(module)}\n".encode())


def _tested(module: str) -> int:
    """The exit code of a fork that tests a module; 1 if it takes too long."""
    child = os.fork()
    if child == 0:
        _be_tested(module)
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return 0 if status == 0 else 1
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1


def _be_tested(module: str) -> None:
    """Tests a module and ends this process."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT))
        silence = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(silence, descriptor)
        code = 0 if survives(module) else 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.path.insert(0, str(Path("build/types").resolve()))
    serve(sys.argv[1])
