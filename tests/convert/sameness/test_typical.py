"""Each operation's noise is as large as what it rounds: calls of the campaign, and operations that it does not draw."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert.programs.float64 import lift, plainly
from conv2attn.convert.programs.noise import Noise, Precision
from conv2attn.convert.programs.rounding import Products
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.typical import RUNS, Scale
from conv2attn.convert.sameness.verdict import THRESHOLD
from tests.convert.certificate.network import draws
from tests.convert.sameness.planted import rounded_once

# A twentieth is left to processors whose kernels add in float64, and to results that are exact by chance.
LEAST = 0.05


def ratio(call: Callable[..., Tensor], given: tuple[Tensor, ...], dtype: torch.dtype) -> float:
    """What a call rounds in a precision, in units of what the noise says."""
    sums: list[Products | None] = []
    with plainly():
        exact = call(*map(lift, given))
        scale = Scale.like(exact)
        for run in range(RUNS):
            noise = Noise(Precision(), run, sums)
            noise.dtype = dtype
            with noise:
                moved = call(*map(lift, given))
            scale.add(moved, exact)
    return max(scale.ratios(call(*given).double() - exact))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in draws.DRAWS if name not in ("to", "_to_copy")])
def test_a_drawn_call_rounds_as_much_as_its_noise_says(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draws, "KINDS", (draws._normal,))
    monkeypatch.setattr(draws.Chance, "exponent", lambda self: 0)
    if dtype not in draws.precisions(name):
        return
    found = []
    for index in range(5):
        drawn = draws.draw(name, dtype, index)

        def call(*given: Tensor, drawn: draws.DrawnCall = drawn) -> Tensor:
            return drawn.operation.run(given)

        found.append(ratio(call, drawn.inputs, dtype))
    assert LEAST <= median(one for one in found if one) <= THRESHOLD, found  # some results are exact by chance


def resized(**options: object) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, **options)  # type: ignore[arg-type]


OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "bilinear, twice": resized(scale_factor=2, mode="bilinear"),
    "bilinear, by 1.7": resized(scale_factor=1.7, mode="bilinear"),
    "bilinear, corners": resized(size=(37, 51), mode="bilinear", align_corners=True),
    "bilinear, smoothed": resized(size=(9, 7), mode="bilinear", antialias=True),
    "bicubic": resized(scale_factor=1.7, mode="bicubic"),
    "bicubic, smoothed": resized(size=(9, 7), mode="bicubic", antialias=True),
    "trilinear": lambda x: F.interpolate(x[None], scale_factor=1.7, mode="trilinear"),
    "sampled": lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False),
    "average of adaptive windows": lambda x: F.adaptive_avg_pool2d(x.abs(), 5),
    "instance norm of far values": lambda x: F.instance_norm(x + 5),
    "RMS norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "GELU of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "mish": F.mish,
    "selu": F.selu,
    "logsumexp": lambda x: x.logsumexp(-1),
    "variance": lambda x: x.var(-1),
    "product": lambda x: x[..., :6].prod(-1),
    "cumulative sum": lambda x: x.cumsum(-1),
    "distances": lambda x: torch.cdist(x, x.flip(1)),
    "sum with a factor": lambda x: torch.add(x, x.flip(1), alpha=0.3),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_operation_rounds_as_much_as_its_noise_says(name: str) -> None:
    assert LEAST <= ratio(OTHERS[name], (torch.randn(3, 4, 24, 32),), torch.float32) <= THRESHOLD


def test_numbers_between_pixels_far_from_the_corner_err_by_more() -> None:
    x = torch.randn(1, 1, 1, 4096, generator=torch.Generator().manual_seed(0))
    scales = []
    for part in (x[..., :512], x):
        noise = Noise(Precision(), 0)
        with noise:
            y = F.interpolate(part.double(), size=(1, part.shape[-1] * 3), mode="bilinear")
        scales.append((y - F.interpolate(part.double(), size=(1, part.shape[-1] * 3), mode="bilinear"))[..., -512:])
    near, far = (float(one.square().mean().sqrt()) for one in scales)
    assert 6 < far / near < 10  # 8 times as far


@pytest.mark.parametrize("way", ["by the call", "by infinities"])
def test_what_a_mask_leaves_out_has_no_noise_and_the_rest_has(way: str) -> None:
    x = torch.randn(1, 2, 5, 8, dtype=torch.float64)
    mask = torch.full((5, 5), -math.inf, dtype=torch.float64).triu(1)
    with plainly(), Noise(Precision(), 0):
        if way == "by the call":
            y = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        else:
            y = (x @ x.mT / 8**0.5 + mask).softmax(-1) @ x
    with plainly():
        exact = F.scaled_dot_product_attention(x, x, x, is_causal=True)
    assert bool(y.isfinite().all())
    assert 1e-9 < float((y - exact).square().mean().sqrt()) < 1e-6


def test_an_operation_whose_rounding_is_not_known_is_named() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Softmax(1)).eval()
    assert not any("not known" in note for note in same(network, rounded_once(network), torch.rand(1, 3, 5, 5)).notes)

    class Adding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.logcumsumexp(-1)

    network = nn.Sequential(network, Adding()).eval()
    found = same(network, rounded_once(network), torch.rand(1, 3, 5, 5))
    assert "Typical rounding is not known of logcumsumexp, and taken for one rounding." in found.notes


def test_attention_s_softmax_rounds_as_softmax_does() -> None:
    x = torch.randn(1, 1, 16, 8, generator=torch.Generator().manual_seed(0)) * 8
    with torch.no_grad(), plainly(), Noise(Precision(), 0) as noise:
        F.scaled_dot_product_attention(x.double(), x.double(), x.double())
    assert noise.without_row == set()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_exact_numbers_have_no_noise(dtype: torch.dtype) -> None:
    counts, x = torch.arange(24.0).view(4, 6), torch.randn(4, 6, dtype=torch.float64)
    ways: list[Callable[[Tensor], Tensor]] = [
        lambda c: c.sum(0) - c.cumsum(1)[0].clamp(max=9),
        lambda c: c @ c.T.clamp(max=1),
        lambda c: F.conv2d(c[None, None], torch.ones(1, 1, 2, 2, dtype=c.dtype)),
        lambda c: (c * 0).relu() + 1,
        lambda c: x + c.clamp(max=0),
        lambda c: x * (c >= 0) / 4,
        lambda c: c.mean(1) * 2,
    ]
    for way in ways:
        noise = Noise(Precision(), 0)
        noise.dtype = dtype
        with noise:
            found = way(counts.double())
        assert torch.equal(found, way(counts.double()))


class Statistics(nn.Module):
    """The mean of maps that batch norm has centred by their own statistics: its digits are all rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(8, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(x)
        return found.mean((2, 3))


def test_numbers_of_one_channel_share_the_error_of_its_mean() -> None:
    x = torch.randn(2, 8, 32, 32, dtype=torch.float64) + 1
    with Noise(Precision(), 0):
        moved = F.batch_norm(x, None, None, training=True)
    apart = moved - F.batch_norm(x, None, None, training=True)
    spread = apart.transpose(0, 1).flatten(1)
    assert float(spread.mean(1).square().mean()) > float(spread.var(1).mean()) / 10  # 1 / 2048 of it, if independent


def test_an_honest_network_of_channels_last_statistics_is_rounding() -> None:
    network = Statistics().eval()
    x = torch.randn(2, 8, 16, 16).add(1).to(memory_format=torch.channels_last)
    assert same(network, lambda given: network(given.contiguous()), x).verdict == "rounding"


def test_a_channel_that_no_run_moves_has_the_scale_of_rare_events() -> None:
    truth = torch.zeros(1, 3, 8, 8, dtype=torch.float64)
    scale = Scale.like(truth)
    for _ in range(RUNS):
        moved = torch.randn(1, 3, 8, 8, dtype=torch.float64)
        moved[:, 2] = 0
        scale.add(moved, truth)
    one = truth.clone()
    one[0, 2, 0, 0] = 2.0  # one number, as large as others move
    assert max(scale.ratios(one)) < THRESHOLD
    one[0, 2, :4] = 2.0
    assert max(scale.ratios(one)) > THRESHOLD
