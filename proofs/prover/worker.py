"""The process that runs checks: it can be killed, which is the only way to stop sympy for certain.

It says null when it is ready. Then it reads one request a line, {"module": ..., "name": ..., "limit": seconds},
and answers with one line for each check and null at the end. What a check prints goes to stderr, so that it
cannot answer for itself. A thread reads the requests, so that their end, the parent's, is heard during a check.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any, TextIO

from .verdict import Verdict, run_checks

_GRACE = 5.0  # seconds after the limit until an orphan that does not let its threads run ends itself


def serve() -> None:
    """Answers requests until stdin ends, and the process with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted parent ends this process itself
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_pass_on, args=(requests,), daemon=True).start()
    importlib.import_module("sympy")  # before the clock of the first claim starts
    _send(answers, None)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        while True:
            request = json.loads(requests.get())
            faulthandler.dump_traceback_later(request["limit"] + _GRACE, exit=True, file=nowhere)
            _answer(answers, request)
            faulthandler.cancel_dump_traceback_later()


def _pass_on(requests: queue.SimpleQueue[str]) -> None:
    """Passes requests on as they come, and ends the process after the last."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _answer(answers: TextIO, request: dict[str, Any]) -> None:
    try:
        claims = importlib.import_module(request["module"]).claims()
        claim = next(claim for claim in claims if claim.name == request["name"])
        for verdict in run_checks(claim):
            _send(answers, verdict)
    except BaseException as error:
        failure = f"it could not be read: {type(error).__name__}: {error}"
        _send(answers, Verdict("the claim itself", (failure,), is_error=True))
    _send(answers, None)


def _send(answers: TextIO, verdict: Verdict | None) -> None:
    try:
        answers.write(json.dumps(verdict if verdict is None else asdict(verdict)) + "\n")
        answers.flush()
    except OSError:  # nobody listens any more
        os._exit(0)
