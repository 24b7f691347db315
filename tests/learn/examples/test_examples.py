"""Images have what the tasks need, and an example compares networks that began alike, on the same images."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from conv2attn.convert.errors import RunExistsError
from conv2attn.convert.files.open import open_network
from conv2attn.learn.data.images import Loaders
from conv2attn.learn.data.kinds import digits
from conv2attn.learn.examples.batches import Draw, DrawnData
from conv2attn.learn.examples.denoiser import LOOKS, PageDenoiser, PhotographDenoiser, with_context, with_larger_kernel
from conv2attn.learn.examples.examples import PHOTOGRAPHS, STAMPS, psnr, score_pages, score_photographs, ssim
from conv2attn.learn.examples.pages import NOISE, PITCH, pages, training_pages, unseen_pages, validation_pages
from conv2attn.learn.examples.photographs import LEVELS, grid_crops, photographs, training_crops
from conv2attn.learn.melting.comparison import Comparison
from conv2attn.learn.melting.melt import attention_layers, melt
from conv2attn.learn.melting.run import run_comparison
from conv2attn.learn.training.recipe import Recipe, Session
from conv2attn.proofs.show.examples import show_example
from conv2attn.proofs.show.pictures.examples import PICTURES
from tests.command import exit_code

_SHORT = Recipe(epochs=1, lr=3e-3, clip=1.0)
SMALL = [
    replace(
        STAMPS,
        data=DrawnData("stamps", training_pages, lambda: [validation_pages(10)], steps=2, batch=4),
        start=_SHORT,
        onward=_SHORT,
        score=partial(score_pages, count=4),
    ),
    replace(
        PHOTOGRAPHS,
        data=DrawnData(
            "photographs", training_crops, lambda: [grid_crops("brick", "validation", 25, rows=1)], steps=2, batch=2
        ),
        start=_SHORT,
        onward=_SHORT,
        rounds=2,
        score=partial(score_photographs, rows=1),
    ),
]


@pytest.mark.parametrize("kinds", [1, 4])
def test_each_stamp_is_as_often_on_a_page_as_the_others(kinds: int) -> None:
    _, clean = pages(digits().train, 3, torch.Generator().manual_seed(0), kinds=kinds)
    cells = clean.unfold(2, PITCH, PITCH).unfold(3, PITCH, PITCH).flatten(2, 3).flatten(3)[:, 0]
    for page in cells:
        _, often = page.unique(dim=0, return_counts=True)
        assert often.tolist() == [12 // kinds] * kinds


def test_noise_is_as_strong_as_it_says() -> None:
    # the mean of n squares of normal numbers has variance 2 / n: six deviations
    for level, (noisy, clean) in ((NOISE, unseen_pages(50)), (50 / 127.5, grid_crops("moon", "test", 50))):
        squares = (noisy - clean).square()
        assert abs(float(squares.mean()) - level**2) <= 6 * level**2 * (2 / squares.numel()) ** 0.5


def test_batches_come_from_their_seed_and_epoch() -> None:
    one, other = map(DrawnData("pages", training_pages, list, steps=3, batch=2), (0, 1))
    assert not torch.equal(next(iter(one.train))[0], next(iter(other.train))[0])
    first, *_, last = [batch for batch, _ in one.train]
    assert not torch.equal(first, last)
    assert torch.equal(first, next(iter(one.train))[0])


def test_the_parts_of_a_photograph_share_no_pixel_and_crops_come_from_theirs() -> None:
    parts = [photographs(part) for part in ("train", "validation", "test")]
    for name, whole in photographs("train").items():
        widths = [part[name].shape[2] for part in parts]
        assert min(widths) >= 64
        assert len({part[name].shape[1] for part in parts}) == 1
        assert widths[0] == int(0.55 * sum(widths)), (name, whole.shape)
    _, clean = grid_crops("text", "test", LEVELS[0])
    held = photographs("test")["text"][0].unfold(0, 64, 1).unfold(1, 64, 1)
    assert all(bool((held == crop[0]).all(-1).all(-1).any()) for crop in clean[:2])


@pytest.mark.parametrize(("kind", "draw"), [(PageDenoiser, training_pages), (PhotographDenoiser, training_crops)])
def test_every_way_to_go_on_begins_as_the_cnn_and_can_learn(kind: type[PageDenoiser], draw: Draw) -> None:
    torch.manual_seed(0)
    noisy, clean = draw(2, torch.Generator())
    cnn = kind().eval()
    wanted = cnn(noisy)

    def copied() -> torch.nn.Module:
        made = kind()
        made.load_state_dict(cnn.state_dict())
        return made

    assert torch.equal(with_context(copied()).eval()(noisy), wanted)
    torch.testing.assert_close(with_larger_kernel(copied()).eval()(noisy), wanted)
    melted = melt(cnn, content=2, filter_fn=lambda _, name: name == LOOKS).eval()
    assert [name for name, _ in attention_layers(melted)] == [LOOKS]
    assert torch.equal(melted(noisy), wanted)
    (melted(noisy) - clean).square().mean().backward()
    gate = melted.get_parameter(f"{LOOKS}.content.gate")
    assert gate.grad is not None
    assert bool((gate.grad != 0).all())


def test_psnr_is_that_of_the_mean_square_and_ssim_that_of_the_image_itself_is_1() -> None:
    noisy, clean = unseen_pages(4)

    class Off(PageDenoiser):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return clean[: len(x)] + 0.2

    assert psnr(Off(), (noisy, clean)) == pytest.approx(20.0, rel=1e-5)  # 10 log10(4 / 0.04); float32's rounding
    assert ssim(Off(), (noisy, clean + 0.2)) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("example", SMALL, ids=lambda example: example.name)
def test_an_example_compares_what_began_alike_and_goes_on_where_it_was(example: Comparison, tmp_path: Path) -> None:
    told: list[str] = []
    out, session = tmp_path / "out", Session(say=told.append)
    shown = show_example(example, out, full=False, seeds=2, session=session)
    found = run_comparison(example, out, full=False, seeds=2, session=replace(session, resume=True))
    results = found.results
    assert list(results) == [0, 1]
    assert all(set(each) == {"start", *example.arms} for each in results.values())
    measure = next(iter(next(iter(example.tables.values())).values()))
    assert found.gains("cnn", measure) == [0.0, 0.0]
    kept = json.loads((out / "result.json").read_text(encoding="utf-8"))
    assert kept["gain"]["content"][measure] == found.gains("content", measure)
    for name in PICTURES[example.name]:
        assert (out / name).stat().st_size > 1000
    content = open_network(out).as_saved().eval()
    data = example.data(0)
    assert isinstance(data, Loaders)
    noisy, _ = next(iter(data.train))
    assert torch.equal(content(noisy), found.networks["content"](noisy))
    again = show_example(example, out, full=False, seeds=2, session=replace(session, resume=True))
    assert again.data["seeds"] == shown.data["seeds"]
    with pytest.raises(RunExistsError):
        run_comparison(example, out, seeds=1)
    assert "melted, content" in str(next(iter(shown.parts)))


def test_a_sweep_chooses_a_rate_for_every_way_that_has_none_of_another(tmp_path: Path) -> None:
    example = replace(SMALL[0], controls={name: STAMPS.controls[name] for name in ("context", "scratch")})
    found = run_comparison(example, tmp_path / "out", full=True, seeds=1)
    runs = {folder.name for folder in (tmp_path / "out" / "rates").iterdir()}
    assert len(runs) == 1 + 4 * 3
    assert set(found.networks) == {"start", "cnn", "content", "context", "scratch"}


def test_a_cnn_is_trained_until_a_round_gains_nothing(tmp_path: Path) -> None:
    example = replace(SMALL[1], start=replace(_SHORT, lr=1e-12), rounds=9, arms={"cnn": PHOTOGRAPHS.arms["cnn"]})
    found = run_comparison(example, tmp_path / "out", seeds=1).results[0]["start"]
    assert len(found.gained) < 8
    assert found.gained[-1] < 0.02


def test_an_example_that_does_not_exist_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("melt", "--example", "twins", "--out", tmp_path / "out") == 2
    assert "stamps" in capsys.readouterr().err
