"""What others keep in a folder stays: a run, a comparison and an experiment begin in one that is new or empty."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from conv2attn.convert.errors import ConversionError, OutputError
from conv2attn.learn.comparison import run_comparison
from conv2attn.learn.experiment.folder import Experiment, begin
from conv2attn.learn.experiment.recipes import SMALL
from conv2attn.learn.grafting import of_images
from conv2attn.learn.training.fit import fit
from conv2attn.learn.training.folders import begin_or_resume
from conv2attn.learn.training.recipe import Recipe
from tests.learn.small import RESUMED, data, network

RECIPE = Recipe(epochs=1, batch_size=20)
RUNS: dict[str, Callable[[Path], object]] = {
    "run": lambda folder: fit(network(), data(), RECIPE, folder, session=RESUMED),
    "comparison": lambda folder: run_comparison(of_images(data(), cnn=network()), folder, session=RESUMED),
    "experiment": lambda folder: begin(folder, Experiment("digits", (1, 8, 8, 10), ("a",), 1, SMALL), resume=True),
}


@pytest.mark.parametrize(("kind", "name"), [("run", "best.ckpt"), ("comparison", "seed-0"), ("experiment", ".hidden")])
def test_a_folder_with_something_else_is_no_folder_to_go_on_in(kind: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("years of work")
    with pytest.raises(OutputError, match="holds something else"):
        RUNS[kind](tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "years of work"}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no/where cannot be made: No such file"):
        RUNS["run"](tmp_path / "no" / "where")


@pytest.mark.parametrize("content", ['{"format": "conv2attn", "content": "network"}', "text"])
def test_a_file_that_is_only_called_like_ours_makes_no_folder_ours(content: str, tmp_path: Path) -> None:
    (tmp_path / "grafting.json").write_text(content)
    with pytest.raises(ConversionError, match=r"grafting\.json"):
        RUNS["comparison"](tmp_path)
    assert os.listdir(tmp_path) == ["grafting.json"]


def test_what_a_killed_run_left_of_the_first_file_is_nothing_else(tmp_path: Path) -> None:
    left = tmp_path / ".run.json.tmp-0123abcd"
    left.mkdir()
    (left / "run.json").write_text("half")
    begin_or_resume(tmp_path / "run.json", {"recipe": 1}, resume=True, what="run")
    assert os.listdir(tmp_path) == ["run.json"]
