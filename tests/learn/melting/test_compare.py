"""What a comparison cannot be made of is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from conv2attn.convert.errors import ConversionError
from conv2attn.learn.melting.compare import Melting, compare
from conv2attn.learn.training.recipe import LARGEST_SEED, Recipe
from tests.learn.small import data


@pytest.mark.parametrize(("seed", "seeds"), [(0, 20_000_000), (0, 10**30), (LARGEST_SEED - 1, 3), (0, 0), (0, -1)])
def test_seeds_that_a_training_cannot_have_are_refused(seed: int, seeds: int, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"seeds? must be an integer from"):
        compare(data(), tmp_path / "out", recipe=Recipe(epochs=1, batch_size=8, seed=seed), seeds=seeds)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [0, 10**30])
def test_content_has_a_dimension_that_a_tensor_could_have(content: int) -> None:
    with pytest.raises(ConversionError, match="content must be an integer from 1 to"):
        Melting(content=content)
