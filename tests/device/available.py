"""The devices that tests of a device run on, and how each is watched."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tests.device.pretend import recorded

_THERE_IS_A_GPU = torch.cuda.is_available()
_CUDA = pytest.mark.cuda, pytest.mark.skipif(not _THERE_IS_A_GPU, reason="needs a CUDA device")

DEVICES = ["pretend", pytest.param("cuda", marks=_CUDA)]


@contextmanager
def synchronisations(device: torch.device | str) -> Iterator[list[str]]:
    """Lists, once it is left, what the CPU waited for since it was entered."""
    found: list[str] = []
    if torch.device(device).type == "cuda":
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield found
            finally:
                torch.cuda.set_sync_debug_mode("default")
        found += [str(warning.message) for warning in caught if "synchronizing" in str(warning.message)]
        return
    before = len(recorded)
    try:
        yield found
    finally:
        found += recorded[before:]
        del recorded[before:]
