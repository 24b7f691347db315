"""An experiment: what it records, what chooses, what it refuses, and that it goes on where it stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conv2attn.convert.errors import CheckpointError, ConversionError, OptionError, RunExistsError, SelectionError
from conv2attn.convert.plain import from_plain, read_json
from conv2attn.learn.data.images import Split
from conv2attn.learn.experiment.folder import RESULTS, Experiment, Result, read_experiment, read_history, run_folder
from conv2attn.learn.experiment.recipes import PAPERS, SMALL, build, parameter_groups, setting_of
from conv2attn.learn.experiment.run import run_experiment
from conv2attn.learn.kinds import ALL, encodings_of
from conv2attn.learn.networks import AttentionNetwork
from conv2attn.learn.training.fit import trained_in
from conv2attn.learn.training.recipe import Recipe, Session
from tests.learn.experiments import TINY, run_tiny, stripes, tiny_experiment
from tests.learn.small import RESUMED


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("experiments") / "run"
    run_tiny(folder, "quadratic", "learned+content", "resnet10", seeds=2)
    return folder


def test_the_network_that_is_tested_is_the_best_on_the_validation_images(finished: Path) -> None:
    rows: Any = read_json(finished / RESULTS)
    data, results = stripes(), [from_plain(Result, row) for row in rows]
    runs = [(name, seed) for name in ("quadratic", "learned+content", "resnet10") for seed in (0, 1)]
    assert [(result.encoding, result.seed) for result in results] == runs
    for result in results:
        network = build(result.encoding, TINY, data)
        trained = trained_in(run_folder(finished, result.encoding, result.seed), network)
        accuracies = [record["validation"]["accuracy"] for record in trained.records]
        assert result.best_epoch == 1 + accuracies[1:].index(max(accuracies[1:]))
        assert result.validation == max(accuracies[1:])
        with torch.no_grad():
            right = trained.network(data.test.images).argmax(1) == data.test.labels
        assert result.test == right.double().mean().item()


def test_what_is_recorded_is_where_the_heads_look(finished: Path) -> None:
    history = read_history(finished, "quadratic")
    assert len(history.layers) == len(history.accuracies) == TINY.recipe.epochs + 1
    network = build("quadratic", TINY, stripes())
    assert isinstance(network, AttentionNetwork)
    trained_in(run_folder(finished, "quadratic", 0), network)
    with torch.no_grad():
        for layer, recorded in zip(network.layers, history.layers[history.best], strict=True):
            wanted = layer.probabilities(network.grid)[:, network.grid.middle].view(3, 4, 3)
            assert ((recorded.maps - wanted).abs() <= 0.5 / 255 + 2**-20).all()
            centers, covariances = layer.positions.shape(network.grid)
            assert ((recorded.centers - centers).abs() <= 0.5e-4 + 2**-20).all()
            assert ((recorded.covariances[:, 1] - covariances[:, 0, 1]).abs() <= 0.5e-4 + 2**-20).all()


def interrupted(_: str) -> None:
    """Said when the first run is over."""
    raise KeyboardInterrupt


def test_a_resumed_experiment_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    whole, broken, experiment = tmp_path / "whole", tmp_path / "broken", tiny_experiment("quadratic", "gaussian")
    run_experiment(experiment, stripes(), whole)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, stripes(), broken, session=Session(say=interrupted))
    run_experiment(experiment, stripes(), broken, session=RESUMED)
    for file in (RESULTS, "gaussian/seed-0/records.json"):
        assert (broken / file).read_text() == (whole / file).read_text()


UNCUT = replace(TINY, sizes=replace(TINY.sizes, pixels=5))


@pytest.mark.parametrize(
    ("experiment", "said"),
    [
        (tiny_experiment(seeds=20_000_000), "seed must be an integer from 0 to 16777215; got 19999999"),
        (tiny_experiment("resnet10", "quadratic", setting=UNCUT), "cannot be cut into 5x5 pixels"),
    ],
)
def test_what_a_run_would_be_refused_is_refused_before_anything_is_written(
    experiment: Experiment, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match=said):
        run_experiment(experiment, stripes(), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_heads_with_content_are_recorded_with_the_images_that_the_network_is_trained_on(tmp_path: Path) -> None:
    """Pictures are kept as bytes, of which the network sees numbers from -1 to 1."""
    data = stripes()
    train, validation, test = (Split(part.images.add(1).mul(127.5).to(torch.uint8), part.labels) for part in data.parts)
    kept = replace(data, train=train, validation=validation, test=test)
    found = []
    for name, images in (("numbers", data), ("bytes", kept)):
        run_experiment(tiny_experiment("learned+content"), images, tmp_path / name)
        found.append(read_history(tmp_path / name, "learned+content").layers[0][0].maps)
    assert torch.equal(*found)


def test_a_folder_that_holds_an_experiment_is_kept(finished: Path) -> None:
    with pytest.raises(RunExistsError, match="holds one experiment"):
        run_tiny(finished, "quadratic")
    with pytest.raises(ConversionError, match="holds another experiment"):
        run_experiment(tiny_experiment("quadratic"), stripes(), finished, session=RESUMED)


@pytest.mark.parametrize("text", ["{", '{"version": 2, "setting": {"sizes": {"a": 1}}}'])
def test_a_damaged_description_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text(text)
    with pytest.raises(CheckpointError):
        read_experiment(tmp_path)


def test_positions_biases_and_scales_do_not_decay() -> None:
    network = build("gaussian", TINY, stripes())
    groups = parameter_groups(network, replace(TINY, faster=2.0))
    assert len(parameter_groups(build("resnet10", TINY, stripes()), TINY)) == 2
    assert [group["weight_decay"] for group in groups] == [TINY.recipe.weight_decay, 0.0, 0.0]
    assert [group.get("lr") for group in groups] == [None, None, 2 * TINY.recipe.lr]
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    assert sum(len(group["params"]) for group in groups) == len(names)
    ends = [{names[id(parameter)].rpartition(".")[2] for parameter in group["params"]} for group in groups]
    assert ends == [{"weight"}, {"weight", "bias"}, {"centers", "log_diagonal", "below"}]


def test_an_experiment_grows_and_keeps_its_results(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_tiny(folder, "quadratic")
    before: Any = read_json(folder / RESULTS)
    run_experiment(tiny_experiment("resnet10", "quadratic"), stripes(), folder, session=RESUMED)
    after: Any = read_json(folder / RESULTS)
    assert after[1:] == before


def test_the_paper_s_recipe_is_the_paper_s() -> None:
    sizes = PAPERS.sizes
    assert PAPERS.recipe == Recipe(300, 100, 0.1, 1e-4, "sgd", warmup=0.05)
    assert (sizes.depth, sizes.num_heads, sizes.hidden, PAPERS.width) == (6, 9, 400, 64)


def test_a_setting_takes_what_is_asked_for() -> None:
    setting = setting_of("small", depth=2, heads=16, padding=1, epochs=5)
    assert setting == replace(
        SMALL,
        sizes=replace(SMALL.sizes, depth=2, num_heads=16, padding=1),
        recipe=replace(SMALL.recipe, epochs=5),
    )
    assert setting_of("paper") == PAPERS
    for wrong in ({"depth": 0}, {"heads": 4097}, {"padding": -1}):
        with pytest.raises(OptionError, match=rf"{next(iter(wrong))} must be [01] to 4096"):
            setting_of("small", **wrong)
    with pytest.raises(OptionError, match="no recipe 'large'; there are small, medium, paper"):
        setting_of("large")


def test_encodings_are_named_one_by_one_or_all_together() -> None:
    assert encodings_of("all") == ALL
    assert encodings_of("resnet10, gaussian+content,resnet10") == ("resnet10", "gaussian+content")
    with pytest.raises(SelectionError, match="no encoding 'cubic'"):
        encodings_of("quadratic,cubic")
