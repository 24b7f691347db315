"""A folder for a moment is gone after it, whatever ends the moment."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from conv2attn.convert.files.writing.scratch import scratch_folder


def end(number: int, _: object) -> None:
    sys.exit(128 + number)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("step", ["mkdir", "rmtree"])
def test_a_second_signal_does_not_keep_a_scratch_folder(
    sent: signal.Signals, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = {"mkdir": os, "rmtree": shutil}[step]
    done = getattr(module, step)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if step == "rmtree":
            signal.raise_signal(sent)
        found = done(*arguments, **options)
        signal.raise_signal(sent)
        return found

    monkeypatch.setattr(module, step, interrupted)
    before = signal.signal(sent, end)
    try:
        with pytest.raises(SystemExit), scratch_folder(inside=tmp_path):
            signal.raise_signal(sent)
    finally:
        signal.signal(sent, before)
    assert not list(tmp_path.iterdir())
