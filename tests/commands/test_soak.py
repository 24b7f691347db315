"""The command ``conv2attn soak`` says what it tried and found, and loses nothing that it found."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from conv2attn.proofs.campaign import run as run_module
from conv2attn.proofs.campaign.results import Settings
from conv2attn.proofs.campaign.run import run_campaign
from tests.command import Run, result_of
from tests.faults import drop_a_head
from tests.processes import PATIENCE, started


def test_a_failure_gives_a_snippet_and_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_a_head(monkeypatch)
    code, out, _ = run("soak", "--layers", "12")
    assert code == 1
    assert "violations in 12 layers" in out
    assert "layer 0 of seed 0: integers, one-hot: output, literal: error" in out
    assert "and 2 more layers" in out
    again = out.partition("To repeat the first failure: conv2attn ")[2].partition("\n")[0]
    code, out, _ = run(*again.split())
    assert code == 1
    assert "\n1 layer, " in out
    assert "layer 0 of seed 0: integers, one-hot: output, literal: error" in out


def test_an_interrupt_loses_no_layer_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked, blocks = run_module.check_block, itertools.count()

    def third_is_interrupted(settings: Settings, seed: int, indices: Sequence[int]) -> run_module.Block:
        if next(blocks) == 2:
            raise KeyboardInterrupt
        return checked(settings, seed, indices)

    drop_a_head(monkeypatch)
    monkeypatch.setattr(run_module, "check_block", third_is_interrupted)
    found = run_campaign(Settings(), layers=60, workers=0)
    assert (found.layers, found.stopped, found.failed) == (2, "interrupted", 2)
    assert [failure.index for failure in found.failures] == [0, 1]


def test_an_interrupt_while_processes_work_takes_what_they_have_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, made = itertools.count(), list[Future[run_module.Block]]()

    class Interrupted(Future[run_module.Block]):
        def result(self, timeout: float | None = None) -> run_module.Block:
            if next(waits) == 0:
                raise KeyboardInterrupt
            return super().result(timeout)

    class Executor:
        """Has checked the first, the second and the fourth layer when the interrupt comes."""

        def submit(self, *call: Any) -> Interrupted:
            made.append(future := Interrupted())
            if len(made) in (1, 2, 4):
                future.set_result(call[0](*call[1:]))
            return future

    monkeypatch.setattr(run_module, "_BLOCK", 1)
    found = run_campaign(Settings(), layers=5, executor=cast(Any, Executor()))
    assert (found.layers, found.stopped) == (2, "interrupted")  # the fourth counts only after the third


def test_verify_without_a_network_verifies_the_theorem_on_random_layers(run: Run) -> None:
    code, out, _ = run("verify", "--random", "3", "--seed", "5", "--json")
    assert code == 0
    found = result_of("verify", out)["campaign"]
    assert found["checks"] == json.loads(json.dumps(asdict(run_campaign(Settings(), layers=3, seed=5))))["checks"]


TELLS_OF_PROGRESS = """
from contextlib import contextmanager
from pathlib import Path
from conv2attn import cli
from conv2attn.commands import soak

@contextmanager
def progress(*_, **__):
    yield lambda count: Path("progress").touch()

soak.progress = progress
cli.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layers", "sent"), [("199", signal.SIGTERM), ("100000", signal.SIGINT), ("100000", signal.SIGTERM)]
)
def test_an_interrupt_ends_a_campaign_with_a_partial_summary(layers: str, sent: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", TELLS_OF_PROGRESS, "soak", "--layers", layers, "--out", "result.json"]
    with started(command, cwd=tmp_path) as process:
        wait_for(lambda: (tmp_path / "progress").exists())
        os.killpg(process.pid, sent)  # as a terminal or a cluster does
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (128 + sent, "")
    assert " (interrupted), " in out
    campaign = result_of("soak", (tmp_path / "result.json").read_text())["campaign"]
    assert campaign["stopped"] == "interrupted"
    assert 0 < campaign["layers"] < int(layers)
    assert sorted(os.listdir(tmp_path)) == ["progress", "result.json"]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    assert condition()
