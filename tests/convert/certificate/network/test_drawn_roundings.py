"""Each operation rounds no more than its rule claims: 500 draws of each, and rules with a rounding too few."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from conv2attn.convert.arguments import Size
from conv2attn.convert.certificate.network.interval import UnboundedError
from conv2attn.convert.certificate.network.moved import MADE
from conv2attn.convert.certificate.network.table import TABLE
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.campaign.layers import may_be_wrong
from tests.convert.certificate.network.draws import DRAWS, DrawnCall, draw, precisions
from tests.convert.certificate.network.operations import HALF, Operation, aten
from tests.convert.certificate.network.roundings import Comparison, compare_operation, ratios_of

COUNTED_BY_ITS_RULE = {"scaled_dot_product_attention"}
# Rules from which no rounding can be taken: in single precision one term is rounded so often, in half precision a
# result that is stored once. Elsewhere the worst case of every step together is rarer than 500 draws.
TIGHT_TERMS = ("conv1d", "conv2d", "mul", "div", "matmul", "mm", "bmm", "to", "_to_copy")
NARROWED_ONCE = (
    *("conv1d", "conv2d", "conv3d", "avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
    *("mean", "sum", "sigmoid", "tanh", "hardsigmoid", "silu", "gelu", "hardswish", "elu", "leaky_relu", "prelu"),
    *("rsub", "mul", "div", "matmul", "mm", "bmm", "to", "_to_copy"),
)
DRAWS_EACH = 500


def test_every_operation_whose_roundings_are_counted_is_drawn() -> None:
    counted = {name for name, row in TABLE.items() if row.terms is not None} - set(MADE)  # which read no number
    assert set(DRAWS) == counted | COUNTED_BY_ITS_RULE


@pytest.mark.parametrize("name", DRAWS)
def test_no_operation_errs_by_more_than_its_rule_claims(name: str) -> None:
    found = {dtype: compare_operation(name, dtype, DRAWS_EACH) for dtype in precisions(name)}
    assert all(one.draws >= DRAWS_EACH for one in found.values())
    assert {dtype: one for dtype, one in found.items() if one.violations} == {}


@pytest.mark.fault
@pytest.mark.parametrize("name", TIGHT_TERMS)
def test_a_rounding_too_few_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = TABLE[name].terms
    assert terms is not None
    monkeypatch.setitem(TABLE, name, replace(TABLE[name], terms=lambda call: terms(call) - 1))
    assert compare_operation(name, torch.float32, DRAWS_EACH).violations > 0


@pytest.mark.fault
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("name", NARROWED_ONCE)
def test_a_result_that_is_taken_for_unrounded_is_caught(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrowings = TABLE[name].narrowings
    fewer = replace(TABLE[name], narrowings=lambda call: narrowings(call) - 1)
    monkeypatch.setitem(TABLE, name, fewer)
    assert compare_operation(name, dtype, DRAWS_EACH).violations > 0


@pytest.mark.fault
@pytest.mark.parametrize("name", ["batch_norm", "linear", "conv_transpose2d", "adaptive_avg_pool3d"])
def test_one_narrowing_instead_of_the_table_s_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was counted before the table was derived."""
    monkeypatch.setitem(TABLE, name, replace(TABLE[name], narrowings=lambda call: 1))
    assert any(compare_operation(name, dtype, DRAWS_EACH).violations for dtype in HALF)


def test_a_call_is_the_same_whenever_it_is_drawn() -> None:
    one, other = draw("conv2d", torch.bfloat16, 3), draw("conv2d", torch.bfloat16, 3)
    assert one.operation.args[2:] == other.operation.args[2:]
    assert torch.equal(one.inputs[0], other.inputs[0])
    another = draw("conv2d", torch.bfloat16, 3, seed=1)
    assert not torch.equal(one.operation.args[0], another.operation.args[0])


def test_a_result_that_is_no_number_is_a_violation() -> None:
    found = Comparison().with_ratios(torch.tensor([0.5, torch.nan, 2.0]), 7)
    assert (found.draws, found.violations, found.largest, found.first) == (3, 2, torch.inf, 7)


@pytest.mark.parametrize("name", ["instance_norm", "layer_norm"])
def test_an_inverse_that_half_precision_cannot_store_has_no_bound(name: str) -> None:
    """Zeros, with an eps of 1e-12: float16 stores 0, whose inverse root is infinite, and 0 times it is no number."""
    args = {"instance_norm": (None, None, None, None, True, 0.1, 1e-12, False), "layer_norm": ([5], None, None, 1e-12)}
    x = torch.zeros(2, 3, 4, 5, dtype=torch.float16)
    drawn = DrawnCall(Operation(getattr(aten, name).default, args[name]), (x,), torch.float16, 2)
    with pytest.raises(UnboundedError, match="as large as its variance"):
        ratios_of(drawn)


def test_transposed_volumes_whose_outputs_no_tap_reaches_are_left_out() -> None:
    """Dilated columns and output padding along depth: bfloat16's outputs there hold whatever the memory held."""
    spec = ConvSpec(16, 2, (2, 2, 3), (2, 1, 2), (1, 1, 2), transposed=True, output_padding=(1, 0, 0))
    assert may_be_wrong(spec, Size(5, 3, 7), "bfloat16")
    assert not may_be_wrong(replace(spec, output_padding=()), Size(5, 3, 7), "bfloat16")
    assert not may_be_wrong(spec, Size(5, 3, 7), "float32")
