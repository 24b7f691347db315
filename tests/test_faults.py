"""The checks can fail: a planted fault in the construction is caught by the property that guards it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import Phase, given, settings
from torch import Tensor, nn

from conv2attn.convert import Certificate, ConversionError, attention_from_conv, certify
from conv2attn.convert.engines import factored, literal, separable
from conv2attn.convert.heads.encoding import key_positions
from conv2attn.convert.heads.values import AttentionLayer
from conv2attn.convert.spec import ConvSpec, Pads, Size
from conv2attn.proofs.evidence.strategies import convolutions_with_input


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


def shift_centers(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = vars(ConvSpec)["tap_offsets"].fget
    shifted = property(lambda spec: tuple((row, max(column - 1, 0)) for row, column in honest(spec)))
    monkeypatch.setattr(ConvSpec, "tap_offsets", shifted)


def swap_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literal, "key_positions", lambda grid, *, like: key_positions(grid, like=like).flip(-1))


def ignore_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    def unstrided(spec: ConvSpec, size: Size, *, like: Tensor) -> Tensor:
        output = spec.output_size(size)
        axes = (start + torch.arange(n, dtype=torch.float64) for start, n in zip(spec.middle, output, strict=True))
        return torch.cartesian_prod(*axes)

    monkeypatch.setattr(literal, "all_queries", unstrided)


def attend_over_the_unpadded_border(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ConvSpec.pad

    def replicate(spec: ConvSpec, x: Tensor) -> Tensor:
        top, bottom, left, right = spec.pads
        if spec.padding_mode != "zeros":
            return honest(spec, x)
        return nn.functional.pad(x, (left, right, top, bottom), mode="replicate")

    monkeypatch.setattr(ConvSpec, "pad", replicate)


def misplace_the_odd_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = vars(ConvSpec)["pads"].fget

    def swapped(spec: ConvSpec) -> Pads:
        top, bottom, left, right = honest(spec)
        return Pads(bottom, top, right, left)

    monkeypatch.setattr(ConvSpec, "pads", property(swapped))


def drop_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = literal.project_values

    def without_the_last(layer: object, padded: Tensor) -> Tensor:
        values = honest(layer, padded).clone()  # type: ignore[arg-type]
        values[-1] = 0
        return values

    monkeypatch.setattr(literal, "project_values", without_the_last)


LITERAL_FAULTS = [
    shift_centers,
    swap_rows_and_columns,
    ignore_stride,
    attend_over_the_unpadded_border,
    misplace_the_odd_pixel,
    drop_a_head,
]


@pytest.mark.parametrize("plant", LITERAL_FAULTS, ids=lambda plant: plant.__name__)
def test_a_fault_in_the_construction_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ConversionError)):  # the construction itself may notice first
        check("literal")


def test_smoothing_the_wrong_way_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = factored.Smoothing.__call__
    monkeypatch.setattr(factored.Smoothing, "__call__", lambda smoothing, padded: honest(smoothing, padded).flip(-1))
    with pytest.raises(AssertionError):
        check("factored", alpha=8.0)


def test_columns_read_with_the_tables_of_rows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = separable.axis_probabilities

    def rows_only(layer: AttentionLayer, size: Size, axis: int) -> Tensor:
        grid, probabilities = layer.spec.padded_size(size), honest(layer, size, 0)
        return probabilities if axis == 0 or len(set(grid)) > 1 else probabilities.flip(-1)

    monkeypatch.setattr(separable, "axis_probabilities", rows_only)
    with pytest.raises((AssertionError, RuntimeError)):
        check("separable")


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
