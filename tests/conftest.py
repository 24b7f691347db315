"""Settings for all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# What takes long whatever the number of examples: processes, exports, compilers, files by the hundred.
SLOW = frozenset(
    f"{name}.py"
    for name in (
        "convert/certificate/test_tolerance",
        "convert/engines/test_convolution",
        "convert/export/test_head_parallel",
        "convert/files/test_checkpoint",
        "convert/files/test_folder",
        "convert/files/test_open_network",
        "convert/test_autocast",
        "convert/test_on_a_device",
        "convert/test_onnx_export",
        "convert/test_synchronisations",
        "convert/test_tracing",
        "convert/test_tracing_engines",
        "convert/test_transforms",
        "learn/training/test_fit",
        "proofs/benchmark/test_benchmark",
        "proofs/claims/test_decomposition",
        "proofs/claims/test_false_variants",
        "proofs/evidence/test_campaign",
        "proofs/evidence/test_soak",
        "proofs/evidence/test_verify",
        "proofs/formal/test_formal_bridge",
        "proofs/formal/test_kernel",
        "proofs/prover/test_processes",
        "proofs/prover/test_proof_documents",
        "proofs/prover/test_prove",
        "proofs/show/test_melting",
        "proofs/show/test_page",
        "proofs/show/test_pictures",
        "test_cli",
        "test_packaging",
        "test_started",
    )
)

settings.register_profile("default", deadline=None, max_examples=60)  # sizes vary, and so do times
settings.register_profile("quick", deadline=None, max_examples=5)
settings.load_profile("default")
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # each core has a worker


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that ``make quick`` gives."""
    parser.addoption("--quick", action="store_true", help="leave slow suites out, and try few examples")


def pytest_configure(config: pytest.Config) -> None:
    """Lets properties have few examples in a quick run."""
    if config.getoption("--quick"):
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves slow suites out of a quick run."""
    here = Path(__file__).parent
    slow = collection_path.is_relative_to(here) and collection_path.relative_to(here).as_posix() in SLOW
    return True if slow and config.getoption("--quick") else None


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20)
