"""What docs/found.md tells of torch and ONNX Runtime is so in the versions that are tested."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import helper
from torch import Tensor, nn

from conv2attn.convert.sameness.same import same
from tests.onnx_files import network, port


@pytest.mark.parametrize(("mean", "digits"), [(0, None), (10, 2), (1000, 6)])
def test_group_norm_with_channels_last_loses_digits_where_the_mean_is_large(mean: float, digits: int | None) -> None:
    x = torch.randn(2, 32, 16, 16, generator=torch.Generator().manual_seed(0)) + mean
    norm = nn.GroupNorm(8, 32).eval()
    found = same(norm, lambda x: norm(x.contiguous(memory_format=torch.channels_last)), x)
    assert found.verdict == "rounding"
    lost = [note for note in found.notes if "digits at `group_norm`" in note]
    assert bool(lost) is (digits is not None)
    assert all(f"B loses {digits} digits" in note for note in lost)


@pytest.mark.parametrize("mean", [-5, -10, -16])
def test_onnx_runtime_s_sigmoid_has_an_error_that_does_not_shrink_with_its_result(mean: float, tmp_path: Path) -> None:
    ports = [port("x", ["n"])], [port("y", ["n"])]
    onnx.save(
        network([helper.make_node("Sigmoid", ["x"], ["y"])], [], inputs=ports[0], outputs=ports[1]), tmp_path / "a.onnx"
    )
    x = torch.randn(64, generator=torch.Generator().manual_seed(0)) + mean
    found = same(nn.Sigmoid().eval(), tmp_path / "a.onnx", x)
    assert found.verdict == "not rounding"
    assert found.where[0].why.startswith("the operation is the same, and its result is not")


class Larger(nn.Module):
    """Linear interpolation by a factor that leaves the size."""

    def forward(self, x: Tensor) -> Tensor:
        """[batch, channels, 2] -> [batch, channels, 2]."""
        return F.interpolate(x, scale_factor=1.4, mode="linear")


@pytest.mark.filterwarnings("ignore")  # torch's own, about its internals
def test_linear_interpolation_that_keeps_the_size_is_another_function_when_it_is_decomposed() -> None:
    x = torch.tensor([[[1.0, 2.0]]])
    decomposed = torch.export.export(Larger(), (x,)).run_decompositions()
    assert torch.equal(Larger()(x), x)
    assert same(Larger().eval(), decomposed, x).verdict == "not rounding"
