"""The process that runs checks: it can be killed, which is the only way to stop sympy for certain.

It says null when it is ready. Then it reads one request a line, {"module": ..., "name": ..., "limit": seconds},
and answers with one line for each check and null at the end. What a check prints goes to stderr, so that it
cannot answer for itself.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import sys
from dataclasses import asdict
from typing import Any, TextIO

from conv2attn.proofs.verdict import Verdict, run_checks

_GRACE = 5.0  # seconds after the limit until an orphan, whose parent can no longer kill it, ends itself


def serve() -> None:
    """Answers requests until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted parent ends this process itself
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    importlib.import_module("sympy")  # before the clock of the first claim starts
    _send(answers, None)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for line in sys.stdin:
            request = json.loads(line)
            faulthandler.dump_traceback_later(request["limit"] + _GRACE, exit=True, file=nowhere)
            _answer(answers, request)
            faulthandler.cancel_dump_traceback_later()


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
    answers.write(json.dumps(verdict if verdict is None else asdict(verdict)) + "\n")
    answers.flush()
