"""The device that stands for a GPU in the tests is as strict as one, and computes what the CPU computes."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.device import DEVICES, synchronisations


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


MIXED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "added to a tensor of the CPU": lambda x, cpu: x + cpu,
    "the other way round": lambda x, cpu: cpu + x,
    "in place": lambda x, cpu: x.add_(cpu),
    "multiplied": lambda x, cpu: x @ cpu.T,
    "joined": lambda x, cpu: torch.cat([x, cpu]),
    "chosen from": lambda x, cpu: torch.where(x > 0, x, cpu),
    "convolved": lambda x, cpu: nn.functional.conv2d(x[None, None], cpu[None, None]),
    "a number of the device": lambda x, cpu: cpu + x.sum(),
}


@pytest.mark.parametrize("use", MIXED.values(), ids=MIXED)
def test_a_tensor_of_the_device_meets_none_of_the_cpu(use: Callable[[Tensor, Tensor], object], device: str) -> None:
    with pytest.raises(RuntimeError, match=r"same device|should be the same"):
        use(torch.ones(2, 3, device=device), torch.ones(2, 3))


def test_a_number_of_the_cpu_may_meet_it_and_cpu_indices_may_choose_from_it(device: str) -> None:
    x = torch.arange(6.0, device=device).view(2, 3)
    assert (x * torch.tensor(2.0)).device.type == device
    assert x[torch.tensor([1])].tolist() == [[3, 4, 5]]


WAITS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "bool": lambda x: bool((x > 0).all()),
    "equal": lambda x: torch.equal(x, x),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 2],
    "unique": lambda x: x.unique(),
    "cpu": lambda x: x.cpu(),
    "copied to a tensor of the CPU": lambda x: torch.empty(2, 3).copy_(x),
    "copied from the CPU": lambda x: torch.ones(2, 3).to(x.device),
    "made of numbers": lambda x: x.new_tensor([1.0, 2.0]),
    "list of indices": lambda x: x[[0, 1]],
    "indices of the CPU": lambda x: x[torch.tensor([0])],
}


@pytest.mark.parametrize("use", WAITS.values(), ids=WAITS)
def test_what_waits_for_the_device_is_found(use: Callable[[Tensor], object], device: str) -> None:
    x = torch.arange(6.0, device=device).view(2, 3)
    with synchronisations(device) as found:
        use(x)
    assert found


WAITS_NOT: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda x: (2 * x + x.sum()).softmax(-1),
    "made there": lambda x: torch.arange(3, device=x.device) + torch.zeros(3, device=x.device) + x.new_full((3,), 2.0),
    "views": lambda x: x[1, 1:].unsqueeze(0).T,
    "in place": lambda x: x.mul_(2)[0].fill_(1),
    "indices of the device": lambda x: x[torch.arange(2, device=x.device)],
    "to where it is": lambda x: x.to(x.device),
    "copied there": lambda x: x.clone().copy_(x),
    "assertion": lambda x: torch._assert_async((x >= 0).all(), "negative"),
    "nothing": lambda x: x.shape,
}


@pytest.mark.parametrize("use", WAITS_NOT.values(), ids=WAITS_NOT)
def test_what_does_not_wait_is_not(use: Callable[[Tensor], object], device: str) -> None:
    x = torch.arange(6.0, device=device).view(2, 3)
    with synchronisations(device) as found:
        use(x)
    assert found == []


def test_it_computes_and_differentiates_as_the_cpu_does(device: str) -> None:
    conv, x = nn.Conv2d(2, 3, (2, 3), bias=False, dtype=torch.float64), torch.randint(-4, 5, (2, 2, 5, 6)).double()
    with torch.no_grad():
        conv.weight.copy_(torch.randint(-4, 5, conv.weight.shape))
    there = copy.deepcopy(conv).to(device)
    y, y_there = conv(x), there(x.to(device))
    y.square().sum().backward()
    y_there.square().sum().backward()
    assert conv.weight.grad is not None
    assert there.weight.grad is not None
    assert y_there.device == there.weight.device == there.weight.grad.device == torch.device(device, 0)
    assert torch.equal(y_there.cpu(), y)
    assert torch.equal(there.weight.grad.cpu(), conv.weight.grad)


def _saved(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    module.load_state_dict(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    return module


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module)), _saved])
def test_copies_stay_there_with_their_values(copied: Callable[[nn.Module], nn.Module], device: str) -> None:
    module = nn.Linear(2, 3).to(device).requires_grad_(False)
    found = copied(module).get_parameter("weight")
    assert isinstance(found, nn.Parameter)
    assert found.device.type == device
    assert not found.requires_grad
    assert torch.equal(found, module.weight)


def test_writes_in_place_count_and_writes_through_data_do_not(device: str) -> None:
    x = nn.Parameter(torch.ones(3, device=device))
    with torch.no_grad():
        x[0].fill_(2)
    assert x._version == 1
    x.data.fill_(3)
    assert (x._version, x.tolist()) == (1, [3, 3, 3])


def test_results_that_are_resized_are_seen_as_such(device: str) -> None:
    out = torch.empty(0, device=device)
    torch.add(torch.ones(2, 3, device=device), 1, out=out)
    assert out.tolist() == [[2, 2, 2], [2, 2, 2]]
