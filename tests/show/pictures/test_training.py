"""Pictures of an experiment: every form, what each is of, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conv2attn.commands.show import RUN_PICTURES, Runs, View, draw_runs, runs_at, show
from conv2attn.learn.experiment.folder import read_history
from conv2attn.show.pictures.training import draw_head_maps
from tests.learn.experiments import run_tiny

HEADS = ("contours", "training", "maps")
_STARTS = {"svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiments") / "run"
    run_tiny(folder, "resnet10", "quadratic", "learned")
    return folder


@pytest.mark.parametrize(("picture", "form"), [*((picture, "svg") for picture in RUN_PICTURES), ("maps", "pdf")])
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
