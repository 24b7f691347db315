"""A run with batches and a loss of one's own: regression and dense outputs, autocast, two processes, resumed."""

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
from conv2attn.learn.melting.melt import melt
from conv2attn.learn.training.evaluate import evaluate
from conv2attn.learn.training.fit import Trained, fit
from conv2attn.learn.training.recipe import Machine, Recipe, Session
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


def loaders(kind: str) -> Loaders:
    """Noise, and what is to be made of it: its mean, or a blurred image."""
    images = torch.randn(40, 1, 6, 7, generator=torch.Generator().manual_seed(3))
    target = images.mean((2, 3)) if kind == "regression" else F.avg_pool2d(images, 3, 1, 1)
    loader: DataLoader[Any] = DataLoader(TensorDataset(images, target), batch_size=8, shuffle=True)
    return Loaders(kind, loader, [(images[:10], target[:10])])


def run(kind: str, folder: Path, recipe: Recipe = RECIPE, **options: Any) -> Trained:
    """Melts a network and trains it."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        regression = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)
        )
        model = melt(regression if kind == "regression" else Named(), content=2, last=1)
    loss = F.mse_loss if kind == "regression" else named_loss
    return fit(model, loaders(kind), recipe, folder, loss=loss, **options)


@pytest.mark.parametrize("kind", ["regression", "dense"])
def test_any_loss_falls_and_its_lowest_validation_value_chooses_the_epoch(kind: str, tmp_path: Path) -> None:
    found = run(kind, tmp_path / "run")
    losses = [record["validation"]["loss"] for record in found.records]
    assert all(set(record["validation"]) == {"loss"} for record in found.records)
    assert losses[found.best_epoch] == min(losses[1:]) < losses[0]
    loss = F.mse_loss if kind == "regression" else named_loss
    assert evaluate(found.network, loaders(kind).validation, loss) == {"loss": losses[found.best_epoch]}


def test_a_run_with_a_shuffled_loader_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole = run("dense", tmp_path / "whole")

    def dies(model: nn.Module) -> dict[str, Any]:
        calls.append(model)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {}

    calls: list[nn.Module] = []
    with pytest.raises(KeyboardInterrupt):
        run("dense", tmp_path / "killed", recorder=dies)
    resumed = run("dense", tmp_path / "killed", session=RESUMED)
    assert resumed.records == whole.records
    assert_same_state(resumed.network, whole.network)


def test_autocast_trains_and_two_processes_share_a_loader(tmp_path: Path) -> None:
    half = run("dense", tmp_path / "half", session=Session(Machine(precision="bf16-mixed")))
    assert half.records[-1]["validation"]["loss"] < half.records[0]["validation"]["loss"]
    pair = run("dense", tmp_path / "pair", replace(RECIPE, epochs=1), session=Session(Machine("cpu", 2, "ddp")))
    assert pair.records[-1]["validation"]["loss"] < pair.records[0]["validation"]["loss"]


@pytest.mark.parametrize(
    ("loss", "said"),
    [(F.l1_loss, "do not take the batches of dense"), (lambda out, _: out["out"], "one finite number")],
)
def test_a_loss_that_does_not_fit_is_refused_before_anything_is_written(loss: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=said):
        fit(Named(), loaders("dense"), RECIPE, tmp_path / "run", loss=loss)
    assert not list(tmp_path.iterdir())
