"""What is proved in Coq is what the code computes: its constants, its bound, and the numbers of its example.

Coq itself is not needed here. ``proofs/formal/coq.py`` has Coq evaluate tau, and compares it with
``proofs/formal/coq.py``, which these tests hold against the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import ceil, sqrt
from typing import Any

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, certify
from conv2attn.convert.bounds import rounding
from conv2attn.convert.bounds.rounding import gamma
from conv2attn.convert.bounds.tail import tail_fraction
from conv2attn.proofs.claims.common.lattice import Kernel, smoothed_bound
from conv2attn.proofs.formal.coq import FOLDER, statements, tau_lower, tau_upper

OUTWARD = Fraction(1) + Fraction(1, 2**29)  # the certificate rounds up by 2^-30, and by its own rounding
EXAMPLES = (FOLDER / "Examples.v").read_text(encoding="utf-8")


def enclosing(alpha: float) -> tuple[Fraction, Fraction]:
    """Two fractions with exp(-alpha) between them, 2^-109 apart in relation: far less than the certificate's 2^-30."""
    with mpmath.workprec(200):
        mantissa, exponent = mpmath.frexp(mpmath.exp(-mpmath.mpf(alpha)))
        middle = Fraction(int(mpmath.floor(mantissa * 2**120)), 2**120) * Fraction(2) ** int(exponent)
    return middle * (1 - Fraction(1, 2**110)), middle * (1 + Fraction(1, 2**110))


def formal_tau(alpha: float) -> tuple[Fraction, Fraction]:
    """Two fractions with tau(alpha) between them: tau_enclosed, and tau grows with q."""
    low, high = enclosing(alpha)
    terms = ceil(sqrt(60 / alpha))  # what is cut off is below exp(-60)
    return tau_lower(low, terms), tau_upper(high, terms)


@given(st.floats(0.1, 100))
def test_the_tail_of_the_code_lies_on_the_formal_one(alpha: float) -> None:
    low, high = formal_tau(alpha)
    assert low <= high <= Fraction(tail_fraction(alpha)) <= low * OUTWARD


@pytest.mark.fault
@pytest.mark.parametrize("factor", [1 - 2.0**-28, 1 + 2.0**-28])
def test_a_constant_that_is_slightly_wrong_is_noticed(factor: float) -> None:
    low, high = formal_tau(1.5)
    assert not high <= Fraction(tail_fraction(1.5) * factor) <= low * OUTWARD


def test_the_restated_formulas_are_those_of_the_file() -> None:
    theta, enclosure = ((FOLDER / name).read_text(encoding="utf-8") for name in ("Theta.v", "Enclosure.v"))
    assert "Definition theta_partial (q : R) (N : nat) : R := 1 + 2 * Sum n in seq 1 N, q ^ (n * n)." in theta
    assert "Definition tau (alpha : R) : R := 1 - / theta3 (decay alpha) ^ 2." in theta
    assert (
        "Definition theta_upper (q : R) (N : nat) : R := theta_partial q N + 2 * q ^ (S N * S N) / (1 - q)."
        in enclosure
    )
    (enclosed,) = (found.text for found in statements() if str(found) == "Enclosure.tau_enclosed")
    assert enclosed.endswith("Q2R (tau_lower q N) <= tau alpha <= Q2R (tau_upper q N)")
    (theorem,) = (found.text for found in statements() if str(found) == "Theorem1.theorem_1")
    assert theorem.endswith("<= tau alpha * weighted_range g W (grid H Wd) X o")


def exactly(numbers: Tensor) -> list[Any]:
    """A tensor's entries as fractions, nested as they are."""
    return [Fraction(entry.item()) if entry.dim() == 0 else exactly(entry) for entry in numbers]


