"""A run with batches and a loss of one's own: dense outputs, autocast, two processes, resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from conv2attn.convert.errors import ConversionError
from conv2attn.learn.data.images import Loaders
from conv2attn.learn.melting import melt
from conv2attn.learn.training.fit import Trained, fit
from conv2attn.learn.training.recipe import Machine, Recipe, Session, evaluate
from tests.learn.small import RESUMED
from tests.small_models import assert_same_state

RECIPE = Recipe(epochs=3, lr=0.02, batch_statistics=False)


class Named(nn.Module):
    """A dense output in a dictionary, as segmentation networks of torchvision give it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Sharper or smoother images."""
        return {"out": self.out(self.conv(x).relu())}


def named_loss(output: dict[str, Tensor], target: Tensor) -> Tensor:
    """The mean square of what is off."""
    return F.mse_loss(output["out"], target)


def loaders() -> Loaders:
    """Noise, and what is to be made of it: a blurred image."""
    images = torch.randn(40, 1, 6, 7, generator=torch.Generator().manual_seed(3))
    target = F.avg_pool2d(images, 3, 1, 1)
    loader: DataLoader[Any] = DataLoader(TensorDataset(images, target), batch_size=8, shuffle=True)
    return Loaders("dense", loader, [(images[:10], target[:10])])


def run(folder: Path, recipe: Recipe = RECIPE, **options: Any) -> Trained:
    """Melts a network and trains it."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = melt(Named(), last=1)
    return fit(model, loaders(), recipe, folder, loss=named_loss, **options)


def test_any_loss_falls_and_its_lowest_validation_value_chooses_the_epoch(tmp_path: Path) -> None:
    found = run(tmp_path / "run")
    losses = [record["validation"]["loss"] for record in found.records]
    assert all(set(record["validation"]) == {"loss"} for record in found.records)
    assert losses[found.best_epoch] == min(losses[1:]) < losses[0]
    assert evaluate(found.network, loaders().validation, named_loss) == {"loss": losses[found.best_epoch]}


def test_a_run_with_a_shuffled_loader_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")

    def dies(model: nn.Module) -> dict[str, Any]:
        calls.append(model)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {}

    calls: list[nn.Module] = []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", recorder=dies)
    resumed = run(tmp_path / "killed", session=RESUMED)
    assert resumed.records == whole.records
    assert_same_state(resumed.network, whole.network)


def test_autocast_trains(tmp_path: Path) -> None:
    half = run(tmp_path / "half", session=Session(Machine(precision="bf16-mixed")))
    assert half.records[-1]["validation"]["loss"] < half.records[0]["validation"]["loss"]


@pytest.mark.slow
def test_two_processes_share_a_loader(tmp_path: Path) -> None:
    pair = run(tmp_path / "pair", replace(RECIPE, epochs=1), session=Session(Machine("cpu", 2)))
    assert pair.records[-1]["validation"]["loss"] < pair.records[0]["validation"]["loss"]


@pytest.mark.parametrize(
    ("loss", "said"),
    [(F.l1_loss, "do not take the batches of dense"), (lambda out, _: out["out"], "one finite number")],
)
def test_a_loss_that_does_not_fit_is_refused_before_anything_is_written(loss: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=said):
        fit(Named(), loaders(), RECIPE, tmp_path / "run", loss=loss)
    assert not list(tmp_path.iterdir())
