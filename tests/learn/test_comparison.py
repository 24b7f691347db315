"""What a comparison cannot be made of is refused before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conv2attn.convert.errors import ConversionError
from conv2attn.learn.comparison import compare
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
        ({"melting": {"last": 9}}, "last must be at most 4"),
    ],
)
def test_what_a_run_of_a_comparison_would_be_refused_is_refused_before_the_first(
    options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match=said):
        compare(data(), tmp_path / "out", **({"recipe": Recipe(epochs=1, batch_size=8)} | options))
    assert not list(tmp_path.iterdir())
