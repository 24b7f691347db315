"""The command line, run in the test's own process, and what it prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from conv2attn.cli import main

Run = Callable[..., tuple[int, str, str]]  # runs the command line: exit code, standard output, standard error


def exit_code(*arguments: object) -> int:
    """Runs ``conv2attn ARGUMENTS``; gives its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["conv2attn", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
    assert isinstance(exited.value.code, int)
    return exited.value.code


def result_of(command: str, text: str) -> dict[str, Any]:
    """What the text holds that a command printed with ``--json``, or wrote."""
    data: dict[str, Any] = json.loads(text)
    assert (data["version"], data["command"]) == (1, command)
    return data
