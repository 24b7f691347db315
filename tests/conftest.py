"""Settings for all tests."""

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=60)  # sizes vary, and so do times
settings.register_profile("quick", deadline=None, max_examples=8)
settings.load_profile("default")
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # each core has a worker


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20)
