"""Restoring gives back the CNN, bit for bit, or says which layers are no convolutions any more."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import ConversionError, certify, convert_model, load_converted, restore_model, save_converted
from conv2attn.convert.bounds.tail import tail_per_unit
from conv2attn.convert.errors import NotAConvolutionError
from conv2attn.learn.freezing import freeze
from conv2attn.learn.melting import melt
from conv2attn.proofs.campaign.strategies import convolutions_with_input
from tests.positions import move_center, set_alpha
from tests.small_models import Composite, assert_same_state, attention, composite_input


def test_sharing_ties_modes_and_frozen_parameters_come_back() -> None:
    model = Composite()
    model.blocks.eval()
    model.stem.requires_grad_(False)
    restored = restore_model(convert_model(model).model)
    assert restored.get_submodule("blocks.0") is restored.get_submodule("blocks.2")
    assert restored.get_submodule("tied").weight is restored.get_submodule("blocks.0").weight
    assert [module.training for module in restored.modules()] == [module.training for module in model.modules()]
    assert [p.requires_grad for p in restored.parameters()] == [p.requires_grad for p in model.parameters()]
    x = composite_input()
    assert torch.equal(restored(x), model(x))


def test_there_and_back_in_place_keeps_the_parameter_objects_and_hooks() -> None:
    model, fired = Composite(), list[str]()
    handle = model.stem.register_forward_hook(lambda module, args, output: fired.append(type(module).__name__))
    parameters = dict(model.named_parameters())
    restored = restore_model(convert_model(model, inplace=True).model, inplace=True)
    assert restored is model
    assert dict(restored.named_parameters()) == parameters
    restored(composite_input())
    handle.remove()
    restored(composite_input())
    assert fired == ["Conv2d"]


def test_a_copy_leaves_the_converted_model_as_it_was() -> None:
    converted = convert_model(Composite()).model
    state = copy.deepcopy(converted.state_dict())
    nn.init.zeros_(restore_model(converted).get_parameter("stem.weight"))
    assert all(torch.equal(value, state[key]) for key, value in converted.state_dict().items())


# What is no convolution any more


def test_all_layers_that_are_no_convolutions_are_named_and_nothing_changes() -> None:
    model = convert_model(Composite()).model
    with torch.no_grad():
        move_center(attention(model, "stem"), 1, 0.5)
        set_alpha(attention(model, "blocks.0"), 0, 3)
        nn.init.ones_(attention(model, "tied").add_content(2).key_bias)
    modules, state = list(model.modules()), copy.deepcopy(model.state_dict())
    with pytest.raises(NotAConvolutionError, match="3 of 4 attention layers") as caught:
        restore_model(model, inplace=True)
    for reason in (
        "stem: the centre of head 1 is at (0.5, 0.5), not at its kernel tap (0, 0)",
        "blocks.0: its attention is soft (alpha 3); tolerance= says",
        "tied: its content terms are on",
    ):
        assert reason in str(caught.value)
    assert list(model.modules()) == modules
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    with pytest.raises(NotAConvolutionError, match="no self-attention layer to restore"):
        restore_model(nn.Sequential(nn.Conv2d(2, 3, 1)))


def test_content_terms_that_are_off_and_a_trained_but_one_hot_alpha_restore() -> None:
    model = Composite()
    converted = convert_model(model).model
    attention(converted, "stem").add_content(3)
    with torch.no_grad():
        attention(converted, "blocks.0").set_positions(
            alpha=attention(converted, "blocks.0").alpha + (torch.arange(6.0))
        )
    assert_same_state(restore_model(converted), model)


@settings(max_examples=20)
@given(convolutions_with_input(dtype=torch.float64), st.floats(0.5, 8))
def test_soft_attention_restores_within_the_tolerance_and_not_below(
    case: tuple[nn.Conv2d, Tensor], alpha: float
) -> None:
    conv, x = case
    model = convert_model(conv, alpha=alpha).model
    tolerance = tail_per_unit(attention(model).values())
    with pytest.raises(NotAConvolutionError, match="more than tolerance="):
        restore_model(model, tolerance=0.99 * tolerance)
    restored = restore_model(model, tolerance=tolerance)
    assert_same_state(restored, conv)
    x = x.sigmoid()  # channels that vary by at most 1, padding included
    certificate = certify(attention(model), input_range=(0, 1))
    rounding = certificate.rounding_attention + certificate.rounding_convolution
    assert (model(x) - restored(x)).abs().max() <= tolerance + rounding


# A converted network is not written by its library's save_pretrained, which would lose its attention


class Pretrained(nn.Module):
    """Saves itself, as networks of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, (3, 2))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y

    def save_pretrained(self, folder: Path) -> str:
        return f"saved in {folder}"


@pytest.mark.parametrize("change", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_converted_or_melted_network_refuses_and_a_cnn_does_not(change: object, tmp_path: Path) -> None:
    assert callable(change)
    cnn = Pretrained()
    save_converted(convert_model(cnn).model, tmp_path / "made")
    loaded = load_converted(tmp_path / "made", architecture=Pretrained())
    for made in (convert_model(cnn).model, melt(cnn), loaded):
        with pytest.raises(ConversionError, match="save_converted or HubNetwork keeps a converted network"):
            change(made).save_pretrained("folder")
    melted = melt(nn.Sequential(cnn), alpha=2.0)
    plain: Any
    for plain in (cnn, restore_model(convert_model(cnn).model), freeze(melted, 0.1).model.get_submodule("0")):
        assert plain.save_pretrained("folder") == "saved in folder"
