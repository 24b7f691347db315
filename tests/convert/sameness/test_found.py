"""What docs/found.md tells of torch and ONNX Runtime is so in the versions that are tested."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from conv2attn.convert.sameness.same import same
from tests.onnx_files import network, port


@pytest.mark.parametrize(("mean", "verdict"), [(0, "rounding"), (10, "not rounding"), (1000, "not rounding")])
def test_group_norm_with_channels_last_loses_digits_where_the_mean_is_large(mean: float, verdict: str) -> None:
    x = torch.randn(2, 32, 16, 16, generator=torch.Generator().manual_seed(0)) + mean
    norm = nn.GroupNorm(8, 32).eval()
    assert same(norm, lambda x: norm(x.contiguous(memory_format=torch.channels_last)), x).verdict == verdict


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
