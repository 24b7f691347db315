"""Weights are fitted to an architecture's keys and loaded all or none, and those that are not finite are named."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files import checkpoint as module
from conv2attn.convert.files.checkpoint import Checkpoint, fit_keys, load_into, non_finite_keys

PLACE = Path("folder/w.pt")
TORN = "'one' and 'two' are one tensor, with two values"


class Counts(nn.Module):
    """Has buffers of several kinds, one of them called like the counter of a batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        kinds = {"real": torch.float32, "whole": torch.int64, "truth": torch.bool, "phase": torch.complex64}
        for name, dtype in kinds.items():
            self.register_buffer(name, torch.zeros(2, dtype=dtype))
        self.register_buffer("num_batches_tracked", torch.tensor(7))


class Twice(nn.Module):
    """Has one tensor under two names."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.one = self.two = nn.Parameter(torch.ones(shape))


def of(state_dict: Mapping[str, Tensor]) -> Checkpoint:
    return Checkpoint(PLACE, dict(state_dict), "")


def problems(model: nn.Module, state_dict: Mapping[str, Tensor], *, assign: bool = False) -> list[str]:
    """What keeps weights from being loaded, while the model stays as it is."""
    before = {key: (value, value.clone()) for key, value in tensors(model).items()}
    with pytest.raises(CheckpointError) as caught:
        load_into(model, of(state_dict), assign=assign)
    assert tensors(model).keys() == before.keys()
    for key, (value, copy) in before.items():
        assert tensors(model)[key] is value
        assert value.is_meta or torch.equal(value, copy)
    start, _, told = str(caught.value).partition(": ")
    assert start == f"{PLACE} does not fit the architecture"
    return told.split("; ")


def tensors(model: nn.Module) -> dict[str, Tensor]:
    found = model.state_dict(keep_vars=True)
    return {key: value for key, value in found.items() if type(value) in (Tensor, nn.Parameter)}


def fitted(saved: list[str], expected: list[str]) -> list[str]:
    """The names that tensors get; each keeps its value and its place."""
    given = {key: torch.tensor(place) for place, key in enumerate(saved)}
    found = fit_keys(given, expected)
    assert [value.item() for value in found.values()] == list(range(len(saved)))
    return list(found)


# Keys


@pytest.mark.parametrize("wrapper", ["module.", "_orig_mod.", "model."])
def test_sixteen_prefixes_come_off_and_seventeen_do_not(wrapper: str) -> None:
    for count in (1, 2, 15, 16):
        assert fitted([f"{wrapper * count}w"], ["w"]) == ["w"]
    for count in (17, 18):
        assert fitted([f"{wrapper * count}w"], ["w"]) == [f"{wrapper * count}w"]
    for other in (f"x{wrapper}w", wrapper[:-1], f"{wrapper[:-1]}w", f"ema.{wrapper}w", f"state_dict.{wrapper}w"):
        assert fitted([other], ["w"]) == [other]


def test_stripping_stops_where_every_key_is_expected() -> None:
    assert fitted(["module.model.a", "module.model.b"], ["model.a", "model.b", "a", "b"]) == ["model.a", "model.b"]
    assert fitted(["model.a"], ["model.a", "a"]) == ["model.a"]
    assert fitted(["model.model.a", "model.x"], ["model.a", "x"]) == ["model.a", "x"]


def test_keys_that_never_all_fit_stay_where_most_do_and_as_little_stripped_as_that_allows() -> None:
    assert fitted(["model.model.a", "model.b", "model.x"], ["model.a", "b"]) == ["model.a", "b", "x"]
    assert fitted(["model.module.a", "model.x"], ["module.a", "a", "b"]) == ["module.a", "x"]
    assert fitted(["module.x", "module.y"], ["a"]) == ["module.x", "module.y"]
    assert fitted(["model.module.a", "model.module.b", "model.module.x"], ["module.a", "a", "b"]) == ["a", "b", "x"]


def test_parts_may_be_wrapped_in_two_ways_but_not_in_the_third() -> None:
    assert fitted(["a", "module.b", "_orig_mod.c"], ["a", "b", "c"]) == ["a", "b", "c"]
    assert fitted(["a", "module._orig_mod.b"], ["a", "b"]) == ["a", "b"]
    assert fitted(["a", "model.b", "module.c"], ["a", "b", "c"]) == ["a", "model.b", "c"]
    assert fitted(["module.a", "module.b", "c"], ["module.a", "b", "c"]) == ["module.a", "b", "c"]


@pytest.mark.parametrize("names", [("a", "module.a"), ("_orig_mod.a", "module.a"), ("model.module.a", "model.a")])
def test_names_that_become_one_are_told_as_they_were_saved(names: tuple[str, str]) -> None:
    for first, second in itertools.permutations(names):
        with pytest.raises(CheckpointError) as caught:
            fitted([first, second], ["a", "b"])
        assert str(caught.value) == f"{first!r} and {second!r} are both 'a' without wrapper prefixes"


def test_stripping_ends_when_nothing_is_left_to_take_off() -> None:
    with mock.patch.object(module, "_strip_once", wraps=module._strip_once) as strip:
        assert fitted(["module.a", "module.b"], ["a"]) == ["a", "b"]
    assert strip.call_count == 2


# Loading


def test_what_does_not_fit_is_told_in_the_order_missing_unexpected_different_torn() -> None:
    model = nn.Sequential(nn.Linear(2, 3), Twice(2), nn.BatchNorm1d(2))
    given = model.state_dict() | {"x.y": torch.ones(1), "1.two": torch.zeros(2), "0.bias": torch.ones(2)}
    for key in ("0.weight", "2.weight", "2.bias", "2.num_batches_tracked"):
        del given[key]
    assert problems(model, given) == [
        *("'0.weight' is missing", "'2.weight' is missing", "'2.bias' is missing", "'x.y' is unexpected"),
        *("'0.bias' has shape [2], wanted [3]", "'1.one' and '1.two' are one tensor, with two values"),
    ]


@pytest.mark.parametrize(("count", "more"), [(1, []), (9, []), (10, []), (11, ["and 1 more"]), (30, ["and 20 more"])])
def test_ten_problems_are_listed(count: int, more: list[str]) -> None:
    model = nn.Linear(1, 1)
    extra = {f"x{i}": torch.ones(1) for i in range(count)}
    listed = [f"'x{i}' is unexpected" for i in range(min(count, 10))]
    assert problems(model, model.state_dict() | extra) == listed + more


@pytest.mark.parametrize("prefix", ["", "0."])
def test_only_a_counter_of_batches_may_be_missing_and_it_keeps_its_value(prefix: str) -> None:
    model = nn.Sequential(Counts()) if prefix else Counts()
    given = {key: torch.ones_like(value) for key, value in model.state_dict().items()}
    del given[f"{prefix}num_batches_tracked"]
    load_into(model, of(given))
    found = model.state_dict()
    assert all(torch.equal(found[key], value) for key, value in given.items())
    assert found[f"{prefix}num_batches_tracked"].item() == 7
    for name in ("real", "whole", "truth", "phase"):
        lacking = {key: value for key, value in given.items() if key != f"{prefix}{name}"}
        assert problems(model, lacking) == [f"'{prefix}{name}' is missing"]


KINDS = {
    "real": ("floating point", (torch.float64, torch.float16, torch.bfloat16)),
    "whole": ("integer", (torch.int32, torch.uint8, torch.int64)),
    "truth": ("boolean", (torch.bool,)),
    "phase": ("complex", (torch.complex64, torch.complex128)),
}


@pytest.mark.parametrize(("wanted", "got"), list(itertools.product(KINDS, KINDS)))
def test_a_tensor_is_loaded_over_one_of_its_kind_alone(wanted: str, got: str) -> None:
    for dtype in KINDS[got][1]:
        model = Counts()
        given = model.state_dict() | {wanted: torch.ones(2, dtype=dtype)}
        if wanted == got:
            load_into(model, of(given))
            assert tensors(model)[wanted].tolist() == [1, 1]
            assert tensors(model)[wanted].dtype == Counts().state_dict()[wanted].dtype
        else:
            assert problems(model, given) == [f"{wanted!r} is {KINDS[got][0]}, wanted {KINDS[wanted][0]}"]


def test_a_tensor_has_the_shape_of_the_model_s() -> None:
    for shape in ((), (1,), (3,), (1, 2), (2, 1)):
        given = Counts().state_dict() | {"real": torch.ones(shape, dtype=torch.int64)}
        assert problems(Counts(), given) == [f"'real' has shape {list(shape)}, wanted [2]"]


def test_a_tensor_is_not_loaded_over_other_state() -> None:
    model = type("Extra", (nn.Linear,), {"get_extra_state": lambda _: {"version": 1}})(1, 1)
    given: dict[str, Tensor] = {"weight": torch.ones(1, 1), "bias": torch.ones(1)}
    assert problems(model, given) == ["'_extra_state' is missing"]
    assert problems(model, given | {"_extra_state": torch.ones(1)}) == ["'_extra_state' is a tensor, wanted dict"]


def test_a_model_on_the_meta_device_takes_weights_only_by_assignment() -> None:
    source, target = nn.Linear(2, 3), nn.Linear(2, 3, device="meta")
    told = ["'weight' is not allocated in the model", "'bias' is not allocated in the model"]
    assert problems(target, source.state_dict()) == told
    load_into(target, of(source.state_dict()), assign=True)
    assert torch.equal(target.weight, source.weight)
    for assign in (False, True):
        assert problems(nn.LazyLinear(3), source.state_dict(), assign=assign) == told


def test_weights_are_copied_unless_they_are_assigned_and_converted_either_way() -> None:
    given = {"weight": torch.ones(3, 2), "bias": torch.ones(3, dtype=torch.float64)}
    for options in ({}, {"assign": False}, {"assign": True}):
        model = nn.Linear(2, 3)
        load_into(model, of(given), **options)
        assert (model.weight.dtype, model.bias.dtype) == (torch.float32, torch.float32)
        assert (model.weight.sum().item(), model.bias.sum().item()) == (6, 3)
        assert (model.weight.data_ptr() == given["weight"].data_ptr()) is options.get("assign", False)


# Tensors that are one


@pytest.mark.parametrize("value", [torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[torch.nan, -0.0, torch.inf]])])
def test_tensors_with_the_same_bytes_are_one(value: Tensor) -> None:
    for other in (value, value.clone(), value.repeat(2, 1).mT.contiguous().mT[:1]):
        model = Twice(1, 3)
        load_into(model, of({"one": value, "two": other}))
        assert torch.equal(model.one.detach().view(torch.int32), value.view(torch.int32))
        assert model.one is model.two


def test_tensors_that_differ_in_bytes_shape_kind_or_place_are_two() -> None:
    zeros = torch.zeros(2)
    for other in (-zeros, torch.tensor([0.0, 1.0]), zeros.half(), zeros.bfloat16(), zeros.to("meta")):
        for first, second in itertools.permutations((zeros.half() if other.dtype is torch.bfloat16 else zeros, other)):
            assert problems(Twice(2), {"one": first, "two": second}) == [TORN]
    told = ["'two' has shape [3, 2], wanted [2, 3]", "'one' has shape [3, 2], wanted [2, 3]"]
    for shapes, wrong in zip(itertools.permutations(((2, 3), (3, 2))), told, strict=True):
        first, second = map(torch.zeros, shapes)
        assert problems(Twice(2, 3), {"one": first, "two": second}) == [wrong, TORN]


def test_a_tensor_that_is_missing_under_one_name_is_not_torn() -> None:
    assert problems(Twice(2), {"one": torch.ones(2)}) == ["'two' is missing"]
    assert problems(Twice(2), {"two": torch.ones(2)}) == ["'one' is missing"]


# Finite numbers


@pytest.mark.parametrize("value", [complex(0, torch.nan), complex(torch.inf, 0), complex(1, -torch.inf)])
def test_both_parts_of_a_complex_number_are_looked_at(value: complex) -> None:
    for dtype in (torch.complex64, torch.complex128):
        sick, good = torch.tensor([[1, value]], dtype=dtype), torch.ones(2, dtype=dtype)
        given = {"a": sick, "b": good, "c": sick.conj(), "d": good.conj(), "e": sick.mT, "f": good[:0]}
        assert non_finite_keys(given) == ["a", "c", "e"]


def test_the_ends_of_a_kind_are_finite_and_its_infinities_are_not() -> None:
    for dtype in (torch.float64, torch.float32, torch.float16, torch.float8_e5m2):
        ends = torch.tensor([torch.finfo(dtype).min, torch.finfo(dtype).max], dtype=torch.float64).to(dtype)
        sick = torch.tensor([0, -torch.inf]).to(dtype)
        assert non_finite_keys({"ends": ends, "sick": sick, "none": sick[:0]}) == ["sick"]


@pytest.mark.parametrize(("count", "parts"), [(1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])])
def test_so_many_numbers_are_looked_at_at_a_time(count: int, parts: list[int]) -> None:
    looked = mock.patch.object(module, "_computable", wraps=module._computable)
    with mock.patch.object(module, "_PART", 3), looked as computable:
        assert non_finite_keys({"good": torch.ones(count)}) == []
    assert [len(call.args[0]) for call in computable.call_args_list] == parts
