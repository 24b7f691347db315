"""Which tensors are one, which of their names keeps the numbers, and what writing them apart would take."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from conv2attn.convert.errors import OutputError
from conv2attn.convert.files import shared
from conv2attn.convert.files.readers.common.limits import MAX_OVERLAP, SPARE
from conv2attn.convert.files.shared import aliases, check_written_apart, copies, independent, place


def numbers(count: int = 6) -> Tensor:
    return torch.arange(1.0, count + 1)


def views(base: Tensor) -> dict[str, Tensor]:
    """Tensors over the same six numbers, each read in a way of its own."""
    return {
        "all": base,
        "from the second": base[1:],
        "but the last": base[:-1],
        "a matrix": base.view(2, 3),
        "another matrix": base.view(3, 2),
        "its transpose": base.view(3, 2).T,
        "integers": base.view(torch.int32),
        "copied": base.clone(),
    }


def test_tensors_are_one_if_place_shape_strides_and_type_are_the_same() -> None:
    base = numbers()
    given = views(base)
    assert len({place(tensor) for tensor in given.values()}) == len(given)
    for tensor in (base.view(6), base.detach(), base[:], torch.nn.Parameter(base)):
        assert place(tensor) == place(base)
    assert place(base.to("meta")) != place(base)
    assert place(base) == (torch.device("cpu"), base.data_ptr(), torch.float32, (6,), (1,))


def test_the_first_name_keeps_the_numbers_and_the_others_tell_it() -> None:
    base, other = numbers(), numbers()
    given = {"a": base, "x": other, "b": base, "c": base.view(6), "y": other[:], "z": other[1:]}
    assert aliases(given) == {"b": "a", "c": "a", "y": "x"}
    assert aliases(dict(reversed(given.items()))) == {"x": "y", "b": "c", "a": "c"}
    assert aliases(views(base)) == {}
    assert aliases({}) == {}


def test_tensors_without_numbers_are_each_their_own() -> None:
    empty, one = torch.empty(0, 3), torch.ones(1)
    assert place(empty) == place(empty.detach())
    assert aliases({"a": empty, "b": empty}) == {}
    assert aliases({"a": one, "b": one}) == {"b": "a"}


def test_independent_tensors_share_no_memory_and_keep_what_they_hold() -> None:
    base = numbers().requires_grad_()
    given = views(base.detach()) | {"with a gradient": base, "again": base}
    found = independent(given)
    assert list(found) == list(given)
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == len(given)
    for name, tensor in found.items():
        assert torch.equal(tensor, given[name])
        assert tensor.is_contiguous()
        assert not tensor.requires_grad
        assert tensor.device.type == "cpu"
    assert found["all"].data_ptr() == base.data_ptr()  # nothing is copied that need not be


def test_copies_share_nothing_with_the_tensors_and_among_each_other_what_those_share() -> None:
    base = numbers().requires_grad_()
    given = {"a": base, "b": base, "part": base.detach()[1:], "c": base.detach()}
    found = copies(given)
    assert list(found) == list(given)
    assert found["a"] is found["b"] is found["c"]
    assert found["part"] is not found["a"]
    for name, tensor in found.items():
        assert torch.equal(tensor, given[name])
        assert not tensor.requires_grad
    with torch.no_grad():
        base.zero_()
    assert found["a"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert found["part"].tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert place(found["part"])[1] != place(found["a"])[1]


@pytest.mark.parametrize("spare", [0, 1, 24, 100])
def test_tensors_are_written_apart_up_to_twice_what_they_hold_and_a_spare(
    spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tensor of 24 bytes, another of 40, and other names of the first."""
    assert (MAX_OVERLAP, SPARE) == (2, 2**28)
    monkeypatch.setattr(shared, "SPARE", spare)
    base, other = numbers(), numbers(10)
    held, allowed = 64, 2 * 64 + spare
    for more in range(8):
        state = {"a": base, "other": other} | {f"b{number}": base for number in range(more)}
        written = held + 24 * more
        if written <= allowed:
            check_written_apart(state)
            continue
        told = (
            f"{more} of the {more + 2} tensors share their numbers with others; safetensors would hold {written} bytes "
            f"in place of {held}, a file that ends in .pth or .pt keeps them shared"
        )
        with pytest.raises(OutputError, match=f"^{re.escape(told)}$"):
            check_written_apart(state)


def test_exactly_the_limit_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    base = numbers(5)  # 20 bytes, of which 60 are written
    state = {"a": base, "b": base, "c": base}
    monkeypatch.setattr(shared, "SPARE", 20)
    check_written_apart(state)
    monkeypatch.setattr(shared, "SPARE", 19)
    with pytest.raises(OutputError, match="would hold 60 bytes in place of 20,"):
        check_written_apart(state)
