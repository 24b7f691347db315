"""A converted layer that the network does not run is named, and is neither verified nor certified."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.commands.inputs import Inputs, Pair
from conv2attn.commands.verify_network import verify_network
from conv2attn.convert import certify_images, certify_network, convert_model
from conv2attn.convert.certificate.network.certificate import NO_LAYER
from conv2attn.convert.files.report import certify_report
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.network.plan import IDLE, PASSED_BY

IMAGES = torch.randn(2, 3, 12, 13)


class FixedDict(dict[str, object]):
    """A configuration as libraries keep it, which refuses every change."""

    def __setitem__(self, *_: object) -> None:
        raise TypeError("it is fixed")

    def update(self, *_: object, **__: object) -> None:
        raise TypeError("it is fixed")


class FixedList(list[object]):
    """A list that refuses every change."""

    def __setitem__(self, *_: object) -> None:
        raise TypeError("it is fixed")


def test_containers_without_layers_are_left_as_they_are() -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 4, 3))
    cnn.config = FixedDict(sizes=FixedList([3, 4]), nested={"kind": "conv"})  # type: ignore[assignment]
    assert isinstance(convert_model(cnn, inplace=True).model[0], SelfAttention)  # type: ignore[index]


BOXES: dict[int, nn.Module] = {}  # which no attribute of a network leads to


class Passing(nn.Module):
    """Runs one layer by its name, one from a global dictionary, one by its weight; a fourth only while it trains."""

    def __init__(self) -> None:
        super().__init__()
        self.run, self.boxed, self.used = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)
        self.auxiliary, self.key = nn.Conv2d(4, 2, 1), len(BOXES)
        BOXES[self.key] = self.boxed

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 3, rows, columns] -> [batch, 4]."""
        x = BOXES[self.key](self.run(x))
        if self.training:
            self.auxiliary(x)
        return F.conv2d(x, self.used.weight, self.used.bias).mean((2, 3))


def test_layers_that_are_passed_by_are_named_and_those_that_nothing_needs_are_not_accused() -> None:
    report = convert_model(Passing().eval(), example=IMAGES).report
    assert {each.name: each.reason for each in report.idle or ()} == {
        "boxed": PASSED_BY,
        "used": PASSED_BY,
        "auxiliary": IDLE,
    }
    assert f"used {PASSED_BY}" in str(report)


def test_a_network_that_does_not_run_on_the_example_is_converted_and_says_so() -> None:
    model, report = convert_model(Passing().eval(), example=torch.zeros(1, 9, 4, 4))
    assert isinstance(model.run, SelfAttention)
    (problem,) = report.idle or ()
    assert problem.reason.startswith("was not run: ")


def test_a_layer_that_is_passed_by_has_no_certificate_and_is_not_verified() -> None:
    cnn = Passing().eval()
    model, report = convert_model(cnn)
    certified = {layer.name: layer for layer in certify_report(model, report, size=(12, 13)).layers}
    assert certified["used"].certificate is None
    assert PASSED_BY in certified["used"].bound_in_words
    assert certified["auxiliary"].certificate is not None
    check = verify_network(Pair(cnn, model), Inputs([IMAGES]))
    assert check.exit_code == 1
    assert check.outcome[0].startswith("Not verified")
    assert [line.split()[0] for line in check.outcome[1:4]] == [each.name for each in check.agreement.idle]


def test_a_network_none_of_whose_layers_runs_is_not_certified() -> None:
    class Used(nn.Module):
        """Uses a layer's weight alone."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            """[batch, 3, rows, columns] -> [batch, 4, rows - 2, columns - 2]."""
            return F.conv2d(x, self.conv.weight)

    model = convert_model(Used().eval()).model
    found = certify_network(model, input_range=(-1, 1), size=(12, 13))
    assert (found.bound, [each.reason for each in found.unbounded]) == (None, [NO_LAYER])
    assert certify_images(model, IMAGES[:1], margins=0).bound is not None  # of the program, whatever it is
