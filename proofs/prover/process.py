"""A worker process from its parent's side: started when needed, killed when it takes too long.

Nothing here depends on the platform's way to start processes or on the main thread: the child is an ordinary
``python -c``, its answers are read by a thread of their own.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from .verdict import Verdict

START_LIMIT = 60.0  # seconds that a Python may take to start and import sympy

_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from conv2attn.proofs.prover.worker import serve; serve()"
)


class OutOfTimeError(Exception):
    """The worker did not answer in time and was killed."""


class WorkerDiedError(Exception):
    """The worker ended without an answer."""


class Worker:
    """Runs one claim after the other in a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._closed = False

    def start(self) -> None:
        """Starts the process if there is none.

        Raises:
            WorkerDiedError: It did not start.
        """
        if self._process is not None:
            return
        if self._closed:
            raise WorkerDiedError("the run was ended")
        command = [sys.executable, "-c", _CODE, json.dumps(sys.path)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, encoding="utf-8")
        self._answers = queue.Queue()
        threading.Thread(target=_pump, args=(self._process.stdout, self._answers), daemon=True).start()
        try:
            self._answer(time.monotonic() + START_LIMIT)
        except OutOfTimeError as error:
            raise WorkerDiedError(f"the process that should run it did not start within {START_LIMIT:g} s") from error

    def verdicts(self, module: str, name: str, limit: float) -> Iterator[Verdict]:
        """What ``run_checks`` finds for a claim, check by check.

        Args:
            module: Module whose ``claims()`` returns the claim.
            name: The claim's name.
            limit: Seconds for the whole claim.

        Raises:
            OutOfTimeError: The limit is over.
            WorkerDiedError: The process ended by itself.
        """
        deadline = time.monotonic() + limit
        self._ask({"module": module, "name": name, "limit": limit})
        while (answer := self._answer(deadline)) is not None:
            yield Verdict(answer["check"], tuple(answer["failures"]), answer["is_error"])

    def close(self) -> None:
        """Ends the process, and keeps another from being started."""
        self._closed = True
        self._kill()

    def _ask(self, request: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # if it is dead already, the missing answer tells
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()

    def _answer(self, deadline: float) -> Any:
        """The next answer; None ends the answers to a request."""
        try:
            line = self._answers.get(timeout=max(deadline - time.monotonic(), 0))
        except queue.Empty:
            self._kill()
            raise OutOfTimeError from None
        if line is None:
            raise WorkerDiedError(f"the process that ran it ended with exit status {self._kill()}")
        return json.loads(line)

    def _kill(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        ended = process.poll()
        process.kill()
        status = process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        return status if ended is None else ended


def _pump(stream: IO[str] | None, answers: queue.Queue[str | None]) -> None:
    """Passes lines on as they come, and None at the end."""
    if stream is not None:
        with stream:
            for line in stream:
                answers.put(line)
    answers.put(None)
