"""Settings for all tests."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: threads that spin take other processes' time

import pytest
import torch
from hypothesis import settings

from tests.command import Ran, Run, exit_code

# Suites that take long: torch traces, compiles or trains there, sympy refutes every false variant of a claim, or layers
# and roundings are drawn by the thousand. Single tests have a mark of their own.
SLOW = frozenset(
    f"{name}.py"
    for name in (
        "convert/certificate/network/test_drawn_roundings",
        "convert/onnx/test_onnx_export",
        "convert/test_synchronisations",
        "convert/test_tracing",
        "convert/test_transforms",
        "learn/training/test_fit",
        "commands/test_graft",
        "commands/test_machine",
        "convert/export/test_to_onnx",
        "proofs/claims/test_false_variants",
        "proofs/campaign/test_campaign",
    )
)

# Counted on eight faults of the construction and its engines, over 20 seeds: after 50 examples half of the runs had
# caught each of them twice (copies of the border and the odd pixel are the rarest; the others need 9 at most), and
# after 166 all runs had. A usual run has more than the first number, one with the profile "ci" more than the second.
EXAMPLES = 60
settings.register_profile("default", deadline=None, max_examples=EXAMPLES)  # sizes vary, and so do times
settings.register_profile("quick", deadline=None, max_examples=5)
settings.register_profile("ci", deadline=None, max_examples=10 * EXAMPLES)
settings.load_profile("default")
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # each core has a worker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of slow suites, and those that ask the program that Coq's proof becomes, as slow."""
    here = Path(__file__).parent
    for item in items:
        is_here = item.path.is_relative_to(here)
        asks = {"built", "asked"} & set(getattr(item, "fixturenames", ()))
        if asks or (is_here and item.path.relative_to(here).as_posix() in SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command line in this process and in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: object) -> Ran:
        capfd.readouterr()
        return Ran(exit_code(*arguments), *capfd.readouterr())

    return call


@pytest.fixture(scope="session")
def library() -> Path:
    """The library of ``proofs/formal``, as ``make checker`` compiled it, which is part of ``make formal``."""
    return Path(__file__).parents[1] / "build" / "checker"
