"""A signal ends a command as an error does; who listened before listens again afterwards."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from conv2attn.proofs.terminal.ending import ended_by_signals


@pytest.fixture(autouse=True)
def _pytest_goes_on() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_ends_a_command_with_its_number() -> None:
    with pytest.raises(SystemExit) as ended, ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
