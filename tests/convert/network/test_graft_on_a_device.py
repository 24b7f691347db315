"""A graft on the CPU and on a GPU: step 0 in every precision and kernel there, and no table of all pairs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import conv2attn as c2a
from tests.devices import CUDA, DEVICES

KINDS = [{}, {"beside": True}, {"heads": 3, "positions": True}]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The device, where a call gives the same bits twice."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield str(request.param)
    torch.backends.cudnn.deterministic = before


def network(device: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)
    return nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(8, 4, 1)).to(device, dtype)


def step(model: nn.Module, x: Tensor, context: AbstractContextManager[Any]) -> dict[str, Tensor]:
    """Output, gradients and buffers of a step in train mode, by the CNN's names."""
    with context:
        output = model.train()(x)
    output.float().square().mean().backward()
    found = {"output": output.detach(), **dict(model.named_buffers())}
    return found | {name: each.grad for name, each in model.named_parameters() if each.grad is not None}


def check_step_0(device: str, kind: dict[str, Any], dtype: torch.dtype, context: Any = nullcontext) -> None:
    cnn = network(device, dtype)
    x = torch.randn(2, 3, 26, 22, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    grafted = c2a.graft(copy.deepcopy(cnn), where=["3"], **kind).model
    expected, found = step(cnn, x, context()), step(grafted, x, context())
    assert [name for name, value in expected.items() if not torch.equal(value, found[name])] == []


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_step_0_is_the_cnn_there(kind: dict[str, Any], dtype: torch.dtype, device: str) -> None:
    check_step_0(device, kind, dtype)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_step_0_is_the_cnn_under_autocast_there(kind: dict[str, Any], device: str) -> None:
    half = torch.bfloat16 if device == "cpu" else torch.float16
    check_step_0(device, kind, torch.float32, lambda: torch.autocast(device, half))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("device", [CUDA], indirect=True)
def test_step_0_is_the_cnn_where_factors_are_rounded_to_tf32(kind: dict[str, Any], device: str) -> None:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    try:
        check_step_0(device, kind, torch.float32)
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("kernel", [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION], ids=str)
@pytest.mark.parametrize("device", [CUDA], indirect=True)
def test_step_0_is_the_cnn_in_each_kernel_of_attention(kind: dict[str, Any], kernel: SDPBackend, device: str) -> None:
    check_step_0(device, kind, torch.float32, lambda: sdpa_kernel(kernel))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("device", [CUDA], indirect=True)
def test_12544_keys_take_no_table_of_all_pairs(dtype: torch.dtype, device: str) -> None:
    model = c2a.graft(nn.Sequential(nn.Conv2d(16, 16, 3, padding=1)), where=["0"]).model.to(device, dtype)
    x = torch.randn(1, 16, 112, 112, device=device, dtype=dtype, requires_grad=True)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model(x).sum().backward()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < (112 * 112) ** 2  # a byte for each pair
