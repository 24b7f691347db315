"""The devices that tests of a device run on: the CPU, and CUDA where there is a GPU."""

from __future__ import annotations

import pytest
import torch

CUDA = pytest.param(
    "cuda",
    marks=(pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
)
DEVICES = ["cpu", CUDA]
