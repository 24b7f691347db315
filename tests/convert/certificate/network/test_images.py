"""What is said of given images: of the run that was made, of every run of a class, and to first order."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConversionError, certify_images, convert_model
from conv2attn.convert.bounds.rounding import unit_roundoff
from conv2attn.convert.certificate.network import attention as layers
from conv2attn.convert.certificate.network import images as rooms
from conv2attn.convert.certificate.network import interval, linearised, proof
from conv2attn.convert.certificate.network.interval import HYPOTHESES
from conv2attn.convert.certificate.network.linearised import Linearised
from conv2attn.convert.errors import InputError
from conv2attn.convert.examples.images import draw_images
from conv2attn.convert.examples.networks import load_example
from tests.convert.certificate.network.networks import CHANNELS, SIZE, Apply, attention, layers_of, random_pair
from tests.convert.certificate.network.pushed import pushed

SEARCHED = 16  # networks; 200 were searched once, with the same function
EXAMPLES = ("plain", "residual", "mobile")
PUSHED = 20  # networks; 2,000 were searched once, with the same function


def classifier(alpha: float | None = None, *, norm: bool = True) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    parts = [
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8) if norm else nn.Identity(), nn.ReLU(inplace=True)),
        *(nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.Hardswish(), nn.Conv2d(8, 6, 2), nn.ReLU6()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)),
    ]
    cnn = nn.Sequential(*parts).eval()
    return cnn, convert_model(cnn, alpha=alpha).model


def pictures(count: int = 2, size: tuple[int, int] = (9, 12)) -> Tensor:
    return torch.randn(count, 3, *size, generator=torch.Generator().manual_seed(1))


def others(cnn: nn.Module, model: nn.Module) -> list[nn.Module]:
    """Programs of a network that add up in other orders."""
    found = [copy.deepcopy(cnn).to(memory_format=torch.channels_last), model]  # type: ignore[call-overload]
    for engine in ("literal", "separable"):
        other = copy.deepcopy(model)
        for layer in layers_of(other):
            layer.engine = engine
        found.append(other)
    return found


def outputs(program: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        computed: Tensor = program(images)
        return computed.double().flatten(1)


@pytest.mark.parametrize(("alpha", "size"), [(None, (9, 12)), (None, (19, 24)), (16.0, (9, 12)), (24.0, (19, 24))])
def test_programs_of_a_network_stay_within_the_bound_and_the_estimate(
    alpha: float | None, size: tuple[int, int]
) -> None:
    cnn, model = classifier(alpha)
    images = pictures(2, size)
    found = certify_images(model, images, margins=2, hypothesis="any order", seed=0)
    one, *rest = (outputs(program, images) for program in (cnn, *others(cnn, model)))
    for number, certificate in enumerate(found.images):
        assert certificate.bound is not None, certificate.opens
        assert certificate.certified == all(margin.value > (margin.bound or math.inf) for margin in certificate.margins)
        for other in rest:
            apart = (one - other)[number]
            assert abs(float(apart[certificate.top])) <= certificate.bound
            for margin in certificate.margins:
                assert margin.bound is not None
                assert abs(float(apart[certificate.top] - apart[margin.other])) <= margin.bound


def test_a_larger_network_is_tested_by_draws_and_a_small_one_by_its_rows() -> None:
    model = classifier()[1]
    small, large = (certify_images(model, pictures(1, size), seed=3).images[0] for size in ((9, 12), (19, 24)))
    assert (small.p, large.p) == (0.0, 1e-9)
    for certificate in (small, large):
        assert certificate.bound is not None
        assert certificate.estimate <= certificate.bound * (1 + 1e-6)
        assert certificate.bound <= 1.5 * certificate.estimate


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [8.0, 16.0, 24.0])
@pytest.mark.parametrize("name", EXAMPLES)
def test_bounds_of_the_soft_examples_hold_their_tails(name: str, alpha: float) -> None:
    """The CNN and its soft attention, in three engines, are programs of the class; at alpha 8 ranges need not close."""
    cnn = load_example(name)
    model, (images, _) = convert_model(cnn, alpha=alpha).model, draw_images(2, seed=1)
    found = certify_images(model, images, margins=7, hypothesis="any order", seed=1)
    exact, *soft = (outputs(program, images) for program in (cnn, *others(cnn, model)[1:]))
    wide = outputs(copy.deepcopy(cnn).double(), images.double())
    for number, certificate in enumerate(found.images):
        assert certificate.error is not None  # of the run that was made, whatever alpha is
        assert certificate.reference is not None
        alone = outputs(model, images[number : number + 1])[0]  # in a batch the run would be another
        assert float((wide[number] - alone).abs().max()) <= certificate.error + certificate.reference
        if certificate.bound is None:
            assert certificate.opens is not None
            assert certificate.opens.layer in dict(model.named_modules())
            continue
        for other in soft:
            apart = (exact - other)[number]
            assert abs(float(apart[certificate.top])) <= certificate.bound
            for margin in certificate.margins:
                assert abs(float(apart[certificate.top] - apart[margin.other])) <= (margin.bound or 0.0)
            if certificate.certified:
                assert int(other[number].argmax()) == int(exact[number].argmax()) == certificate.top
    assert all(one.bound is not None for one in found.images) or alpha == 8.0
    assert any(one.certified for one in found.images) or alpha == 8.0


def exactly(weights: list[tuple[Tensor, Tensor]], image: Tensor) -> list[Fraction]:
    """Linear layers with rectifiers between them, in rational numbers."""
    x = [Fraction(float(value)) for value in image.flatten()]
    for place, (weight, bias) in enumerate(weights):
        if place:
            x = [max(value, Fraction(0)) for value in x]
        rows = zip(weight.tolist(), bias.tolist(), strict=True)
        x = [sum(Fraction(w) * value for w, value in zip(row, x, strict=True)) + Fraction(b) for row, b in rows]
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_error_of_the_run_is_that_against_exact_numbers(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    layers = [nn.Linear(12, 40), nn.Linear(40, 70), nn.Linear(70, 4)]
    model = nn.Sequential(nn.Flatten(), layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).eval().to(dtype)
    image = torch.randn(1, 3, 2, 2).to(dtype)
    (found,) = certify_images(model, image, margins=0).images
    exact = exactly([(layer.weight.detach(), layer.bias.detach()) for layer in layers], image)
    with torch.no_grad():
        run = [Fraction(float(value)) for value in model(image).flatten()]
    apart = max(abs(one - other) for one, other in zip(run, exact, strict=True))
    assert found.error is not None
    assert found.reference is not None
    assert apart <= Fraction(found.error)
    assert float(apart) >= found.measured - found.reference
    assert found.reference < found.measured / 1000  # so that three digits of the error are those that were measured


def test_the_run_of_another_network_is_measured_too() -> None:
    cnn, model = classifier()
    moved = copy.deepcopy(cnn)
    with torch.no_grad():
        next(reversed(list(moved.parameters()))).add_(0.25)
    alone, both = (certify_images(model, pictures(1), other=other).images[0] for other in (None, moved))
    assert alone.measured < 1e-6
    assert both.measured == pytest.approx(0.25, abs=1e-5)
    assert both.error is not None
    assert both.error >= 0.25 - 1e-5
    with pytest.raises(InputError, match="gives 6 outputs"):
        certify_images(model, pictures(1), other=nn.Sequential(cnn, nn.ConstantPad1d((0, 1), 0.0)).eval())


def test_a_network_that_is_not_converted_is_certified_and_one_whose_run_is_not_finite_has_no_error() -> None:
    cnn, model = classifier()
    one, other = (certify_images(network, pictures(1), seed=1).images[0] for network in (cnn, model))
    assert (one.top, other.top) == (4, 4)
    assert one.estimate == pytest.approx(other.estimate, rel=1e-5)  # but for our own run's rounding

    def overflowing(x: Tensor) -> Tensor:
        return x if x.dtype == torch.float64 else x * math.inf

    (found,) = certify_images(cnn, pictures(1), other=nn.Sequential(cnn, Apply(overflowing)).eval()).images
    assert found.measured == math.inf


def test_the_estimate_is_the_gradient_times_what_each_layer_can_differ_by() -> None:
    """A network without a kink on the way: one layer, an exact factor, an exact sum."""
    model = attention(lambda model, x: (model.conv(x) * 4.0).sum((1, 2, 3)), alpha=None)
    image = torch.rand(1, 1, 3, 4)
    (found,) = certify_images(model, image, margins=0).images
    unit, total = 2.0**-24, float(image.double().sum())
    rounded = 4 * (2 + 3) * total + 4 * (2 + 3) * total + 4 * total  # each layer's results, four times these, the sum
    assert found.estimate == pytest.approx(2 * unit * rounded, rel=2.0**-19)
    assert found.bound is not None
    assert found.estimate <= found.bound <= found.estimate * (1 + 1e-5)
    assert (found.units, found.unstable) == (2 * 12 * 2 + 1, 0)


def test_the_hypotheses_are_those_that_are_documented() -> None:
    assert HYPOTHESES == ("once", "any order")


def test_a_stricter_hypothesis_has_a_smaller_estimate() -> None:
    cnn = classifier()[0]
    found = certify_images(cnn, pictures(1), hypothesis="once", margins=1).images[0]
    widest = certify_images(cnn, pictures(1), hypothesis="any order", margins=1).images[0]
    assert found.estimate <= widest.estimate
    assert (found.hypothesis, found.bound is not None) == ("once", True)


def test_numbers_that_are_0_in_every_program_round_nothing() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3)).eval()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        parameters["0.bias"].sub_(100)
    found = certify_images(model, pictures(1), hypothesis="any order", margins=0).images[0]
    assert found.estimate <= 2 * 2.0**-23 * float(parameters["2.bias"].detach().abs().max())


def test_seeds_are_drawn_and_recorded_and_one_repeats_a_certificate() -> None:
    model, images = classifier()[1], pictures(1, (19, 24))
    first, second = (certify_images(model, images, margins=1).images[0] for _ in range(2))
    assert first.seed != second.seed
    again = certify_images(model, images, margins=1, seed=first.seed).images[0]
    assert (first.is_drawn, again.is_drawn) == (True, False)
    assert replace(again, is_drawn=True) == first


def test_ranges_that_do_not_close_have_no_bound_and_say_where() -> None:
    torch.manual_seed(0)
    parts = [[nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()] for _ in range(12)]
    model = nn.Sequential(nn.Conv2d(3, 8, 1), *itertools.chain(*parts), nn.Flatten(), nn.Linear(8 * 144, 3)).eval()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    (found,) = certify_images(model.bfloat16(), pictures(1, (12, 12)), seed=0).images
    assert (found.bound, found.certified, found.margins[0].bound) == (None, False, None)
    assert found.opens is not None
    assert found.opens.layer in dict(model.named_modules())
    assert found.error is not None  # of the run that was made
    assert found.opens.layer in rooms.ImagesCertificate((found,)).in_words


def test_a_bound_says_in_words_and_as_data_what_it_is() -> None:
    found = certify_images(classifier()[1], pictures(2), margins=1)
    data = found.to_json()
    within = f"On 2 images, this run is within {found.error:.2g} of exact arithmetic, which is proved."
    moved = f"Rounding each operation once moves no output by more than {found.bound:.2g}"
    estimate = f"(first-order estimate {found.estimate:.2g}); it cannot change the class of 2 of the 2 images."
    assert found.in_words == f"{within} {moved} {estimate}"
    assert [data["images"][n]["error"] for n in range(2)] == [one.error for one in found.images]
    assert data["in_words"] == found.in_words
    assert data["images"][0]["hypothesis"] == "once"


def rectified() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 2, 1), nn.Softplus()).eval()


REFUSED: dict[str, tuple[Any, Any, dict[str, Any], str]] = {
    "train mode": (lambda: classifier()[0].train(), pictures(1), {}, "train mode"),
    "NaN": (lambda: classifier()[0], pictures(1) * math.nan, {}, "must be finite"),
    "no floating-point numbers": (lambda: classifier()[0], torch.zeros(1, 3, 9, 12).long(), {}, "floating-point"),
    "one image without its count": (lambda: classifier()[0], pictures(1)[0, 0, 0], {}, "must be a tensor"),
    "an operation without a rule": (rectified, pictures(1), {}, "no bound is known for softplus"),
    "a hypothesis": (lambda: classifier()[0], pictures(1), {"hypothesis": "none"}, "hypothesis must be one of"),
    "a probability": (lambda: classifier()[0], pictures(1), {"p": 0.0}, "p must be a probability"),
    "margins": (lambda: classifier()[0], pictures(1), {"margins": -1}, "margins"),
    "a seed": (lambda: classifier()[0], pictures(1), {"seed": -1}, "seed"),
    "no network": (lambda: print, pictures(1), {}, "must be a torch.nn.Module"),
    "random numbers": (lambda: Apply(torch.rand_like).eval(), pictures(1), {}, "rand"),
    "outputs without images": (lambda: Apply(lambda x: torch.ones(3)).eval(), pictures(1), {}, "do not depend"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_certificate_is_refused_in_a_sentence(name: str) -> None:
    network, images, options, why = REFUSED[name]
    with pytest.raises(ConversionError, match=why):
        certify_images(network(), images, **options)


def test_what_may_overflow_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 1)).eval()
    with torch.no_grad():
        next(model.parameters()).fill_(2.0**100)
    with pytest.raises(ConversionError, match="may exceed the largest number of its dtype"):
        certify_images(model, pictures(1) * 2.0**40)


def excess(seed: int) -> float:
    """By how much programs of a random network exceed the bound on an image."""
    cnn, model, dtype = random_pair(seed)
    image = torch.randn(1, CHANNELS, *SIZE, generator=torch.Generator().manual_seed(seed)).to(dtype)
    (found,) = certify_images(model, image, margins=0, hypothesis="any order", seed=seed).images
    one, other = (outputs(program, image)[0] for program in (cnn, model))
    assert found.error is None or float((other - one)[found.top].abs()) <= 2 * found.error + found.measured
    return -1.0 if found.bound is None else float((other - one)[found.top].abs()) - found.bound


@pytest.mark.parametrize("first", range(0, SEARCHED, 4))
def test_no_order_of_sums_in_a_random_network_breaks_the_bound(first: int) -> None:
    found = {seed: excess(seed) for seed in range(first, first + 4)}
    assert max(found.values()) <= 0, found


@pytest.mark.parametrize("hypothesis", ["once", "any order"])
@pytest.mark.parametrize("first", range(0, PUSHED, 5))
def test_roundings_that_are_pushed_to_their_extremes_stay_within_the_bound(first: int, hypothesis: str) -> None:
    found = {seed: pushed(seed, hypothesis) for seed in range(first, first + 5)}
    known = {seed: one[0] for seed, one in found.items() if one is not None}
    assert len(known) == 5  # networks this small have a bound
    assert max(known.values()) <= 1, known


@pytest.mark.fault
def test_a_class_whose_roundings_are_a_hundredth_smaller_is_broken_by_pushed_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interval, "unit_roundoff", lambda dtype: 0.99 * unit_roundoff(dtype))
    found = pushed(16, "once")  # a network whose bound is reached
    assert found is not None
    assert found[0] > 1


def test_the_truth_has_a_proved_error_for_whoever_compares_with_it() -> None:
    cnn, _ = classifier()
    ((truth, error),) = rooms.truth_of(*rooms.program_for(cnn, pictures(1)), seed=0)
    (found,) = certify_images(cnn, pictures(1), margins=0, seed=0).images
    assert error == found.reference
    assert float((outputs(cnn, pictures(1))[0] - truth).abs().max()) == found.measured


@pytest.mark.fault
def test_half_of_an_attention_layer_s_own_error_is_too_small_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    bound_program = layers.bound_program

    def half(*arguments: Any) -> Any:
        bounds, tail = bound_program(*arguments)
        return type(bounds)(bounds.low, bounds.high, bounds.error / 2), tail

    def estimate() -> float:
        (found,) = certify_images(classifier()[1], pictures(1), margins=0, hypothesis="any order").images
        return found.estimate

    whole = estimate()
    monkeypatch.setattr(linearised, "bound_program", half)
    assert estimate() < 0.9 * whole


def test_columns_have_the_scale_of_rows() -> None:
    """Medians of many columns beside R, which a backward pass for each unit gives."""
    model, images = classifier()[0], pictures(1, (5, 6))
    program, image = rooms.program_for(model, images)
    rows = Linearised(program, image, "any order", radius="rows")
    draws, found = proof.Draws(5), dict[int, Tensor]()

    def seen(index: int, size: Tensor) -> None:
        if rows.steps[index].tested is not None:
            found[index] = size.median(0).values

    with torch.no_grad():
        is_fine = linearised.columns_of(rows.steps, 4001, draws.added, torch.float64, seen)
    assert bool(is_fine.all())
    for index, median in found.items():
        tested = rows.steps[index].tested
        assert tested is not None
        ratio = median / tested
        assert 0.85 < float(ratio.min()) <= float(ratio.max()) < 1.15, rows.steps[index].place
