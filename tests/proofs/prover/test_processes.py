"""No process outlives the one that started it, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import processes
from tests.processes import next_line

LONG = 120  # seconds in which all processes have surely ended; those of the old code never did

CAMPAIGN = """
from conv2attn.proofs.campaign.run import run_campaign
from conv2attn.proofs.campaign.results import Settings

if __name__ == "__main__":
    run_campaign(Settings(), layers=10**9, workers=2, progress=lambda _: print("checking", flush=True))
"""

PROOF = """
import threading
from conv2attn.proofs import prove

threading.Timer(5, print, ["checking"], {"flush": True}).start()
print(prove(modules=["slow"], limit=1e6))
"""

SLOW = """
from conv2attn.proofs import Check, Status, claim

def forever():
    while True:
        pass

@claim(status=Status.ALGEBRA, scope="Nothing.")
def slow_claim():
    "A slow claim."
    yield Check("a check", forever)
    yield Check("another check", forever)
"""

COMMANDS = {
    "campaign": [sys.executable, "-c", CAMPAIGN],
    "proof": [sys.executable, "-c", PROOF],
}


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process beside the slow claim."""
    Path("slow.py").write_text(SLOW)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    with processes.started(command, env=environment) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sent"), [("campaign", signal.SIGKILL), ("proof", signal.SIGTERM)])
def test_workers_end_with_their_parent_and_show_no_traceback(
    kind: str, sent: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with started(*COMMANDS[kind]) as process:
        assert next_line(process) == "checking\n"
        process.send_signal(sent)
        _, errors = process.communicate(timeout=LONG)  # until the last process has closed its end
    assert process.returncode == -sent
    assert "Traceback" not in errors  # multiprocessing itself may say what it has cleared away
