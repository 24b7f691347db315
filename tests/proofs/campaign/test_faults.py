"""The checks can fail: a planted fault in the construction is caught by the property that guards it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import Phase, given, settings
from torch import Tensor, nn

from conv2attn.convert import Certificate, ConversionError, attention_from_conv, certify
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import factored
from conv2attn.convert.engines import factored as axes
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.campaign.strategies import convolutions_with_input
from tests.faults import LITERAL_FAULTS


def check(engine: str, alpha: float | None = None, *, max_examples: int = 2000) -> None:
    """Runs the property that outputs stay within the certificate; raises where it does not hold."""

    @settings(max_examples=max_examples, database=None, derandomize=True, phases=[Phase.generate])
    @given(convolutions_with_input(dtype=torch.float64))
    def outputs_stay_within_the_certificate(case: tuple[nn.Conv2d, Tensor]) -> None:
        conv, x = case
        layer = attention_from_conv(conv, alpha=alpha, engine=engine)
        bound = certify(layer, input_range=(x.min().item(), x.max().item())).bound
        assert (layer(x) - conv(x)).abs().max() <= bound

    outputs_stay_within_the_certificate()


@pytest.mark.fault
@pytest.mark.parametrize("plant", LITERAL_FAULTS, ids=lambda plant: plant.__name__)
def test_a_fault_in_the_construction_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ConversionError)):  # the construction itself may notice first
        check("literal")


@pytest.mark.fault
def test_smoothing_the_wrong_way_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = factored._smoothed
    monkeypatch.setattr(factored, "_smoothed", lambda *given: honest(*given).flip(-1))
    with pytest.raises(AssertionError):
        check("factored", alpha=8.0)


@pytest.mark.fault
def test_columns_read_with_the_tables_of_rows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = axes.Axis.of

    def rows_only(spec: ConvSpec, size: Size, axis: int) -> axes.Axis:
        return honest(spec, size, 0)

    monkeypatch.setattr(axes.Axis, "of", rows_only)
    with pytest.raises((AssertionError, RuntimeError)):
        check("separable")


@pytest.mark.fault
@pytest.mark.parametrize("alpha", [None, 1.0])
def test_a_bound_that_is_too_small_is_caught(alpha: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = certify

    def boastful(*args: object, **kwargs: object) -> Certificate:
        certificate = honest(*args, **kwargs)  # type: ignore[arg-type]
        return Certificate(certificate.bound / 100, (), 0.0, 0.0, 0.0)

    monkeypatch.setitem(globals(), "certify", boastful)
    with pytest.raises(AssertionError):
        check("literal", alpha=alpha)


@pytest.mark.parametrize("engine", ["literal", "factored"])
def test_without_a_fault_the_same_check_passes(engine: str) -> None:
    check(engine, max_examples=100)
