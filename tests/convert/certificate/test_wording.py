"""A bound above the outputs is told as no useful worst case, wherever people read it; data keep the number."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv, certify, certify_network, convert_model
from conv2attn.convert.certificate.layer import format_bound, is_useful, number
from conv2attn.learn.freezing import freeze
from conv2attn.learn.melting import melt


def test_a_bound_is_told_as_a_number_only_where_it_is_at_most_the_outputs() -> None:
    assert format_bound(1e-7, 3.0) == "1.0e-07"
    assert format_bound(3.0, 3.0) == "3"
    assert format_bound(4.4e22, 3.1) == "no useful worst case (4.4e+22; outputs reach 3.1)"
    assert format_bound(1e-7, 0.0) == "no useful worst case (1.0e-07; outputs reach 0)"
    assert format_bound(4.4e22, None) == "4.4e+22"
    assert {format_bound(bound, 3.0) for bound in (None, math.inf, math.nan)} == {"no finite bound"}
    assert not is_useful(math.nan, 3.0)


def test_a_number_has_two_digits_and_no_exponent_where_it_is_easy_to_read() -> None:
    shown = {0.0: "0", 3.46e-8: "3.5e-08", 0.000123: "1.2e-04", 0.035: "0.035", 0.2: "0.2", 7.0: "7", 1234.0: "1.2e+03"}
    assert {value: number(value) for value in shown} == shown
    assert number(math.inf) == "inf"


def test_a_certificate_knows_what_its_outputs_reach() -> None:
    conv = nn.Conv2d(1, 2, (1, 2), bias=True)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([1.0, -2.0, 0.5, 0.25]).view(2, 1, 1, 2))
        conv.bias.copy_(torch.tensor([1.0, -7.0]))  # type: ignore[union-attr]
    certificate = certify(attention_from_conv(conv, alpha=9.0), input_range=(-3, 2))
    assert certificate.outputs == pytest.approx(10)
    assert certificate.in_words == number(certificate.bound)
    flat = certify(attention_from_conv(conv, alpha=1e-3), input_range=(-3, 2))
    assert flat.bound > flat.outputs
    assert flat.in_words.startswith("no useful worst case (")


def test_certificates_and_frozen_models_print_a_few_lines_of_words() -> None:
    torch.manual_seed(0)
    cnn = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU()).eval()
    model = convert_model(cnn).model
    layer = certify(model[0], input_range=(-1, 1))  # type: ignore[index]
    first, *parts = str(layer).splitlines()
    assert first == f"worst case for any input within the range: {number(layer.bound)}"
    assert [line.rpartition(": ")[2] for line in parts] == [
        number(part) for part in (layer.tail, layer.rounding_attention, layer.rounding_convolution)
    ]
    whole = certify_network(model, input_range=(-1, 1), size=(5, 6))
    assert str(whole) == f"worst case for any 5x6 image within the range: {whole.in_words}"
    frozen = freeze(melt(cnn), 0.05)
    (found,) = frozen.layers
    size = "x".join(map(str, found.certificate.kernel_size))
    assert str(frozen).startswith(
        f"0: {size} kernel; worst case {number(found.certificate.cut_off)} away from borders, "
    )
