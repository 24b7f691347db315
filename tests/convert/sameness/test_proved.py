"""What is proved of a comparison holds against exact numbers, and long proofs are made only where one asks for them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import convert_model, graft
from conv2attn.convert.certificate.network import images as certificates
from conv2attn.convert.certificate.network.proof import Opens, prove
from conv2attn.convert.sameness.proved import Proving
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.verdict import Sameness, Worst
from tests.convert.sameness.planted import rounded_once

SHAPE = (2, 3, 2, 2)


def dense() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3)).eval()


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    parts = [[nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()] for _ in range(2)]
    flat = [one for part in parts for one in part]
    return nn.Sequential(nn.Conv2d(3, 8, 3), *flat, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()


def images(size: int = 2, seed: int = 1) -> Tensor:
    return torch.randn(SHAPE[0], 3, size, size, generator=torch.Generator().manual_seed(seed))


def exactly(network: nn.Sequential, image: Tensor) -> list[Fraction]:
    x = [Fraction(float(value)) for value in image.flatten()]
    for layer in network:
        if isinstance(layer, nn.ReLU):
            x = [max(value, Fraction(0)) for value in x]
        elif isinstance(layer, nn.Linear):
            rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
            x = [sum((Fraction(w) * value for w, value in zip(row, x, strict=True)), Fraction(b)) for row, b in rows]
    return x


def test_the_truth_is_as_near_to_exact_numbers_as_the_report_says() -> None:
    network, inputs = dense(), images()
    found = same(network, rounded_once(network), inputs)
    wide = copy.deepcopy(network).double()
    assert found.truth_error is not None
    assert 0 < found.truth_error < 1e-13
    with torch.no_grad():
        apart = [
            abs(Fraction(float(one)) - exact)
            for image in inputs.split(1)
            for one, exact in zip(wide(image.double()).flatten(), exactly(network, image), strict=True)
        ]
    assert max(apart) <= Fraction(found.truth_error)
    assert "The float64 reference is within" in str(found)
    assert found.to_dict()["truth_error"] == found.truth_error


@pytest.mark.fault
def test_a_truth_that_is_off_is_not_said_to_be_nearer() -> None:
    network, inputs = dense(), images()
    proving = Proving.of(network, [inputs], torch.float32, seed=0, is_asked=False)
    assert isinstance(proving, Proving)
    truth = copy.deepcopy(network).double()(inputs.double()).detach()
    moved = truth.clone()
    moved[1, 2] += 1e-6
    errors = [proving.truth_error({"": one}) for one in (truth, moved)]
    assert isinstance(errors[0], float)
    assert isinstance(errors[1], float)
    assert errors[0] < 1e-13
    assert errors[1] >= 1e-6


def test_larger_networks_are_proved_where_it_is_asked_for() -> None:
    network, inputs = convolutions(), images(24)
    quick, asked = (same(network, rounded_once(network), inputs, prove=prove) for prove in (False, True))
    assert quick.verdict == asked.verdict == "rounding"
    assert quick.truth_error is None
    assert asked.truth_error is not None
    assert 0 < asked.truth_error < 1e-12
    assert quick.worst is None
    assert asked.worst is not None
    assert asked.worst.hypothesis == "any order"
    assert asked.worst.bound is not None
    assert asked.worst.estimate <= asked.worst.bound * (1 + 1e-6)
    assert "any order of these operations changes it by at most" in " ".join(str(asked).split())


def test_another_class_of_programs_is_tried_where_ranges_do_not_close_for_any_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def opening(program: Any, image: Any, hypothesis: Any, *rest: Any, **options: Any) -> Any:
        if hypothesis == "any order":
            return Opens("somewhere", "ranges open there")
        return prove(program, image, hypothesis, *rest, **options)

    monkeypatch.setattr(certificates, "prove", opening)
    network, inputs = dense(), images()
    found = same(network, rounded_once(network), inputs, prove=True)
    assert found.worst is not None
    assert found.worst.hypothesis == "once"
    assert found.worst.bound is not None
    assert found.worst.bound < found.worst.estimate
    assert "rounding each operation once" in " ".join(found.lines())


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "an operation without a rule": (lambda: nn.Sequential(dense(), nn.Softplus()).eval(), "softplus"),
    "soft attention": (lambda: convert_model(convolutions(), alpha=4.0).model, "soft attention is its convolution"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_proved_is_said_where_it_was_asked_for(name: str) -> None:
    make, why = REFUSED[name]
    network = make()
    inputs = images(16) if name == "soft attention" else images()
    for is_asked in (False, True):
        found = same(network, rounded_once(network), inputs, prove=is_asked)
        assert found.truth_error is None
        said = [note for note in found.notes if note.startswith("The error of the float64 reference is not proved: ")]
        assert len(said) == is_asked
        assert all(why in note for note in said)


def test_a_difference_beyond_the_bound_is_said_to_be_no_rounding_under_its_hypothesis() -> None:
    network, inputs = dense(), images()
    wrong = copy.deepcopy(network)
    with torch.no_grad():
        next(wrong.parameters())[0, 0] += 1e-3
    found = same(network, wrong, inputs)
    assert found.verdict == "not rounding"
    assert found.worst is not None
    assert found.worst.bound is not None
    assert found.worst.bound < found.worst.difference
    assert "which is proved." in " ".join(found.lines())


def test_each_hypothesis_has_its_sentence() -> None:
    said = [
        Sameness("rounding", worst=Worst(*numbers, hypothesis=name)).lines()[1]
        for name in ("any order", "once")
        for numbers in ((1e-6, 1e-3, 2e-3), (1.0, 1e-3, 2e-3))
    ]
    assert len(set(said)) == 4
    assert all("prove" in one for one in said)


def test_a_network_with_trained_heads_is_compared_and_its_truth_is_not_proved() -> None:
    network = convolutions()
    grafted = graft(network, where="last").model.eval()
    for name, parameter in grafted.named_parameters():
        if "spare" in name:
            nn.init.normal_(parameter, std=0.1)
    found = same(grafted, rounded_once(grafted), images(8), prove=True)
    assert found.verdict == "rounding"
    assert found.truth_error is None
    assert any("spare heads were trained" in note for note in found.notes)
