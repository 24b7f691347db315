"""Settings for all tests."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=60)  # sizes vary, and so do times
settings.load_profile("default")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(20)
