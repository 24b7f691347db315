"""Two networks are one program if they make the same calls, and what these read is equal, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import convert_model
from conv2attn.convert.certificate.same_program import is_same_program

IMAGE = torch.zeros(1, 2, 6, 7)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3, stride=2), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 1)).eval()


def changed(name: str, value: object) -> nn.Sequential:
    """The network with another value of the first convolution's attribute."""
    found = network()
    setattr(found[0], name, value)
    return found


def test_a_network_is_the_program_of_its_copy() -> None:
    assert is_same_program(network(), copy.deepcopy(network()), IMAGE)


def test_another_number_tensor_or_operation_is_another_program() -> None:
    for other in (changed("stride", (1, 1)), changed("padding", (1, 0)), changed("bias", None)):
        assert not is_same_program(network(), other, IMAGE)
    weight = network().state_dict()["0.weight"].clone()
    weight.view(-1).view(torch.int32)[0] ^= 1  # one bit
    assert not is_same_program(network(), changed("weight", nn.Parameter(weight)), IMAGE)
    assert not is_same_program(network(), nn.Sequential(*network(), nn.Identity(), nn.ReLU()), IMAGE)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_a_converted_network_is_its_cnn_s_program_whatever_pads_it(mode: Any) -> None:
    cnn = nn.Sequential(nn.Conv2d(2, 3, (3, 5), stride=2, padding=(1, 2), padding_mode=mode), nn.ReLU()).eval()
    assert is_same_program(cnn, convert_model(cnn).model, IMAGE)


def test_a_list_of_indices_is_told_from_an_index_an_axis() -> None:
    class Chosen(nn.Module):
        def __init__(self, chosen: Any) -> None:
            super().__init__()
            self.chosen = chosen

        def forward(self, x: Tensor) -> Tensor:
            return x[self.chosen]

    assert is_same_program(Chosen((0, 0)), Chosen((0, 0)), IMAGE)
    assert not is_same_program(Chosen([0, 0]), Chosen((0, 0)), IMAGE)


def test_a_tensor_that_nothing_reads_does_not_count() -> None:
    other = network()
    other.register_buffer("unread", torch.ones(3))
    assert is_same_program(network(), other, IMAGE)


class Branching(nn.Module):
    """Goes one of two ways."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Holding(nn.Module):
    """Reads a tensor that is neither a parameter nor a buffer."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.held = [torch.full((1,), number)]

    def forward(self, x: Tensor) -> Tensor:
        return x + self.held[0]


class Failing(nn.Module):
    """Does not run."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError


@pytest.mark.parametrize("kind", [Branching, Failing])
def test_what_asks_a_tensor_for_a_number_or_does_not_run_is_no_program(kind: type[nn.Module]) -> None:
    assert not is_same_program(kind(), kind(), IMAGE)


def test_tensors_that_code_holds_count() -> None:
    assert is_same_program(Holding(1.0), Holding(1.0), IMAGE)
    assert not is_same_program(Holding(1.0), Holding(2.0), IMAGE)


def test_a_result_is_told_from_another() -> None:
    class Sum(nn.Module):
        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

        def forward(self, x: Tensor) -> Tensor:
            return x + x.max(dim=2, keepdim=True)[self.place]

    assert is_same_program(Sum(0), Sum(0), IMAGE)
    assert not is_same_program(Sum(0), Sum(1), IMAGE)
