"""A graft on the CPU and on a GPU: step 0 in every precision and kernel there, and no table of all pairs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import conv2attn as c2a
from tests.devices import CUDA

KINDS = [{}, {"beside": True}, {"heads": 3, "positions": True}]


@pytest.fixture
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


@contextmanager
def rounded_to_tf32() -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


WAYS: dict[str, tuple[torch.dtype, Callable[[], AbstractContextManager[Any]]]] = {
    "bfloat16": (torch.bfloat16, nullcontext),
    "float64": (torch.float64, nullcontext),
    "autocast": (torch.float32, lambda: torch.autocast("cuda", torch.float16)),
    "TF32": (torch.float32, rounded_to_tf32),
    "written out": (torch.float32, lambda: sdpa_kernel(SDPBackend.MATH)),
    "memory-efficient": (torch.float32, lambda: sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION)),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("device", "way"),
    [("cpu", None), *(pytest.param("cuda", way, marks=CUDA.marks) for way in (None, *WAYS))],
    indirect=["device"],
)
def test_step_0_is_the_cnn_there(kind: dict[str, Any], way: str | None, device: str) -> None:
    """On a CPU test_graft draws the ways of a step."""
    dtype, context = (torch.float32, nullcontext) if way is None else WAYS[way]
    cnn = network(device, dtype)
    x = torch.randn(2, 3, 26, 22, generator=torch.Generator().manual_seed(1)).to(device, dtype)
    grafted = c2a.graft(copy.deepcopy(cnn), where=["3"], **kind).model
    expected, found = step(cnn, x, context()), step(grafted, x, context())
    assert [name for name, value in expected.items() if not torch.equal(value, found[name])] == []


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
