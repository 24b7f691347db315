"""A bound above the outputs is told as no useful bound, wherever people read it; data keep the number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv, certify, convert_model
from conv2attn.convert.certificate.wording import is_useful, told
from conv2attn.convert.files.report import certify_report
from conv2attn.convert.model.report import Report
from conv2attn.proofs.evidence.inputs import Inputs, Pair
from conv2attn.proofs.evidence.network import verify_network
from conv2attn.proofs.show.conversion import conversion_shown
from conv2attn.proofs.show.page.write import table_rows
from conv2attn.proofs.terminal.output import Table


def test_a_bound_is_told_as_a_number_only_where_it_is_at_most_the_outputs() -> None:
    assert told(1e-7, 3.0) == "1e-07"
    assert told(3.0, 3.0) == "3"
    assert told(4.4e22, 3.1) == "no useful bound (4.4e+22; outputs reach 3.1)"
    assert told(1e-7, 0.0) == "no useful bound (1e-07; outputs reach 0)"
    assert told(4.4e22, None) == "4.4e+22"
    assert {told(bound, 3.0) for bound in (None, math.inf, math.nan)} == {"no finite bound"}
    assert not is_useful(math.nan, 3.0)


def test_a_certificate_knows_what_its_outputs_reach() -> None:
    conv = nn.Conv2d(1, 2, (1, 2), bias=True)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([1.0, -2.0, 0.5, 0.25]).view(2, 1, 1, 2))
        conv.bias.copy_(torch.tensor([1.0, -7.0]))  # type: ignore[union-attr]
    certificate = certify(attention_from_conv(conv, alpha=9.0), input_range=(-3, 2))
    assert certificate.outputs == pytest.approx(10)
    assert certificate.in_words == f"{certificate.bound:.2g}"
    flat = certify(attention_from_conv(conv, alpha=1e-3), input_range=(-3, 2))
    assert flat.bound > flat.outputs
    assert flat.in_words.startswith("no useful bound (")


def table(shown: Iterable[Table | str]) -> Table:
    """The first table that is shown."""
    return next(part for part in shown if isinstance(part, Table))


def test_tables_and_the_page_tell_a_useless_bound_of_a_layer() -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4 * 3, 2)).eval()
    model = convert_model(cnn, alpha=2.0**-6).model
    (row,) = table(conversion_shown(Path(), certify_report(model, Report.of(model)))).rows
    assert str(row[-1]).startswith("no useful bound (")
    (row,) = table(verify_network(Pair(cnn, model), Inputs([torch.randn(2, 3, 6, 5)]), engines=["auto"]).shown()).rows
    assert "/ no useful bound (" in str(row[-1])
    entry = {
        "names": ["0"],
        "geometry": "3x3",
        "heads": 9,
        "parameters_before": 1,
        "parameters_after": 1,
        "alpha": [1.0],
    }
    numbers = {"difference": 0.0, "bound": 4.4e22, "outputs": 3.1}
    ((*_, bound, share),) = table_rows({"agreement": None, "layers": [entry | numbers]})
    assert bound.text == "no useful bound (4.4e+22; outputs reach 3.1)"
    assert bound.value == 4.4e22
    assert share.text == "\u2013"
