"""A reader is tried on one thread, so that the number of threads decides nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import SelfAttention, convert_model
from conv2attn.convert.attention.reader import Reader, register_reader


class Unordered(torch.autograd.Function):
    """The identity, whose gradient is added up in an order of its own at each call, where there are several threads."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> Tensor:
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Unordered.calls += torch.get_num_threads() > 1
        return gradient * (1 + Unordered.calls * 2.0**-20)


def unordered(parts: Any) -> Tensor:
    found: Tensor = Unordered.apply(parts.weight)  # type: ignore[no-untyped-call]
    return found


class Computed(nn.Conv2d):
    """A convolution whose weight comes through the above."""

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(input, unordered(self), self.bias, self.stride)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_gradient_that_threads_add_up_in_any_order_refuses_no_class(threads: int) -> None:
    before = torch.get_num_threads()
    register_reader(Computed, Reader(weight=unordered))
    torch.set_num_threads(threads)
    try:
        model = convert_model(Computed(2, 3, (2 + threads, 1), stride=2)).model
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert isinstance(model, SelfAttention)
