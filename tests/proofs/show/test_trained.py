"""Pictures of an experiment: every form, what each is of, what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conv2attn.convert.errors import CheckpointError, ConversionError, OptionError, SelectionError
from conv2attn.learn.experiment.folder import Result, read_results
from conv2attn.learn.experiment.history import read_history
from conv2attn.learn.experiment.recipes import ALL
from conv2attn.proofs.show.pictures.style import Sheet
from conv2attn.proofs.show.show import View, show
from conv2attn.proofs.show.trained.heads import draw_head_maps
from conv2attn.proofs.show.trained.show import PICTURES, Runs, draw_runs, runs_at
from conv2attn.proofs.show.trained.table import HEADER, TYPES, distance_rows, marks, table_rows
from tests.learn.experiments import run_tiny

Damage = Callable[[Any], Any]  # changes what a file holds, or returns something else
HEADS = ("contours", "training", "maps")
_STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiments") / "run"
    run_tiny(folder, "resnet10", "quadratic", "learned")
    return folder


@pytest.mark.parametrize("form", _STARTS)
@pytest.mark.parametrize("picture", PICTURES)
def test_every_picture_is_drawn_in_every_form(picture: str, form: str, experiment: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.{form}" for number in (0, 1)]
    for file in files:
        show(experiment, file, View(picture=picture))
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(_STARTS[form])
    assert first == second


def words(experiment: Path, picture: str, layer: int | None = None) -> str:
    """All texts of a picture."""
    from matplotlib.text import Text

    runs = runs_at(experiment)
    assert runs is not None
    return "\n".join(text.get_text() for text in draw_runs(runs, picture, layer=layer).figure.findobj(Text))


def test_a_picture_of_heads_is_of_the_encoding_whose_folder_it_is_made_of(experiment: Path) -> None:
    for picture in HEADS:
        assert "quadratic" in words(experiment, picture)  # the first that has heads
        assert "learned" in words(experiment / "learned", picture)


def test_training_shows_one_layer_at_every_epoch(experiment: Path) -> None:
    found = words(experiment, "training", layer=1)
    assert "layer 1" in found
    assert [f"epoch {epoch}" in found for epoch in range(4)] == [True, True, True, False]
    assert "layer 2" in words(experiment, "training")  # of two; of more it is the third


def test_curves_and_table_are_of_every_network(experiment: Path) -> None:
    for picture in ("curves", "table"):
        assert all(name in words(experiment, picture) for name in ("resnet10", "quadratic", "learned"))
        assert "resnet10" not in words(experiment / "learned", picture)


def test_the_table_has_the_results_of_the_run(experiment: Path) -> None:
    found = words(experiment, "table")
    for result in read_results(experiment):
        assert f"{result.parameters:,}" in found
        assert f"{100 * result.test:.1f} %" in found


def test_a_row_says_what_the_encoding_is() -> None:
    runs = [
        Result("learned+content", seed, 1234, 1, 0.5, test, ((1.0,), (seed,))) for seed, test in enumerate((0.5, 1.0))
    ]
    row = dict(zip(HEADER, table_rows(runs)[0], strict=True))
    assert row == {
        "network": "learned+content",
        "positions": "relative, tables",
        "content": "yes",
        "parameters": "1,234",
        "seeds": "2",
        "test accuracy": "75.0 \u00b1 35.4 %",
        "worst seed": "50.0 %",
    }
    name = "learned+content"
    assert distance_rows(runs) == [(name, "before", "1.00 \u00b1 0.00"), (name, "after", "0.50 \u00b1 0.71")]


def test_types_are_those_of_the_draft_s_table_1() -> None:
    found = {name: {kind for kind, mark in zip(TYPES, marks(name), strict=True) if mark} for name in ALL}
    assert found == {
        "quadratic": {"quadratic", "relative"},
        "gaussian": {"quadratic", "relative"},
        "learned": {"learned", "relative"},
        "learned+content": {"learned", "relative", "content"},
        "sinusoidal": {"sinusoids", "relative"},
        "absolute": {"sinusoids"},
        "resnet10": set(),
        "resnet18": set(),
    }


def test_maps_show_what_was_recorded_after_the_best_epoch(experiment: Path) -> None:
    from matplotlib.image import AxesImage

    history = read_history(experiment, "learned")
    images = draw_head_maps(history).figure.findobj(AxesImage)
    shown = sorted(torch.as_tensor(image.get_array()).flatten().tolist() for image in images)
    recorded = torch.cat([layer.maps for layer in history.layers[history.best]])
    assert shown == sorted(plane.flatten().tolist() for plane in recorded)


def test_what_is_no_experiment_is_none(experiment: Path) -> None:
    assert runs_at(experiment) == Runs(experiment, None)
    assert runs_at(experiment / "learned") == Runs(experiment, "learned")
    assert runs_at(experiment / "learned" / "seed-0") is None
    assert runs_at(experiment.parent) is None


def test_what_an_experiment_has_not_is_refused(experiment: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.png"
    with pytest.raises(OptionError, match="one of contours, training, curves, maps, table; got kernel"):
        show(experiment, out, View(picture="kernel"))
    with pytest.raises(OptionError, match="its own images"):
        show(experiment, out, View(alpha=2.0))
    with pytest.raises(SelectionError, match="numbered 1 to 2; got 3"):
        show(experiment, out, View(picture="training", layer="3"))
    with pytest.raises(SelectionError, match="numbered, from 1; got 'first'"):
        show(experiment, out, View(picture="training", layer="first"))
    with pytest.raises(OptionError, match="chosen for the picture training"):
        show(experiment, out, View(picture="maps", layer="1"))
    with pytest.raises(SelectionError, match="resnet10 has no heads"):
        show(experiment / "resnet10", out, View(picture="maps"))
    assert not out.exists()


INFINITE = "infinite"  # stands for a number that no float holds


@pytest.fixture
def damaged(experiment: Path, tmp_path: Path) -> Callable[[str, Damage], Path]:
    """A copy of the experiment with a file that says something else."""

    def damaged(name: str, damage: Damage) -> Path:
        copy = tmp_path / "run"
        shutil.copytree(experiment, copy, dirs_exist_ok=True)
        found = json.loads((copy / name).read_text())
        changed = damage(found)
        text = json.dumps(found if changed is None else changed).replace(f'"{INFINITE}"', "1e999")
        (copy / name).write_text(text)
        return copy

    return damaged


def within(*place: str | int, value: object) -> Damage:
    """Puts a value there."""

    def damage(found: Any) -> None:
        for key in place[:-1]:
            found = found[key]
        found[place[-1]] = value

    return damage


DAMAGES: list[tuple[str, Damage, str]] = [
    ("experiment.json", within("encodings", value=["../outside"]), "contours"),
    ("experiment.json", lambda _: [], "table"),
    ("quadratic/seed-0/records.json", within(1, "validation", "accuracy", value=INFINITE), "curves"),
    ("quadratic/seed-0/records.json", within(0, "layers", 0, "maps", value="x"), "maps"),
    ("results.json", within(0, "test", value=None), "table"),
]


@pytest.mark.parametrize(("name", "damage", "picture"), DAMAGES)
def test_a_damaged_experiment_is_refused_by_its_pictures(
    name: str, damage: Damage, picture: str, damaged: Callable[[str, Damage], Path], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=re.escape((name.partition("/")[2] and "seed-0") or name)):
        show(damaged(name, damage), tmp_path / "out.svg", View(picture=picture))
    assert not (tmp_path / "out.svg").exists()


def test_curves_of_runs_that_are_not_over_are_refused(damaged: Callable[[str, Damage], Path], tmp_path: Path) -> None:
    folder = damaged("experiment.json", within("seeds", value=2))
    shutil.copytree(folder / "quadratic" / "seed-0", folder / "quadratic" / "seed-1")
    shutil.copytree(folder / "resnet10" / "seed-0", folder / "resnet10" / "seed-1")
    records = folder / "quadratic" / "seed-1" / "records.json"
    records.write_text(json.dumps(json.loads(records.read_text())[:-1]))
    with pytest.raises(CheckpointError, match="is not over: runs of quadratic differ in epochs"):
        show(folder, tmp_path / "out.svg", View(picture="curves"))


def test_a_sheet_is_drawn_up_to_a_limit_of_its_pixels_and_of_its_sides() -> None:
    Sheet(40, 40, title="", caption="")
    for width, body in ((42, 42), (328, 1), (1, 328)):
        with pytest.raises(ConversionError, match="are drawn"):
            Sheet(width, body, title="", caption="")
