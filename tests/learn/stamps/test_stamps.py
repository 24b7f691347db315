"""Pages have what the task needs, and the experiment compares networks that began alike, on the same pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conv2attn.convert.errors import RunExistsError
from conv2attn.convert.files.open import open_network
from conv2attn.learn.data.digits import digits
from conv2attn.learn.melting.melt import attention_layers, melt
from conv2attn.learn.stamps.arms import ARMS, CONTROLS
from conv2attn.learn.stamps.denoiser import LOOKS, Denoiser, with_context, with_larger_kernel
from conv2attn.learn.stamps.experiment import Stamps, gains, psnr, run_stamps
from conv2attn.learn.stamps.pages import NOISE, PITCH, page_loaders, pages, unseen_pages
from conv2attn.learn.training.recipe import Recipe
from conv2attn.proofs.show.stamps import PICTURES, Stamped, show_stamps
from tests.command import exit_code

SMALL: dict[str, Any] = {
    "start": Recipe(epochs=1, lr=3e-3, clip=1.0),
    "onward": Recipe(epochs=1, lr=3e-3, clip=1.0),
    "steps": 2,
    "test": 8,
}


@pytest.mark.parametrize("kinds", [1, 2, 4, 12])
def test_each_stamp_is_as_often_on_a_page_as_the_others(kinds: int) -> None:
    _, clean = pages(digits().train, 3, torch.Generator().manual_seed(0), kinds=kinds)
    cells = clean.unfold(2, PITCH, PITCH).unfold(3, PITCH, PITCH).flatten(2, 3).flatten(3)[:, 0]
    for page in cells:
        _, often = page.unique(dim=0, return_counts=True)
        assert often.tolist() == [12 // kinds] * kinds


def test_pages_come_from_their_seed_and_noise_is_as_strong_as_it_says() -> None:
    noisy, clean = unseen_pages(50)
    assert torch.equal(noisy, unseen_pages(50)[0])
    # the mean of n squares of normal numbers has variance 2 / n: six deviations
    squares = (noisy - clean).square()
    assert abs(float(squares.mean()) - NOISE**2) <= 6 * NOISE**2 * (2 / squares.numel()) ** 0.5
    one, other = (page_loaders(seed, steps=3) for seed in (0, 1))
    assert not torch.equal(next(iter(one.train))[0], next(iter(other.train))[0])
    first, *_, last = [batch for batch, _ in one.train]
    assert not torch.equal(first, last)
    assert torch.equal(first, next(iter(one.train))[0])


def test_every_way_to_go_on_begins_as_the_cnn_and_can_learn() -> None:
    torch.manual_seed(0)
    cnn, (noisy, clean) = Denoiser().eval(), unseen_pages(2)
    wanted = cnn(noisy)
    assert torch.equal(with_context(_copy(cnn)).eval()(noisy), wanted)
    torch.testing.assert_close(with_larger_kernel(_copy(cnn)).eval()(noisy), wanted)
    melted = melt(cnn, content=2).eval()
    assert [name for name, _ in attention_layers(melted)] == [LOOKS]
    assert torch.equal(melted(noisy), wanted)
    (melted(noisy) - clean).square().mean().backward()
    gate = melted.get_parameter(f"{LOOKS}.content.gate")
    assert gate.grad is not None
    assert bool((gate.grad != 0).all())


def test_psnr_is_that_of_the_mean_square() -> None:
    noisy, clean = unseen_pages(4)

    class Off(Denoiser):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return clean[: len(x)] + 0.2

    assert psnr(Off(), (noisy, clean)) == pytest.approx(20.0, rel=1e-5)  # 10 log10(4 / 0.04); float32's rounding


def test_the_experiment_compares_what_began_alike_and_goes_on_where_it_was(tmp_path: Path) -> None:
    told: list[str] = []
    options = {"seeds": 2, "resume": True, "progress": False, "say": told.append, **SMALL}
    found = show_stamps(tmp_path / "out", full=False, **options)
    assert list(found.stamps.results) == [0, 1]
    assert all(set(each) == {"start", *ARMS} for each in found.stamps.results.values())
    assert gains(found.stamps, "cnn") == [0.0, 0.0]
    kept = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert kept["gain"]["content"] == gains(found.stamps, "content")
    for name in PICTURES:
        assert (tmp_path / "out" / name).stat().st_size > 1000
    content = open_network(tmp_path / "out").as_saved().eval()
    noisy, _ = unseen_pages(2)
    assert torch.equal(content(noisy), found.stamps.networks["content"](noisy))
    again = show_stamps(tmp_path / "out", full=False, **options)
    assert again.stamps.results == found.stamps.results
    with pytest.raises(RunExistsError):
        run_stamps(tmp_path / "out", seeds=1, **SMALL)
    text = found.shown()[0]
    assert "melted, content" in str(text)
    assert isinstance(found, Stamped)


def test_a_sweep_chooses_a_rate_for_every_control(tmp_path: Path) -> None:
    some = {name: CONTROLS[name] for name in ("context", "scratch")}
    found: Stamps = run_stamps(tmp_path / "out", arms={**ARMS, **some}, seeds=1, sweep=True, **SMALL)
    runs = {folder.name for folder in (tmp_path / "out" / "rates").iterdir()}
    assert len(runs) == 1 + 4 * 3
    assert set(found.networks) == {"start", "cnn", "content", "context", "scratch"}


def test_an_example_that_does_not_exist_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("melt", "--example", "twins", "--out", tmp_path / "out") == 2
    assert "stamps" in capsys.readouterr().err


def _copy(cnn: Denoiser) -> Denoiser:
    copied = Denoiser()
    copied.load_state_dict(cnn.state_dict())
    return copied
