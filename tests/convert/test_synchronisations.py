"""A GPU is never waited for, from the first call on: ``torch.cuda.set_sync_debug_mode`` raises where the CPU waits.

It counts numbers that are read, results whose shape depends on numbers, and copies between the device and the CPU.
``tests/convert/layer/test_positions.py`` shows on the CPU that a call reads no number.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, convert_model
from conv2attn.convert.engines import AUTO, ENGINES
from conv2attn.convert.layer.layer import set_engine
from tests.devices import CUDA

ENGINE_NAMES = [AUTO, *(name for name in ENGINES if name != "sdpa")]  # which refuses every device but the CPU


@pytest.fixture(params=[CUDA])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    torch.zeros(1, device=request.param)
    waiting("error")
    yield str(request.param)
    waiting("default")


def waiting(mode: str) -> None:
    """Sets what happens where the CPU waits; torch warns once that this mode is a prototype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)


def network(alpha: float | None, device: str) -> nn.Module:
    cnn = nn.Sequential(
        nn.Conv2d(3, 4, (3, 2), padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2, groups=2)
    )
    waiting("default")
    model = convert_model(cnn.to(device), alpha=alpha).model
    waiting("error")
    return model


def image(device: str, size: tuple[int, int]) -> Tensor:
    return torch.randn(2, 3, *size, device=device)


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_a_forward_and_a_backward_pass_wait_for_nothing_whatever_the_size(
    alpha: float | None, engine: str, device: str
) -> None:
    if alpha is None and engine == "factored":
        engine = AUTO
    model = network(alpha, device)
    set_engine(model, engine)
    for size in ((23, 18), (18, 25)):
        model(image(device, size)).sum().backward()


@pytest.mark.parametrize("content", [False, True])
def test_a_training_step_of_positions_waits_for_nothing(content: bool, device: str) -> None:
    model = network(2.0, device)
    for module in model.modules():
        if isinstance(module, SelfAttention2d):
            module.train_positions()
            if content:
                module.add_content(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        model(image(device, (23, 18))).square().sum().backward()
        optimizer.step()
