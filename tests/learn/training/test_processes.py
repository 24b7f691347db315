"""No process of a training outlives the one that started it, and an interrupt is heard as one."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest
from lightning.pytorch.strategies.launchers.multiprocessing import _MultiProcessingLauncher
from torch import nn

from conv2attn.convert.errors import ConversionError
from conv2attn.learn.training.fit import fit
from conv2attn.learn.training.folders import Record
from conv2attn.learn.training.loop import make_trainer, processes_to_start
from conv2attn.learn.training.processes import in_processes
from conv2attn.learn.training.recipe import Machine, Recipe
from tests.learn.small import data, network
from tests.processes import PATIENCE, next_line, started

WORK = "import os, time; print('working', flush=True); time.sleep(10**6)"
TRAINING = f"""
import signal, sys
from functools import partial
from conv2attn.learn.training.processes import in_processes
from conv2attn.commands.ending import ended_by_signals

signal.signal(signal.SIGINT, signal.default_int_handler if sys.argv[1] == "heard" else signal.SIG_IGN)
if __name__ == "__main__":
    with ended_by_signals():
        in_processes(2, partial(exec, {WORK!r}, {{}}))
"""
ENDS = [
    (signal.SIGTERM, "heard", 128 + signal.SIGTERM),
    (signal.SIGKILL, "ignored", -signal.SIGKILL),  # of a job in the background
]


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "interrupts", "code"), ENDS)
def test_processes_of_a_training_end_with_their_parent(sent: signal.Signals, interrupts: str, code: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with started([sys.executable, "-c", TRAINING, interrupts], env=environment) as process:
        assert [next_line(process) for _ in range(2)] == ["working\n"] * 2
        process.send_signal(sent)
        process.communicate(timeout=PATIENCE)  # until the last process has closed its end
    assert process.returncode == code


DIES = "import os, signal; os.environ['RANK'] == '1' and os.kill(os.getpid(), signal.SIGKILL); " + WORK
WRITES = "import os; os.environ['RANK'] == '1' and open('no/where', 'w'); " + WORK
FAILURES = [(DIES, ConversionError, "SIGKILL"), (WRITES, FileNotFoundError, "no/where")]


@pytest.mark.parametrize(("work", "kind", "said"), FAILURES, ids=["killed", "file system"])
def test_what_befalls_one_process_of_a_training_is_told_as_if_it_were_the_only_one(
    work: str, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        in_processes(2, partial(exec, work, {}))


def test_no_strategy_starts_processes_of_its_own() -> None:
    assert processes_to_start(Machine("cpu", 2, "ddp_spawn")) == 2
    alone = make_trainer(Machine("cpu", 1, "ddp_spawn"), logger=False)
    assert not isinstance(alone.strategy.launcher, _MultiProcessingLauncher)


def test_an_interrupt_is_heard_as_one(tmp_path: Path) -> None:
    def interrupted(_: nn.Module) -> Record:
        signal.raise_signal(signal.SIGINT)
        return {}

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(network(), data(), Recipe(epochs=1, batch_size=8), tmp_path / "run", recorder=interrupted)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
