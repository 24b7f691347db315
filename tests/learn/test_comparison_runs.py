"""A comparison trains networks that began alike, on the same data, and chooses rates where no table looks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from conv2attn.convert.errors import ConversionError, RunExistsError
from conv2attn.learn.arms import Arm, Comparison, Outcomes, unchanged
from conv2attn.learn.comparison import ENOUGH, RATE_SEED, TIMES, run_comparison
from conv2attn.learn.data.images import Loaders
from conv2attn.learn.grafting import compare_grafts
from conv2attn.learn.training.folders import read_records, write_json
from conv2attn.learn.training.recipe import LARGEST_SEED, Recipe, Session, evaluate
from tests.learn.small import RESUMED
from tests.small_models import assert_same_state

STILL, MOVING = 1e-12, 0.02
"""Learning rates: one changes no weight that float32 could tell, one learns."""
_RECIPE = Recipe(epochs=2, lr=MOVING)


def drawn(seed: int) -> tuple[Tensor, Tensor]:
    """Noise, and a blurred image of it."""
    images = torch.randn(16, 1, 6, 7, generator=torch.Generator().manual_seed(seed))
    return images, F.avg_pool2d(images, 3, 1, 1)


def loaders(seed: int) -> Loaders:
    """Other images for every seed, and the same ones to choose with."""
    loader: DataLoader[Any] = DataLoader(TensorDataset(*drawn(seed)), batch_size=8)
    return Loaders(f"blurred, seed {seed}", loader, [drawn(-1)])


def score(network: nn.Module, _: int) -> dict[str, float]:
    """Loss on images of their own."""
    return {"loss": evaluate(network, [drawn(-2)], F.mse_loss)["loss"]}


def blurring() -> nn.Module:
    """Two convolutions."""
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))


def wider(cnn: nn.Module) -> nn.Module:
    """Adds a layer that starts as the identity."""
    assert isinstance(cnn, nn.Sequential)
    last = nn.Conv2d(1, 1, 1)
    nn.init.dirac_(last.weight)
    nn.init.zeros_(last.bias)  # type: ignore[arg-type]
    return nn.Sequential(*cnn, last)


COMPARISON = Comparison(
    name="blurring",
    what="to blur",
    data=loaders,
    score=score,
    arms={"cnn": Arm("as the CNN", unchanged, MOVING), "wider": Arm("with one layer more", wider, MOVING)},
    start=_RECIPE,
    onward=_RECIPE,
    new=blurring,
    loss=F.mse_loss,
)


def test_seeds_that_a_training_cannot_have_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    comparison = replace(COMPARISON, onward=replace(_RECIPE, seed=LARGEST_SEED - 1))
    with pytest.raises(ConversionError, match="seed must be"):
        compare_grafts(comparison, tmp_path / "out", seeds=3)
    assert not list(tmp_path.iterdir())


def test_arms_of_a_seed_begin_alike_and_see_the_same_data(tmp_path: Path) -> None:
    comparison = replace(COMPARISON, arms={name: Arm(name, unchanged, MOVING) for name in ("cnn", "again")})
    found = run_comparison(comparison, tmp_path / "out", seeds=2)
    assert found.gains("again", "loss") == [0.0, 0.0]
    assert_same_state(found.networks["cnn"], found.networks["again"])
    starts = [found.results[seed]["start"].scores for seed in (0, 1)]
    assert starts[0] != starts[1]
    assert set(found.seconds) == {"cnn", "again"}


def test_a_comparison_goes_on_where_it_was_and_is_not_overwritten(tmp_path: Path) -> None:
    found = run_comparison(COMPARISON, tmp_path / "out", seeds=1)
    again = run_comparison(COMPARISON, tmp_path / "out", seeds=2, session=RESUMED)
    assert again.results[0] == found.results[0]
    assert again.seconds == found.seconds
    assert set(again.results) == {0, 1}
    assert Outcomes.of_json(json.loads(json.dumps(again.to_json()))) == replace(again, networks={})
    with pytest.raises(RunExistsError):
        run_comparison(COMPARISON, tmp_path / "out", seeds=1)


def test_each_arm_takes_its_best_rate_on_validation_data_or_that_of_another(tmp_path: Path) -> None:
    other = {"borrowed": Arm("at the CNN's rate", wider, STILL, rate_of="cnn")}
    comparison = replace(COMPARISON, rates=(STILL, MOVING), arms={**COMPARISON.arms, **other})
    found = run_comparison(comparison, tmp_path / "out", seeds=1)
    tried = {folder.name for folder in (tmp_path / "out" / "rates").iterdir()}
    assert tried == {"start", *(f"{name}-{lr:g}" for name in ("cnn", "wider") for lr in (STILL, MOVING))}
    assert {name: found.results[0][name].lr for name in ("cnn", "wider", "borrowed")} == dict.fromkeys(
        ("cnn", "wider", "borrowed"), MOVING
    )
    assert RATE_SEED not in found.results


def test_a_rate_that_diverges_is_the_worst(tmp_path: Path) -> None:
    comparison = replace(COMPARISON, rates=(MOVING, 1e30), onward=replace(_RECIPE, optimizer="sgd", epochs=3))
    found = run_comparison(comparison, tmp_path / "out", seeds=1)
    assert {found.results[0][name].lr for name in comparison.arms} == {MOVING}


def test_an_arm_can_take_as_much_time_as_another(tmp_path: Path) -> None:
    slow = {**COMPARISON.arms, "time": Arm("as the CNN, longer", unchanged, MOVING, as_long_as="wider")}
    comparison, out = replace(COMPARISON, arms=slow), tmp_path / "out"
    assert set(run_comparison(comparison, out, seeds=0).seconds) == set(slow)
    write_json(out / TIMES, {"cnn": 1.0, "wider": 2.5, "time": 1.0})
    results = run_comparison(comparison, out, seeds=1, session=RESUMED).results[0]
    epochs = {name: read_records(out / "seed-0" / name)[-1]["epoch"] for name in slow}
    assert epochs == {"cnn": 2, "wider": 2, "time": 5}
    assert {name: (found.epochs, found.steps) for name, found in results.items() if name != "start"} == {
        "cnn": (2, 4),
        "wider": (2, 4),
        "time": (5, 10),
    }


def test_a_run_still_improves_if_its_last_epoch_is_its_best_and_better_than_before_training(tmp_path: Path) -> None:
    rates = {"cnn": MOVING, "still": STILL, "worse": 30.0}
    arms = {name: Arm(name, unchanged, lr) for name, lr in rates.items()}
    onward = replace(_RECIPE, epochs=1, optimizer="sgd", clip=1.0)
    found = run_comparison(replace(COMPARISON, arms=arms, onward=onward), tmp_path / "out", seeds=1).results[0]
    assert {name: found[name].is_improving for name in arms} == {"cnn": True, "still": False, "worse": False}
    assert all(found[name].best_epoch == found[name].epochs == 1 for name in arms)


@pytest.mark.slow
def test_runs_in_several_processes_are_those_of_one(tmp_path: Path) -> None:
    comparison = replace(COMPARISON, rates=(MOVING / 2, MOVING))
    several = run_comparison(comparison, tmp_path / "several", seeds=2, session=Session(jobs=2))
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // 2))  # a process's share: sums are in the same order
    try:
        alone = run_comparison(comparison, tmp_path / "alone", seeds=2)
    finally:
        torch.set_num_threads(before)
    assert several.results == alone.results
    assert_same_state(several.networks["wider"], alone.networks["wider"])


def test_a_cnn_is_trained_until_a_round_gains_nothing(tmp_path: Path) -> None:
    comparison = replace(COMPARISON, start=replace(_RECIPE, lr=STILL), rounds=9)
    gained = run_comparison(comparison, tmp_path / "out", seeds=1).results[0]["start"].gained
    assert len(gained) == 1
    assert gained[0] < ENOUGH


def test_all_seeds_can_begin_with_one_cnn(tmp_path: Path) -> None:
    found = run_comparison(replace(COMPARISON, one_start=True), tmp_path / "out", seeds=2)
    first, second = (found.results[seed] for seed in (0, 1))
    assert first["start"] == second["start"]
    assert first["cnn"].scores != second["cnn"].scores
