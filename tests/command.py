"""The command line, run in the test's own process, and what it prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import pytest

from conv2attn.cli import main


class Ran(NamedTuple):
    """How a run of the command line ended, and what it printed."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


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

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    data: dict[str, Any] = json.loads(text, parse_constant=refuse)
    assert (data["version"], data["command"]) == (1, command)
    return data
