"""A melted network computes what the CNN does, within its certificate, and every parameter of it learns."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import certify_network, convert_model, restore_model
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines.literal import all_queries
from conv2attn.convert.errors import ConversionError, NotAConvolutionError
from conv2attn.convert.examples.images import draw_images
from conv2attn.convert.examples.networks import NETWORKS, load_example
from conv2attn.convert.heads.encoding import key_positions
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.learn.melting import MELTED_ALPHA, POSITION_RATE, attention_layers, melt, parameter_groups
from conv2attn.learn.recorder import AttentionRecorder, nonlocality
from tests.learn.small import network
from tests.processes import finished
from tests.small_models import assert_same_state

IMAGES, LABELS = draw_images(12, seed=77)
NOISE = torch.rand(IMAGES.shape, generator=torch.Generator().manual_seed(1)) * 2 - 1


def learned(model: nn.Module) -> dict[str, Tensor]:
    """The gradients that a batch of images gives."""
    model.eval().zero_grad()
    F.cross_entropy(model(IMAGES), LABELS).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("name", NETWORKS)
def test_at_step_0_the_network_is_the_cnn_within_its_certificate(name: str) -> None:
    cnn = load_example(name).double()
    melted = melt(cnn, alpha=12.0).eval()
    bound = certify_network(melted, input_range=(-1, 1), size=(24, 24)).bound
    with torch.no_grad():
        difference = float((melted(NOISE.double()) - cnn(NOISE.double())).abs().max())
    assert bound is not None
    assert 0 < difference <= bound


@pytest.mark.parametrize("name", NETWORKS)
def test_every_position_and_weight_has_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = melt(load_example(name), alpha=4.0)
    gradients = learned(model)
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for kind in ("log_alpha", "centers"):
        own = [gradient for key, gradient in gradients.items() if key.endswith(f".{kind}")]
        assert len(own) == len(list(attention_layers(model)))
        assert all(bool((gradient != 0).all()) for gradient in own), kind


def test_alpha_is_the_given_one_or_that_of_a_tolerance_layer_by_layer() -> None:
    cnn = load_example("plain")
    assert {layer.alpha[0].item() for _, layer in attention_layers(melt(cnn))} == {MELTED_ALPHA}
    by_tolerance = [layer.alpha[0].item() for _, layer in attention_layers(melt(cnn, tolerance=0.01))]
    assert len(set(by_tolerance)) == len(by_tolerance)
    looser = [layer.alpha[0].item() for _, layer in attention_layers(melt(cnn, tolerance=0.1))]
    assert all(one < other for one, other in zip(looser, by_tolerance, strict=True))


def test_only_chosen_layers_melt_and_the_model_is_left_alone() -> None:
    cnn = load_example("plain")
    before = copy.deepcopy(cnn)
    model = melt(cnn, filter_fn=lambda _, name: name == "3")
    assert [name for name, _ in attention_layers(model)] == ["3"]
    converted = convert_model(cnn).model
    chosen = melt(converted, filter_fn=lambda _, name: name == "3", alpha=2)
    assert [layer.trains_positions for _, layer in attention_layers(chosen)] == [False, True, False, False]
    assert_same_state(cnn, before)
    assert not any(layer.trains_positions for _, layer in attention_layers(converted))


STAGED = nn.Sequential(
    *(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 2, stride=2), nn.Conv2d(4, 4, 3, padding=1)),
    *(nn.AvgPool2d(2, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 2, (1, 3))),
)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"last": 1}, ["6"]),
        ({"last": 2}, ["3", "6"]),
        ({}, ["0", "2", "3", "5", "6"]),
        ({"filter_fn": lambda _, name: name == "0"}, ["0"]),
    ],
)
def test_last_counts_the_layers_that_see_several_pixels(options: dict[str, Any], names: list[str]) -> None:
    assert [name for name, _ in attention_layers(melt(STAGED, **options))] == names
    converted = convert_model(STAGED).model
    chosen = [name for name, layer in attention_layers(melt(converted, **options)) if layer.trains_positions]
    assert chosen == names


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"last": 5}, "at most 4"),
        ({"alpha": 4, "tolerance": 0.1}, "give one of them"),
        ({"alpha": 0.0}, "alpha must be positive and finite"),
        ({"tolerance": 1e-9}, r"rounding alone|allow more"),
    ],
)
def test_what_cannot_be_melted_so_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConversionError, match=said):
        melt(STAGED, **options)


def test_groups_hold_every_trained_parameter_once_and_positions_do_not_decay() -> None:
    model = melt(network(), alpha=4.0)
    for _, layer in attention_layers(model):
        layer.add_content(2)
    groups = parameter_groups(model, 0.01, 0.1)
    ids = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(ids) == sorted(map(id, model.parameters()))
    decay = {id(p): (g["weight_decay"], g["lr"]) for g in groups for p in g["params"]}
    for key, parameter in model.named_parameters():
        is_position = key.endswith(("alpha", "centers"))
        wanted = (0.1 if parameter.ndim > 1 and not is_position else 0.0, 0.01 * (POSITION_RATE if is_position else 1))
        assert decay[id(parameter)] == pytest.approx(wanted)
    torch.optim.AdamW(groups)


def test_at_a_large_alpha_positions_rest_with_a_warning_and_the_network_is_its_cnn() -> None:
    with pytest.warns(UserWarning, match="positions have no gradient: give a smaller alpha"):
        model = melt(network(), alpha=200.0)
    x = torch.rand(2, 1, 6, 7)
    assert torch.equal(model.eval()(x), network().eval()(x))
    assert not melt(network().eval()).training
    assert len(parameter_groups(model, 0.1, 0.0)) == 2


def test_positions_without_a_gradient_are_refused_with_what_to_do() -> None:
    model = convert_model(network()).model
    assert len(parameter_groups(model, 0.1, 0.0)) == 2  # their positions are not to be trained
    for _, layer in attention_layers(model):
        layer.train_positions()
    with pytest.raises(ConversionError, match=r"of 0, 3 are to be trained, and have no gradient.*melt\(model\)"):
        parameter_groups(model, 0.1, 0.0)


def test_a_melted_network_is_an_ordinary_one() -> None:
    model = melt(network(), alpha=3.0)
    other = convert_model(network(seed=1)).model
    other.load_state_dict(model.state_dict())
    x = torch.rand(2, 1, 6, 7)
    for (_, rest), (_, layer) in zip(attention_layers(other), attention_layers(model), strict=True):
        assert rest.positions.alpha == pytest.approx(layer.positions.alpha, rel=2.0**-23, abs=0)
        assert rest.positions.centers == layer.positions.centers
        assert torch.equal(rest.weight, layer.weight)
    assert torch.equal(copy.deepcopy(model.eval())(x), model(x))
    assert_same_state(restore_model(model, tolerance=10.0), network())
    with torch.no_grad():
        next(attention_layers(model))[1].get_parameter("centers").add_(0.25)
    with pytest.raises(
        NotAConvolutionError, match=r"not at its kernel tap .*, at most [0-9.]+ from the convolution of its weights"
    ):
        restore_model(model, tolerance=10.0)


def test_what_is_recorded_is_what_the_layers_have() -> None:
    model = melt(load_example("plain"), alpha=4.0).eval()
    record = AttentionRecorder.of(model, IMAGES[:2])
    at_first = record(model)["layers"]
    for _, layer in attention_layers(model):
        layer.set_positions(alpha=layer.alpha.detach() - 2.0, centers=layer.centers.detach() + 0.3)
    later = record(model)["layers"]
    for name, layer in attention_layers(model):
        assert later[name]["alpha"] == layer.alpha.tolist()
        assert later[name]["centers"] == layer.centers.tolist()
        assert later[name]["distance"] > at_first[name]["distance"] > 0
        assert later[name]["nonlocality"] > at_first[name]["nonlocality"] > 0


@pytest.mark.parametrize(
    ("conv", "shape"),
    [
        (nn.Conv2d(3, 2, (5, 3), dilation=(1, 2)), (2, 3, 8, 7)),
        (nn.ConvTranspose2d(3, 2, 3, stride=2), (2, 3, 3, 4)),
    ],
)
def test_nonlocality_is_the_mean_distance_of_the_attention_s_own_maps(conv: nn.Module, shape: tuple[int, ...]) -> None:
    layer, x = melt(conv, alpha=0.5), torch.randn(shape)
    assert isinstance(layer, SelfAttention)
    size, spec = Size(*shape[2:]), layer.spec
    keys = key_positions(spec.padded_size(size), like=torch.zeros((), dtype=torch.float64))
    far = torch.cdist(all_queries(spec, size, like=keys), keys)
    wanted = (layer.attention_probabilities(size).double().flatten(2) * far).sum(-1).mean().item()
    assert nonlocality(layer, x) == pytest.approx(wanted, rel=1e-6)


def test_a_layer_that_the_network_never_calls_is_not_recorded() -> None:
    idle = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten())
    idle[1].register_module("unused", nn.Conv2d(3, 2, 3))
    model, images = melt(idle), torch.randn(1, 3, 6, 5)
    assert AttentionRecorder.of(model, images)(model)["layers"].keys() == {"0"}


@pytest.mark.slow
def test_melting_and_freezing_need_no_lightning() -> None:
    code = "import sys; from conv2attn.learn import freeze, melt, parameter_groups; print('lightning' in sys.modules)"
    assert finished([sys.executable, "-c", code]).stdout == "False\n"
