"""Arguments of a call are found by position or by name, and none is overlooked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conv2attn.convert.certificate.propagation.call import Call
from conv2attn.convert.certificate.propagation.interval import Interval, UnboundedError
from conv2attn.convert.certificate.propagation.tracked import Tracked, constant
from tests.convert.certificate.following import SINGLE, reason


def call(*args: Any, **kwargs: Any) -> Call:
    return Call("doing", args, kwargs, torch.Size((2, 3)), SINGLE)


def test_an_argument_is_found_by_position_or_by_name_or_has_its_default() -> None:
    for found in (call(1, 2, 3), call(1, 2, third=3), call(first=1, second=2, third=3)):
        assert [found.argument(place, name) for place, name in enumerate(("first", "second", "third"))] == [1, 2, 3]
        assert found.argument(3, "fourth", 4) == 4
        assert found.argument(3, "fourth") is None


def test_an_argument_at_the_place_of_one_that_is_named_is_another_one() -> None:
    assert call(1, b=2).argument(1, "b") == 2
    with pytest.raises(UnboundedError, match="doing called like this"):
        call(1, 2, b=3).argument(1, "b")


def test_arguments_by_name_are_known_or_off_or_the_call_has_no_bound() -> None:
    known = call(1, option=2, argument=3, ignored=4, nothing=None, off=False)
    assert (known.option("option"), known.option("other", 5)) == (2, 5)
    assert known.argument(1, "argument") == 3
    known.ignore("ignored", "more")
    known.check_all_read()
    for value in (True, 0.5, "text", 0, 0.0):
        with pytest.raises(UnboundedError, match="no bound is known for doing with scale, size"):
            call(1, scale=value, off=None, size=value).check_all_read()


def test_the_first_argument_is_a_tensor() -> None:
    tensor = constant(torch.ones(2))
    assert call(tensor).first is call(input=tensor).first is tensor
    for other in (call(2.0, tensor), call(input=[tensor]), call()):
        with pytest.raises(UnboundedError, match="doing of this"):
            _ = other.first


def test_values_are_those_of_a_constant_and_not_of_what_is_computed() -> None:
    tensor, computed = constant(torch.tensor([1.0, 2.0])), Tracked(torch.empty(2, device="meta"), Interval.of(0, 1))
    for found in (call(1, tensor), call(1, weight=tensor)):
        assert found.values(1, "weight") is tensor.real
    assert call(weight=tensor).named_values("weight") is tensor.real
    assert call(1).optional_values(1, "weight") is call(1).named_values("weight") is None
    with pytest.raises(UnboundedError, match="it has no weight"):
        call(1).values(1, "weight")
    for odd in (call(1, computed), call(1, 3.0)):
        with pytest.raises(UnboundedError, match="its weight is computed while it runs"):
            odd.optional_values(1, "weight")


@pytest.mark.parametrize("add", [torch.add, torch.sub, Tensor.add_, Tensor.sub_])
def test_a_sum_with_a_factor_of_0_is_not_taken_for_the_sum(add: Callable[..., Tensor]) -> None:
    for alpha in (0, 0.0):
        assert reason(lambda x, alpha=alpha: add(x * 1.0, x, alpha=alpha)).endswith("with alpha")
