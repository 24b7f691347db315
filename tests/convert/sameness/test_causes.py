"""Wrong constants that people have shipped: each is found at its place with its cause, and innocents are not named."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.sameness.verdict import THRESHOLD, Sameness
from tests.convert.sameness.written import CASES, HONEST, Blocks, Case, Scaled, as_tanh, compared


def exported(model: nn.Module, image: Tensor, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch.onnx.export(model, (image,), path, dynamo=True, verbose=False)
    return path


def told(found: Sameness, case: Case) -> None:
    """The first place, its cause, and that nothing else is named."""
    assert found.verdict == "not rounding"
    assert case.place in found.where[0].name
    assert [words for words in case.says if words not in str(found.where[0])] == []
    assert {place.name for place in found.where} <= {*case.all, found.where[0].name}


@pytest.mark.fault
@pytest.mark.parametrize("name", CASES)
def test_a_bug_that_was_shipped_is_named_with_its_cause(name: str) -> None:
    a, b, x = CASES[name].pair()
    told(compared(a, b, x), CASES[name])


NOT_IN_FILES = ("R5", "R6")  # torch's exporter computes frequencies beforehand, and drops divisor_override
IN_FILES = [name for name in CASES if name not in NOT_IN_FILES]
SLOW = [name for name in IN_FILES if name not in ("R4", "R12")]


@pytest.mark.fault
@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow if one in SLOW else ()) for one in IN_FILES])
def test_a_bug_that_was_shipped_is_named_in_an_exported_file(name: str, tmp_path: Path) -> None:
    a, b, x = CASES[name].pair()
    found = compared(a, exported(b, x, tmp_path / "b.onnx"), x)
    told(found, CASES[name])


@pytest.mark.slow
@pytest.mark.fault
def test_what_an_exporter_computed_beforehand_is_compared_with_what_the_file_holds(tmp_path: Path) -> None:
    a, b, x = CASES["R5"].pair()
    found = compared(a, exported(b, x, tmp_path / "b.onnx"), x)
    assert {place.kind for place in found.where} == {"cos", "sin"}
    assert "B holds its result" in found.where[0].why
    assert compared(a, exported(a, x, tmp_path / "a.onnx"), x).verdict == "rounding"


@pytest.mark.parametrize("name", HONEST)
def test_the_same_function_written_otherwise_is_rounding(name: str) -> None:
    found = compared(*HONEST[name].pair())
    assert (found.verdict, found.where) in [("rounding", ()), ("same bits", ())]


HALF = {
    "R1": CASES["R1"],
    "R3": Case(lambda: Blocks(act=as_tanh), Blocks, (7, 16), "act", ("approximate tanh in A, none in B",)),
    "R8": Case(
        Blocks, lambda: Blocks(eps=1e-4), (7, 16), "norm1", ("eps 1e-05 in A, 0.0001 in B",), ("norm1", "norm2")
    ),
    "R12": CASES["R12"],
}


@pytest.mark.fault
@pytest.mark.parametrize("name", HALF)
def test_what_bfloat16_hides_in_the_outputs_is_not_rounding_all_the_same(name: str) -> None:
    a, b, x = HALF[name].pair()
    told(compared(a.bfloat16(), b.bfloat16(), x.bfloat16()), HALF[name])


@pytest.mark.fault
def test_of_a_hidden_difference_it_is_said_what_hides_it() -> None:
    a, b, x = HALF["R3"].pair()
    found = compared(a.bfloat16(), b.bfloat16(), x.bfloat16())
    assert found.ratio < THRESHOLD < found.where[0].ratio
    assert "hidden by bfloat16 at the outputs" in found.sentence
    assert found.exit_code == 1


def test_a_difference_of_less_than_a_rounding_is_a_note_in_half_precision() -> None:
    a, b, x = CASES["R1"].pair()
    b.get_submodule("norm").eps = 1e-6 * (1 + 1e-5)  # type: ignore[assignment]
    found = compared(a.bfloat16(), b.bfloat16(), x.bfloat16() + 0.01)
    assert found.exit_code == 0


@pytest.mark.fault
def test_another_precision_does_not_hide_an_attribute() -> None:
    a, b, x = CASES["another eps, written out"].pair()[0], Blocks(eps=1e-2).eval(), torch.randn(2, 7, 16)
    b.load_state_dict(a.state_dict())
    found = compared(a, b.bfloat16(), x)
    assert found.verdict == "not rounding"
    assert "eps 1e-05 in A, 0.01 in B" in found.where[0].why


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_that_cancel_are_said_to(dtype: torch.dtype) -> None:
    a, b, x = HONEST["weights that cancel"].pair()
    found = compared(a.to(dtype), b.to(dtype), x.to(dtype))
    assert (found.verdict, found.exit_code, found.where) == ("rounding", 0, ())
    assert "that cancel: `norm1` times s, `fc1` divided by s." in " ".join(found.notes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_scale_that_moved_to_the_queries_is_no_difference(dtype: torch.dtype) -> None:
    a, b, x = Case(lambda: Scaled(8**-0.5), lambda: Scaled(0.5, 0.5**0.5), (5, 16), "").pair()
    found = compared(a.to(dtype), b.to(dtype), x.to(dtype))
    assert (found.verdict, found.where) == ("rounding", ())
    assert "numbers that cancel" in " ".join(found.notes)
    a, b, x = Case(lambda: Scaled(8**-0.5), lambda: Scaled(0.36), (5, 16), "").pair()
    (place,) = compared(a.to(dtype), b.to(dtype), x.to(dtype)).where
    assert "scale 0.353553 in A, 0.36 in B" in place.why


@pytest.mark.fault
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", HONEST)
def test_the_same_function_written_otherwise_is_rounding_of_half_precision(name: str, dtype: torch.dtype) -> None:
    a, b, x = HONEST[name].pair()
    found = compared(a.to(dtype), b.to(dtype), x.to(dtype))
    assert (found.exit_code, found.where) == (0, ())


@pytest.mark.fault
def test_of_moved_weights_the_one_that_does_not_cancel_is_named() -> None:
    a, b, x = HONEST["weights that cancel"].pair()
    with torch.no_grad():
        b.get_submodule("fc1").weight[:, 3] *= 1.01  # type: ignore[operator,index]
    found = compared(a, b, x)
    assert found.verdict == "not rounding"
    assert {place.name for place in found.where} <= {"norm1", "fc1"}


@pytest.mark.fault
def test_all_that_differ_are_counted_and_eight_are_listed() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(16, 16), nn.LayerNorm(16), nn.Tanh())]
    a, x = nn.Sequential(*layers).eval(), torch.randn(4, 16)
    b = copy.deepcopy(a)
    for layer in b:
        if isinstance(layer, nn.LayerNorm):
            layer.eps = 1e-2
    found = compared(a, b, x)
    assert len(found.where) == 12
    assert "11 more operations differ" in found.sentence
