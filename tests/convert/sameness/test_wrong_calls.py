"""The program that asks ``same`` of torch's own wrong convolutions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import wrong_convolutions
from benchmarks.wrong_convolutions import TABLE, Call, Gradients, said
from conv2attn.convert.engines.convolution import Geometry

CALLS = {
    "sequence": Call((2, 4, 9), (2, 2, 3), Geometry((2,), (1,), (1,), 2), torch.float64),
    "image": Call((2, 3, 5, 6), (4, 3, 2, 3), Geometry((1, 2), (0, 1), (2, 1)), torch.float64),
    "transposed volume": Call(
        (1, 2, 3, 4, 3), (2, 3, 1, 2, 2), Geometry((1, 2, 1), (0, 1, 0), (1, 1, 1)), torch.float64, False, (0, 1, 0)
    ),
}


@pytest.mark.parametrize("kind", CALLS)
def test_gradients_by_their_operation_are_those_of_autograd(kind: str) -> None:
    call = CALLS[kind]
    x, weight = call.tensors(torch.contiguous_format)
    found = Gradients(call, weight)(x)
    x, weight = x.requires_grad_(), weight.requires_grad_()
    expected = torch.autograd.grad(call.torchs(x, weight, None).sum(), [x, weight])
    assert torch.equal(found, torch.cat([one.flatten() for one in expected]))


@pytest.mark.fault
@pytest.mark.parametrize("value", [1.0, torch.nan])
def test_a_wrong_number_of_a_call_is_found(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call((2, 3, 5, 6), (4, 3, 2, 3), Geometry((1, 2), (0, 1), (2, 1)))
    monkeypatch.setitem(TABLE, "planted", call)
    monkeypatch.setattr(wrong_convolutions, "_TIMES", 1)
    assert said("planted", "contiguous").startswith(("Rounding", "Same"))

    def wrong(x: Tensor, *rest: Any) -> Tensor:
        y = F.conv2d(x, *rest)
        return y if x.dtype == torch.float64 else torch.cat([y[:, :3], y[:, 3:] + value], 1)

    monkeypatch.setattr(wrong_convolutions, "_CALLS", (F.conv1d, wrong, F.conv3d))
    assert said("planted", "contiguous").startswith("Not rounding")