def certified_tail(conv: nn.Conv2d, alpha: float) -> tuple[float, list[Fraction]]:
    """The tail that a layer is certified with, for a range a channel, and osc of each channel."""
    low = torch.randn(conv.in_channels, dtype=torch.float64).round(decimals=2)
    high = low + torch.rand(conv.in_channels, dtype=torch.float64).round(decimals=2)
    tail = certify(attention_from_conv(conv, alpha=alpha), input_range=(low, high)).tail
    return tail, [max(b, 0) - min(a, 0) for a, b in zip(exactly(low), exactly(high), strict=True)]  # zeros are padded


def largest(conv: nn.Conv2d, osc: list[Fraction], bound: Callable[[list[Any]], Any]) -> Any:
    """The largest sum over the input channels of an output channel: osc times the bound on its slice of the kernel."""
    reads, outputs = conv.in_channels // conv.groups, conv.out_channels // conv.groups
    return max(
        sum(osc[(o // outputs) * reads + c] * bound(channel) for c, channel in enumerate(channels))
        for o, channels in enumerate(exactly(conv.weight.detach()))
    )


def absolute(channel: list[Any]) -> Fraction:
    """sum_Delta |W_Delta|."""
    return sum((abs(weight) for row in channel for weight in row), Fraction(0))


@given(alpha=st.floats(0.3, 20), groups=st.sampled_from((1, 2)), seed=st.integers(0, 999))
def test_the_certificate_of_one_tap_is_at_least_the_bound_that_coq_proves(alpha: float, groups: int, seed: int) -> None:
    """theorem_1_per_head: sum_c osc_c tau |W[o, c]|, and no more than rounding above it."""
    torch.manual_seed(seed)
    conv = nn.Conv2d(4, 2, 1, padding=1, groups=groups, dtype=torch.float64)
    found, osc = certified_tail(conv, alpha)
    tau_low, tau_high = formal_tau(alpha)
    ranges = largest(conv, osc, absolute)
    assert tau_high * ranges <= Fraction(found)
    assert Fraction(found) <= tau_low * ranges * OUTWARD * Fraction(1 + gamma(8 * 4, 2.0**-53))


@given(alpha=st.floats(0.3, 20), groups=st.sampled_from((1, 2)), dilation=st.integers(1, 2), seed=st.integers(0, 999))
@settings(max_examples=8)
def test_the_certificate_of_several_taps_is_at_least_a_proved_bound_for_each_channel(
    alpha: float, groups: int, dilation: int, seed: int
) -> None:
    """certified_tail: for each pair of channels at least the smaller of two bounds, enclosed with Coq's formulas."""
    torch.manual_seed(seed)
    conv = nn.Conv2d(4, 2, (2, 3), padding=1, dilation=(1, dilation), groups=groups, dtype=torch.float64)
    found, osc = certified_tail(conv, alpha)
    tau_low, tau_high = formal_tau(alpha)

    def proved(channel: list[Any]) -> Fraction:
        weights = tuple(float(weight) for row in channel for weight in row)
        smoothed = smoothed_bound(Kernel((2, 3), (1, dilation), weights, (alpha,) * 6)).b
        return min(tau_high * absolute(channel), fraction_of(smoothed) / 2)

    assert largest(conv, osc, proved) <= Fraction(found)
    assert Fraction(found) <= tau_low * largest(conv, osc, absolute) * OUTWARD * Fraction(1 + gamma(8 * 24, 2.0**-53))


def test_the_formulas_of_the_smaller_bound_are_those_of_the_file() -> None:
    """``smoothed_bound`` of ``claims/common/lattice.py`` sums the same over a window, and adds what it leaves."""
    text = " ".join((FOLDER / "SmoothedKernel.v").read_text(encoding="utf-8").split())
    assert "exp (- alpha * distance2 z t) / theta3 (decay alpha) ^ length t." in text
    assert "Definition change (alpha : R) (t z : position) : R := share alpha t z - is_target t z." in text
    assert "(Sum z in window, Rabs (Sum m in taps, W m * change (alpha m) (offset_n l m) z)) + Sum m in taps" in text
    (theorem,) = (found.text for found in statements() if str(found) == "SmoothedKernel.certified_tail")
    assert "Rmin (Sum m in taps g, tau_n (length (axes g)) (alpha m) * Rabs (W o c m))" in theorem
    assert theorem.endswith("(kernel_change (axes g) (taps g) alpha (W o c) window / 2)")


# What Padding.v lists: pixels of an image of four around it, by mode of padding, 2 before and some behind.
@pytest.mark.parametrize(
    ("mode", "coq"), [("reflect", "Reflect"), ("replicate", "Replicate"), ("circular", "Circular")]
)
def test_padding_in_coq_is_that_of_pytorch(mode: str, coq: str) -> None:
    text = (FOLDER / "Padding.v").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"map \(source {coq} 4 2\) \(range 9\) = map Some \[([\d; ]+)\]", text)
    padded = torch.nn.functional.pad(torch.arange(4.0).view(1, 1, 4), (2, 3), mode=mode)
    assert [int(number) for number in listed.split(";")] == padded.flatten().int().tolist()


# Binary.v: precision and exponent of the smallest number, of the format of weights and outputs and of the sums.
FORMATS = {
    torch.float16: (Fraction(1, 2**11), -24, (24, -149)),
    torch.bfloat16: (Fraction(1, 2**8), -133, (24, -149)),
    torch.float32: (None, None, (24, -149)),
    torch.float64: (None, None, (53, -1074)),
}


def formal_rounding(conv: nn.Conv2d, largest: Fraction) -> Fraction:
    """``bound`` of ExactRegime.v, for the output channel where it is largest: both sides, without subnormal weights."""
    unit_out, lowest_out, (precision, lowest) = FORMATS[conv.weight.dtype]
    bounds: list[Fraction] = []
    terms = conv.weight[0].numel() + 1
    gamma_m = Fraction(terms, 2**precision) / (1 - Fraction(terms, 2**precision))
    biases = [Fraction(0)] * conv.out_channels if conv.bias is None else exactly(conv.bias.detach())
    for channel, bias in zip(exactly(conv.weight.detach().flatten(1)), biases, strict=True):
        weights = sum(map(abs, channel), Fraction(0))
        size = largest * weights + abs(bias)
        underflow = (1 + weights) * Fraction(2) ** (lowest + 2 * precision + 7)
        narrowing = Fraction(0)
        if unit_out is not None and lowest_out is not None:
            narrowing = unit_out * (1 + gamma_m)
            underflow += (2 + weights) * Fraction(2) ** lowest_out
        bounds.append(2 * (size * (gamma_m + narrowing) + underflow))
    return max(bounds)


@given(
    dtype=st.sampled_from(list(FORMATS)),
    groups=st.sampled_from((1, 2)),
    bias=st.booleans(),
    large=st.floats(0.5, 100),
    seed=st.integers(0, 999),
)
@settings(max_examples=40)
def test_the_certificate_of_one_hot_attention_lies_on_the_formal_one(
    dtype: torch.dtype, groups: int, bias: bool, large: float, seed: int
) -> None:
    torch.manual_seed(seed)
    conv = nn.Conv2d(4, 6, (3, 2), padding=1, groups=groups, bias=bias).to(dtype)
    found = certify(attention_from_conv(conv), input_range=(-large, large / 2)).bound
    formal = formal_rounding(conv, Fraction(large))
    assert formal <= Fraction(found) <= formal * (1 + Fraction(1, 2**20))


@given(alpha=st.floats(0.05, 100), scores=st.floats(0, 1e-6), axes=st.integers(1, 3))
@settings(max_examples=40)
def test_the_error_of_probabilities_lies_on_the_formal_one(alpha: float, scores: float, axes: int) -> None:
    for unit in (2.0**-24, 2.0**-53):
        exponentials = Fraction(64 * unit) + Fraction(5, 4) * Fraction(scores) + Fraction(1, 2**100)
        total = Fraction(rounding._accumulation(alpha, unit, axes=axes))
        formal = (1 + exponentials) * (1 + Fraction(unit)) / ((1 - exponentials) * (1 - total)) - 1
        found = Fraction(rounding._softmax_error(alpha, scores, unit, axes=axes))
        assert formal <= found * Fraction(rounding.OUTWARD)
        assert found <= formal * Fraction(rounding.OUTWARD)
    text = " ".join((FOLDER / "SoftmaxRounding.v").read_text(encoding="utf-8").split())
    assert "Sum k in keys, Rabs (computed k - p k) <= (1 + E) * (1 + u) / ((1 - E) * (1 - T)) - 1." in text


def test_the_formula_of_the_rounding_is_that_of_the_file() -> None:
    text = " ".join((FOLDER / "ExactRegime.v").read_text(encoding="utf-8").split())
    for formula in (
        "a * (gamma m (roundoff f) + if shorter then roundoff fo * (1 + gamma m (roundoff f)) else 0)",
        "(1 + gamma m (roundoff f)) * flushed + (1 + s) * power (lowest f + 2 * precision f + 7)",
        "if shorter then (2 + s) * power (lowest fo) else 0.",
        "2 * side f fo shorter (term_count g) (r * weight_sum g W o + Rabs (b o)) (weight_sum g W o) flushed.",
    ):
        assert formula in text
    formats = (FOLDER / "Binary.v").read_text(encoding="utf-8")
    assert "Definition binary16 := Format 11 (-24)." in formats
    assert "Definition bfloat16 := Format 8 (-133)." in formats
    assert "Definition binary32 := Format 24 (-149)." in formats
    assert "Definition binary64 := Format 53 (-1074)." in formats


def fraction_of(number: Any) -> Fraction:
    """An end of an interval, exactly."""
    sign, mantissa, exponent, _ = number._mpi_[0]
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)


def example_rows(name: str) -> list[list[float]]:
    """The numbers of a definition of Examples.v, row by row."""
    (body,) = re.findall(rf"Definition {name} : .*?entry\s*(\[\[.*?\]\])", EXAMPLES, re.DOTALL)
    return [[float(number) for number in row.split(";")] for row in re.findall(r"\[+([^\[\]]*)\]", body)]


def example_values(name: str) -> list[Fraction]:
    """The values that an example of Examples.v proves, in order."""
    (body,) = re.findall(rf"Example {name} :(.*?)\nProof", EXAMPLES, re.DOTALL)
    return [Fraction(value.replace(" ", "")) for value in re.findall(r" = (\d+(?: / \d+)?)", body)]


def test_the_layer_computes_the_numbers_of_the_formal_example() -> None:
    """Attention at alpha = ln 2, and the convolution: proved in Coq as fractions, computed by the engines here.

    ln 2 is rounded, by at most 2^-54. The derivative of p_k is p_k (E[D^2] - D_k^2), so the probabilities of a head
    change by at most 2^-54 times 2 max D^2 = 36 together; the weights add up to 11, and no pixel is larger than 9.
    """
    picture = torch.tensor([example_rows("picture")], dtype=torch.float64)
    conv = nn.Conv2d(1, 1, 3, dtype=torch.float64)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor(example_rows("weights")))
        conv.bias.fill_(7)  # type: ignore[union-attr]
    assert [Fraction(value) for value in conv(picture).flatten().tolist()] == example_values("convolution_values")
    layer = attention_from_conv(conv, alpha=float(mpmath.log(2)))
    error = certify(layer, input_range=(1.0, 9.0)).rounding_attention + 11 * 9 * 36 * 2.0**-54
    expected = example_values("attention_values")
    assert len(expected) == 4
    for engine in ("literal", "factored", "separable"):
        layer.engine = engine
        differences = [
            Fraction(value) - exact for value, exact in zip(layer(picture).flatten().tolist(), expected, strict=True)
        ]
        assert max(map(abs, differences)) <= Fraction(error)
