"""A signal ends a command as an error does; who listened before listens again afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from conv2attn.proofs.terminal.ending import ended_by_signals

ENDING = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(params=ENDING)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    before = signal.signal(request.param, lambda *_: None)  # pytest itself must not be ended
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_ends_a_command_with_its_number(number: signal.Signals) -> None:
    with pytest.raises(SystemExit) as ended, ended_by_signals():
        signal.raise_signal(number)
    assert ended.value.code == 128 + number


def test_a_signal_that_was_ignored_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with ended_by_signals():
        signal.raise_signal(number)
    assert signal.getsignal(number) == signal.SIG_IGN
