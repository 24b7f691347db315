"""What is said of given images: no order of sums breaks the bound, and the estimate is the first-order one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConversionError, certify_images, convert_model
from conv2attn.convert.certificate.network import first_order
from conv2attn.convert.certificate.network.attention import bound_layer
from conv2attn.convert.layer.layer import SelfAttention
from tests.convert.certificate.network.networks import CHANNELS, SIZE, attention, layers_of, random_pair

SEARCHED = 16  # networks; 200 were searched once, with the same function


def classifier(alpha: float | None = None, *, norm: bool = True) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    parts = [
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8) if norm else nn.Identity(), nn.ReLU(inplace=True)),
        *(nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.Hardswish(), nn.Conv2d(8, 6, 2), nn.ReLU6()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5)),
    ]
    cnn = nn.Sequential(*parts).eval()
    return cnn, convert_model(cnn, alpha=alpha).model


def pictures(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 9, 12, generator=torch.Generator().manual_seed(1))


def programs(cnn: nn.Module, model: nn.Module) -> list[nn.Module]:
    """Programs of a network that add up in other orders."""
    found = [cnn, copy.deepcopy(cnn).to(memory_format=torch.channels_last), model]  # type: ignore[call-overload]
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


@pytest.mark.parametrize("alpha", [None, 3.0])
def test_programs_of_a_network_stay_within_the_bound_and_the_estimate(alpha: float | None) -> None:
    cnn, model = classifier(alpha)
    images = pictures()
    found = certify_images(model, images, margins=2)
    computed = [outputs(program, images) for program in programs(cnn, model)]
    assert found.unbounded == ()
    for number, certificate in enumerate(found.images):
        rows = torch.stack([row[number] for row in computed])
        apart = rows.amax(0) - rows.amin(0)
        assert certificate.bound is not None
        assert float(apart.max()) <= certificate.bound
        assert float(apart[certificate.top]) <= certificate.estimate < certificate.bound
        for margin in certificate.margins:
            values = rows[:, certificate.top] - rows[:, margin.other]
            assert margin.bound is not None
            assert float(values.max() - values.min()) <= min(margin.bound, margin.estimate)
            assert margin.value == pytest.approx(float(values[0]), abs=2 * margin.bound)


def excess(seed: int) -> float:
    """By how much programs of a random network exceed the bound on an image."""
    cnn, model, dtype = random_pair(seed)
    image = torch.randn(1, CHANNELS, *SIZE, generator=torch.Generator().manual_seed(seed)).to(dtype)
    found = certify_images(model, image, margins=0)
    if found.bound is None:
        return -1.0
    computed = torch.stack([outputs(program, image) for program in (cnn, model)])
    return float((computed.amax(0) - computed.amin(0)).max()) - found.bound


@pytest.mark.parametrize("first", range(0, SEARCHED, 4))
def test_no_order_of_sums_in_a_random_network_breaks_the_bound(first: int) -> None:
    found = {seed: excess(seed) for seed in range(first, first + 4)}
    assert max(found.values()) <= 0, found


def test_the_estimate_is_the_gradient_times_what_each_layer_can_differ_by() -> None:
    """A network without a kink on the way: one layer, an exact factor, an exact sum."""
    model = attention(lambda model, x: (model.conv(x) * 4.0).sum((1, 2, 3)), alpha=None)
    image = torch.rand(1, 1, 3, 4)
    (certificate,) = certify_images(model, image, margins=0).images
    bound = certificate.bound
    assert bound is not None
    assert 0 < certificate.estimate <= bound
    assert certificate.estimate == pytest.approx(bound, rel=1e-4)  # all of it is of first order
    assert (certificate.delta, certificate.near_kinks, certificate.units) == (0, 0, 0)


def test_units_near_a_kink_are_counted() -> None:
    model = attention(lambda model, x: model.conv(x).relu().flatten(1), alpha=None)
    image = torch.rand(1, 1, 5, 6) + 0.5
    image[0, 0, 0, :3] = 0.0
    (certificate,) = certify_images(model, image).images
    assert (certificate.near_kinks, certificate.units) == (6, 60)  # three zeros, in two channels
    assert 0 < certificate.delta < 1e-5


def test_what_is_certified_and_what_is_stable_are_told_apart() -> None:
    (certificate,) = certify_images(classifier()[1], pictures(1), margins=3).images
    assert len(certificate.margins) == 3
    assert certificate.is_certified
    assert certificate.is_stable
    values = [margin.value for margin in certificate.margins]
    assert values == sorted(values)
    soft = certify_images(classifier(1.0)[1], pictures(1), margins=3).images[0]
    assert not soft.is_certified


def test_half_precision_is_estimated_in_single() -> None:
    cnn, model = classifier()
    half = convert_model(copy.deepcopy(cnn).bfloat16()).model
    found, single = certify_images(half, pictures(1), margins=0), certify_images(model, pictures(1), margins=0)
    assert 1000 * single.estimate < found.estimate


BAD: dict[str, tuple[Any, str]] = {
    "channels": (torch.zeros(1, 2, 9, 12), "images must be a tensor"),
    "nan": (torch.full((1, 3, 9, 12), torch.nan), "NaN or an infinite value"),
    "small": (torch.zeros(1, 3, 2, 2), "torch cannot export the network on images of 2x2"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_certified_is_refused_in_one_sentence(name: str) -> None:
    images, reason = BAD[name]
    with pytest.raises(ConversionError, match=reason):
        certify_images(classifier()[1], images)


@pytest.mark.parametrize("options", [{"margins": -1}, {"margins": 1.5}])
def test_options_are_checked(options: Any) -> None:
    with pytest.raises(ConversionError):
        certify_images(classifier()[1], pictures(1), **options)


def test_a_layer_s_rounding_left_out_of_the_estimate_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault."""

    def half(name: str, layer: SelfAttention, *args: Any) -> Any:
        found, figures = bound_layer(name, layer, *args)
        return found.map(lambda bound: bound * 0.0), figures

    whole = certify_images(classifier()[1], pictures(1), margins=0).estimate
    monkeypatch.setattr(first_order, "bound_layer", half)
    assert certify_images(classifier()[1], pictures(1), margins=0).estimate < 0.7 * whole
