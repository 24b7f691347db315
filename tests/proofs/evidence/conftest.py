"""Runs the commands of these suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import Run, exit_code


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs a command in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        return exit_code(*arguments), *capfd.readouterr()

    return call
