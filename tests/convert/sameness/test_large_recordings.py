"""Recorded values stay in their file: as many are read at once as an operation of the network needs."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import conv2attn as c2a
from conv2attn.convert.sameness import recorded
from conv2attn.convert.sameness.same import same

COUNT, SIZE = 24, (16, 128, 128)  # values, of 1 MB each
X = torch.randn(SIZE, generator=torch.Generator().manual_seed(0))


def network(eps: float = 1e-5) -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Linear(SIZE[-1], SIZE[-1]) for _ in range(COUNT)]
    norm = nn.LayerNorm(SIZE[-1], eps)
    return nn.Sequential(*layers[: COUNT // 2], norm, *layers[COUNT // 2 :]).eval()


class Alive:
    """Bytes of recorded tensors that are alive, and the most that were at once."""

    def __init__(self) -> None:
        self.now = self.most = self.read = 0

    def add(self, one: Tensor) -> Tensor:
        """Counts a tensor until nothing refers to it."""
        self.read += one.nbytes
        self.now += one.nbytes
        self.most = max(self.most, self.now)
        weakref.finalize(one, self._drop, one.nbytes)
        return one

    def _drop(self, size: int) -> None:
        self.now -= size


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Alive:
    found, held = Alive(), recorded._held
    monkeypatch.setattr(recorded, "_held", lambda path, name: lambda: found.add(held(path, name)()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("eps", "verdict"), [(1e-5, "rounding"), (1e-2, "not rounding")])
def test_recorded_values_are_read_a_few_at_a_time(eps: float, verdict: str, alive: Alive, tmp_path: Path) -> None:
    path = c2a.record_values(network(eps).double(), X.double(), tmp_path / "wide.safetensors")
    with safetensors.safe_open(path, "pt") as file:
        about = file.metadata()
    path = tmp_path / "engine.safetensors"  # other last digits than torch's in float32
    save_file({name: one.float() for name, one in load_file(tmp_path / "wide.safetensors").items()}, path, about)
    assert same(network(), path).verdict == verdict
    assert alive.read >= COUNT * X.nbytes  # for each module's bias, or each stretch
    assert alive.most <= 5 * X.nbytes
