"""``benchmarks/planted.py``: each fault changes what its operation computes, and ``same`` names the operation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import ExportedProgram

from benchmarks import planted
from benchmarks.calling import Call
from conv2attn.convert.sameness.same import Reference, same


def written_out(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-5)


def attention(x: Tensor) -> Tensor:
    pixels = x.flatten(2).mT
    return F.scaled_dot_product_attention(pixels, 2 * pixels.flip(-1), pixels).mT.reshape(x.shape)


def branches(x: Tensor) -> Tensor:
    one, other = x.chunk(2, 1)
    return torch.cat([one.sigmoid() * other, other - one.square()], 1)


def interpolated(mode: str) -> Callable[[Tensor], Tensor]:
    corners = None if mode == "nearest" else False
    return lambda x: F.interpolate(x, scale_factor=1.7, mode=mode, align_corners=corners)


BODY: dict[str, nn.Module | Callable[[Tensor], Tensor]] = {
    "colours": nn.Conv2d(3, 8, 3, padding=1),
    "batch": nn.BatchNorm2d(8),
    "gelu": nn.GELU(),
    "grouped": nn.Conv2d(8, 8, 3, padding=1, groups=2),
    "groups": nn.GroupNorm(2, 8),
    "silu": nn.SiLU(),
    "layer": nn.LayerNorm(12),
    "bilinear": interpolated("bilinear"),
    "rms": nn.RMSNorm(20, eps=1e-6),
    "leaky": nn.LeakyReLU(0.1),
    "bicubic": interpolated("bicubic"),
    "eight times": lambda x: 8 * x,
    "six": nn.ReLU6(),
    "nearest": interpolated("nearest"),
    "average": nn.AvgPool2d(3, 2, 1),
    "written": written_out,
    "attention": attention,
    "softmax": lambda x: x + 4 * x.softmax(-1),
    "branches": branches,
    "largest": nn.MaxPool2d(2),
    "pooled": nn.AdaptiveAvgPool2d(4),
    "flat": nn.Flatten(),
    "head": nn.Linear(128, 6),
}


@cache
def network() -> tuple[nn.Sequential, Tensor]:
    """A network that has every operation, behind one another, and its input."""
    torch.manual_seed(3)
    made = nn.Sequential()
    for name, part in BODY.items():
        made.add_module(name, part if isinstance(part, nn.Module) else Call(part))
    for statistic in made.get_submodule("batch").buffers():
        if statistic.is_floating_point():
            statistic.uniform_(0.5, 2)
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made.eval().requires_grad_(False), torch.randn(2, 3, 10, 12)


@cache
def exported() -> ExportedProgram:
    made, x = network()
    return torch.export.export(made, (x,), strict=False)


def test_every_kind_fits_in_a_network_that_has_its_operation_and_changes_its_outputs() -> None:
    x, right = network()[1], planted.computed(exported(), network()[1])
    for kind, names in planted.fitting(exported()).items():
        place = next(planted.places(exported(), kind, names, "seed"))
        wrong = planted.computed(planted.planted(exported(), kind, place, planted.FAULTS[kind].natural or 0.0), x)
        assert not torch.equal(wrong[0], right[0]), kind
    assert set(planted.fitting(exported())) == set(planted.FAULTS)
    assert torch.equal(planted.computed(exported(), x)[0], right[0])  # the program itself is as it was


def test_a_fault_with_a_size_is_planted_as_large_as_allclose_passes() -> None:
    x, right = network()[1], planted.computed(exported(), network()[1])
    kind, place = "variance of batch norm", "batch_norm"
    size = planted.largest_that_passes(exported(), kind, place, x, right)
    passes = [
        planted.is_close(right, planted.computed(planted.planted(exported(), kind, place, factor * size), x))
        for factor in (1, 1.02)
    ]
    assert passes == [True, False]


def test_an_operation_that_the_network_writes_out_is_named_and_no_other() -> None:
    kind = "eps of a norm that is written out"
    fault = planted.planted(exported(), kind, "add", planted.FAULTS[kind].natural or 0.0)
    found = Reference(exported(), network()[1], is_bounded=False).compare(fault)
    assert (found.verdict, [one.name for one in found.where]) == ("not rounding", ["written"])


def test_a_reference_says_what_same_says() -> None:
    made = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU()).eval()
    x, other = torch.randn(2, 3, 6, 7), copy.deepcopy(made)
    other.get_submodule("1").approximate = "tanh"  # type: ignore[assignment]
    known, anew = Reference(made, x), same(made, other, x)
    assert known.compare(other) == known.compare(other) == anew
    assert known.compare(made).verdict == "same bits"
