"""No process of a training outlives the one that started it, and an interrupt is heard as one."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from lightning.pytorch.strategies.launchers.multiprocessing import _MultiProcessingLauncher
from torch import nn

from conv2attn.convert.errors import ConversionError
from conv2attn.learn.training.fit import fit
from conv2attn.learn.training.folders import Record
from conv2attn.learn.training.loop import make_trainer
from conv2attn.learn.training.recipe import Machine, Recipe, Session
from tests.learn.small import data, network
from tests.processes import PATIENCE, next_line, started

PAIR = Session(Machine("cpu", 2))
RECIPE = Recipe(epochs=1, batch_size=8)


@dataclass
class InProcess:
    """Does something in one process of a training; elsewhere it records nothing."""

    said: str
    rank: str = "1"

    def __call__(self, _: nn.Module) -> Record:
        """The record."""
        if os.environ.get("LOCAL_RANK") == self.rank:
            exec(self.said, {})
        return {}


DIES = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
FAILURES = [(DIES, "SIGKILL"), ("open('no/where', 'w')", "No such file or directory: 'no/where'")]


@pytest.mark.slow
@pytest.mark.parametrize(("code", "reason"), FAILURES, ids=["killed", "file system"])
def test_a_process_that_fails_ends_the_training_with_one_sentence(tmp_path: Path, code: str, reason: str) -> None:
    with pytest.raises(ConversionError, match=f"a process of the training ended: .*{reason}") as refused:
        fit(network(), data(), RECIPE, tmp_path / "run", recorder=InProcess(code), session=PAIR)
    assert "\n" not in str(refused.value)


WORKER = """
from pathlib import Path
import sys
from conv2attn.commands.ending import code_of_interrupt, ended_by_signals
from conv2attn.learn.training.fit import fit
from tests.learn.small import data, network
from tests.learn.training.test_processes import PAIR, RECIPE, InProcess

if __name__ == "__main__":
    waits = InProcess("import time; print('working', flush=True); time.sleep(10**6)", "0")
    with ended_by_signals():
        try:
            fit(network(), data(), RECIPE, Path(sys.argv[1]), recorder=waits, session=PAIR)
        except KeyboardInterrupt:
            sys.exit(code_of_interrupt())
"""


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_processes_of_a_training_end_with_their_parent(tmp_path: Path, sent: signal.Signals) -> None:
    (tmp_path / "train.py").write_text(WORKER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with started([sys.executable, tmp_path / "train.py", tmp_path / "run"], env=environment) as process:
        assert next_line(process) == "working\n"
        process.send_signal(sent)
        process.communicate(timeout=PATIENCE)  # until the last process has closed its end
    assert process.returncode == (128 + sent if sent == signal.SIGTERM else -sent)


def test_several_devices_are_trained_on_by_processes_that_do_not_run_the_program_again() -> None:
    launcher = make_trainer(Machine("cpu", 2), logger=False).strategy.launcher
    assert isinstance(launcher, _MultiProcessingLauncher)


def test_an_interrupt_is_heard_as_one(tmp_path: Path) -> None:
    def interrupted(_: nn.Module) -> Record:
        signal.raise_signal(signal.SIGINT)
        return {}

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(network(), data(), RECIPE, tmp_path / "run", recorder=interrupted)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
