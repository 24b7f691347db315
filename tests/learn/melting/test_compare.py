"""What a comparison cannot be made of is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conv2attn.convert.errors import ConversionError
from conv2attn.learn.melting.compare import compare
from conv2attn.learn.training.recipe import LARGEST_SEED, Recipe
from tests.learn.small import data, network


def test_seeds_that_a_training_cannot_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="seed must be an integer from"):
        compare(data(), tmp_path / "out", recipe=Recipe(epochs=1, batch_size=8, seed=LARGEST_SEED - 1), seeds=3)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cnn": network(classes=2)}, "small has 3 classes"),
        ({"melting": {"tolerance": 1.0, "alpha": 2.0}}, "give one of them"),
        ({"melting": {"alpha": 1e9}}, "no gradient"),
        ({"melting": {"filter_fn": lambda *_: False}}, "none of the model's 4 convolutions"),
        ({"melting": {"content": 0}, "rates": (0.1,)}, "content must be an integer from 1 to"),
        ({"melting": {"content": 2}}, r"content would not be seen; take more epochs, or a learning rate of 0.0"),
    ],
)
def test_what_a_run_of_a_comparison_would_be_refused_is_refused_before_the_first(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match=said):
        compare(data(), tmp_path / "out", **({"recipe": Recipe(epochs=1, batch_size=8)} | options))
    assert not list(tmp_path.iterdir())


def test_a_gate_moves_no_further_than_is_said() -> None:
    recipe, steps = Recipe(lr=0.01), 40
    gate = nn.Parameter(torch.zeros(()))
    optimizer = recipe.make_optimizer([{"params": [gate], "weight_decay": 0.0}])
    schedule = recipe.make_schedule(optimizer, steps)
    for _ in range(steps):
        gate.grad = torch.tensor(-3.0)
        optimizer.step()
        schedule.step()
    # AdamW moves a parameter with a constant gradient g by lr g / (|g| + 1e-8); float32 rounds 40 sums
    assert float(gate.detach()) == pytest.approx(recipe.travel(steps), rel=41 * 2.0**-24 + 1e-8, abs=0)
