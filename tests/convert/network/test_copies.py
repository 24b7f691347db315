"""Copies, pickles and averages of layers and networks hold the same numbers, compute the same, and share nothing."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from conv2attn.convert import SelfAttention2d, attention_from_conv, convert_model, graft
from conv2attn.convert.layer.spare import SpareHeads
from tests.small_models import Composite, assert_same_state, composite_input, with_trained_heads


def layer(change: Callable[[SelfAttention2d], object]) -> nn.Module:
    found = attention_from_conv(nn.Conv2d(2, 6, (3, 2), padding=1), alpha=2.0)
    change(found)
    return found


def of_spare_heads(*, beside: bool) -> nn.Module:
    heads = SpareHeads(2, 5, 3, beside=beside, positions=beside)
    return with_trained_heads(layer(lambda found: found.add_spare_heads(heads)))


KEPT: dict[str, Callable[[], nn.Module]] = {
    "positions at rest": lambda: layer(lambda found: found.set_positions(alpha=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
    "positions in training": lambda: layer(lambda found: found.train_positions()),
    "spare heads in front": lambda: of_spare_heads(beside=False),
    "spare heads beside": lambda: of_spare_heads(beside=True),
    "converted": lambda: convert_model(Composite()).model,
    "grafted": lambda: with_trained_heads(graft(Composite(), where="blocks.0").model),
}


def saved(model: nn.Module) -> nn.Module:
    torch.save(model, file := io.BytesIO())
    file.seek(0)
    found: nn.Module = torch.load(file, weights_only=False)
    return found


def averaged(model: nn.Module) -> nn.Module:
    average = AveragedModel(model, use_buffers=True)
    average.update_parameters(model)
    return average.module


WAYS: list[Callable[[nn.Module], nn.Module]] = [
    copy.deepcopy,
    lambda model: pickle.loads(pickle.dumps(model)),
    saved,
    averaged,
]


def places(model: nn.Module) -> list[int]:
    """For each name of a module or parameter, where the same one has its first name."""
    named = *model.named_modules(remove_duplicate=False), *model.named_parameters(remove_duplicate=False)
    objects = [id(each) for _, each in named]
    return [objects.index(each) for each in objects]


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_is_the_same_and_shares_nothing(way: Callable[[nn.Module], nn.Module], kind: str) -> None:
    model, x = KEPT[kind]().eval(), composite_input()
    expected, other = model(x), way(model)
    assert repr(other) == repr(model)
    assert places(other) == places(model)
    assert_same_state(other, model)
    assert torch.equal(other(x), expected)
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    assert not torch.equal(other(x), expected)
    assert torch.equal(model(x), expected)
