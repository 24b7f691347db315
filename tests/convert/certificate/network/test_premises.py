"""Premises of a certificate: what moves only moves, what is computed rounds, and one class is bounded and compared."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from conv2attn.convert import ConversionError, certify_images, certify_network, convert_model
from conv2attn.convert.certificate.network import images as rooms
from conv2attn.convert.certificate.network import moved, program, table
from conv2attn.convert.certificate.network.images import ImageCertificate
from conv2attn.convert.certificate.network.interval import HYPOTHESES, Arithmetic
from conv2attn.convert.certificate.network.linearised import Step
from conv2attn.convert.certificate.network.moved import is_chosen_alike
from conv2attn.convert.certificate.network.operation import Operation
from conv2attn.convert.certificate.network.proof import Draws
from conv2attn.convert.programs import program as recording
from tests.convert.certificate.network.attacked import Aliased, Standardised, attacks
from tests.convert.certificate.network.networks import Apply

ATTACKED = range(100, 116, 4)  # networks; 1,000 were attacked once (benchmarks/RESULTS.md)


def certificate(model: nn.Module, image: Tensor, hypothesis: str = "once", **options: Any) -> ImageCertificate:
    (found,) = certify_images(model.eval(), image, hypothesis=hypothesis, seed=1, **options).images
    return found


def chosen(size: int, count: int, dtype: torch.dtype, layout: str = "rows") -> list[int]:
    """The pixels of an axis that a kernel of torch chooses."""
    line = torch.arange(size, dtype=dtype)
    if layout == "line":
        return [int(one) for one in F.interpolate(line.view(1, 1, size), size=count)[0, 0]]
    x = line.expand(1, 2, 2, size).contiguous()
    if layout == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    return [int(one) for one in F.interpolate(x, size=(2, count))[0, 0, 0]]


KERNELS = [
    *((torch.float32, layout) for layout in ("line", "rows", "channels last")),
    *((torch.float64, layout) for layout in ("line", "rows")),
]


def test_nearest_pixels_that_are_accepted_are_the_same_in_every_kernel() -> None:
    pairs = [(size, count) for size in (1, 2, 7, 26, 28, 45, 64) for count in range(1, 165, 4)]
    accepted = [pair for pair in pairs if is_chosen_alike(*pair, None)]
    assert not any(is_chosen_alike(*pair, None) for pair in ((26, 44), (28, 46), (45, 129), (64, 164)))
    assert len(accepted) > 0.9 * len(pairs)
    for size, count in accepted:
        exact = [i * size // count for i in range(count)]
        assert all(chosen(size, count, *kernel) == exact for kernel in KERNELS), (size, count)


@pytest.mark.parametrize("factor", [2.0, 3.0, 4.0, 1.5, 0.5])
def test_usual_factors_of_nearest_upsampling_are_accepted(factor: float) -> None:
    for size in range(1, 65):
        assert is_chosen_alike(size, math.floor(size * factor), factor), size


def enlarged() -> tuple[nn.Module, Tensor]:
    """A network whose class is the sign of a pixel that single precision chooses otherwise, and an image."""
    pixels = [chosen(45, 129, dtype) for dtype in (torch.float32, torch.float64)]
    place = next(n for n, (one, other) in enumerate(zip(*pixels, strict=True)) if one != other)
    model = nn.Sequential(nn.Upsample(size=(2, 129)), nn.Flatten(), nn.Linear(258, 2, bias=False))
    with torch.no_grad():
        next(model.parameters()).zero_()[:, place] = torch.tensor([1.0, -1.0])
    image = torch.zeros(1, 1, 2, 45)
    image[..., pixels[1][place]], image[..., pixels[0][place]] = 1.0, -1.0
    return model, image


def test_nearest_pixels_that_depend_on_the_arithmetic_are_refused() -> None:
    with pytest.raises(ConversionError, match="from 45 to 129 pixels"):
        certificate(*enlarged())


@pytest.mark.fault
@pytest.mark.parametrize("hypothesis", HYPOTHESES)
def test_pixels_that_are_taken_for_moved_are_contradicted_by_the_run(
    hypothesis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moved, "check_nearest", lambda call: None)
    monkeypatch.setattr(Step, "check_transpose", lambda *call: None)  # torch's gradient chooses others again
    found = certificate(*enlarged(), hypothesis)
    assert found.contradiction is not None
    assert not found.certified
    assert found.contradiction in rooms.ImagesCertificate((found,)).in_words


def tail(channels: int) -> list[nn.Module]:
    return [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5)]


def tables(x: Tensor) -> Tensor:
    line = torch.linspace(0, 1, x.shape[-1], dtype=x.dtype)
    place = 10000.0 ** -(torch.arange(x.shape[-1]) / x.shape[-1])
    return x * torch.sin(line * 7) + torch.cos(place.to(x.dtype)) + torch.exp(line).sqrt()


COMPUTED: dict[str, Callable[[], nn.Module]] = {
    "weight norm": lambda: parametrizations.weight_norm(nn.Conv2d(3, 4, 3)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)),
    "standardised": lambda: Standardised(3, 4, 3, by_norm=False, offset=0.0),
    "standardised, far from 0": lambda: Standardised(3, 4, 3, by_norm=False, offset=300.0),
    "standardised by batch norm": lambda: Standardised(3, 4, 3, by_norm=True, offset=0.0),
    "transposed": lambda: parametrizations.weight_norm(nn.ConvTranspose2d(3, 4, 3, groups=1)),
    "tables": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), Apply(tables)),
}


def computed(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(COMPUTED[name](), *tail(4)).eval(), torch.randn(1, 3, 6, 7)


@torch.no_grad()
def distance(model: nn.Module, image: Tensor) -> float:
    """How far a run is from double precision, in which constants are computed, too."""
    run = model(image).double()
    torch.set_default_dtype(torch.float64)  # of quotients of whole numbers
    try:
        return float((run - copy.deepcopy(model).double()(image.double())).abs().max())
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", COMPUTED)
def test_the_error_of_a_run_is_that_against_constants_that_are_computed_exactly(name: str) -> None:
    model, image = computed(name)
    found = certificate(model, image)
    assert found.error is not None
    assert found.bound is not None
    assert 0 < distance(model, image) <= found.error <= distance(model, image) * (1 + 1e-3) + 1e-12


@pytest.mark.fault
def test_constants_that_are_taken_for_exact_have_too_small_an_error_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    model, image = computed("standardised, far from 0")
    honest = certificate(model, image, "any order")
    monkeypatch.setattr(program, "exact_constant", lambda node, args, kwargs: node.target(*args, **kwargs))
    found = certificate(model, image, "any order")
    assert found.error is not None
    assert found.error < distance(model, image) / 10
    assert honest.bound is not None
    assert found.bound is None or found.bound < honest.bound / 10


def test_programs_that_compute_a_weight_in_another_order_are_within_the_bound() -> None:
    model, image = computed("standardised, far from 0")
    other = copy.deepcopy(model)
    conv = next(iter(other.children()))

    def in_turn(x: Tensor) -> Tensor:
        weight = conv.get_parameter("weight")
        total = torch.zeros(4)
        for each in weight.flatten(1).T:
            total = total + each
        w = weight - (total / weight[0].numel()).view(4, 1, 1, 1)
        w = w / ((w * w).mean((1, 2, 3), keepdim=True) + 1e-3).sqrt()
        return F.conv2d(x, w, conv.get_parameter("bias"))

    conv.forward = in_turn
    found = certificate(model, image, "any order")
    with torch.no_grad():
        apart = (model(image) - other(image)).double().abs()[0, found.top]
    assert found.bound is not None
    assert 0 < float(apart) <= found.bound


def test_a_table_of_whole_numbers_or_of_parameters_that_are_moved_is_exact() -> None:
    held = torch.rand(4)
    for function in (
        lambda x: x * held.flip(0),
        lambda x: x * torch.ones(4),
        lambda x: x * torch.arange(4).to(x.dtype),
    ):
        found = certificate(nn.Sequential(Apply(function), nn.Flatten()), torch.rand(1, 2, 3, 4), "any order")
        assert found.estimate <= 2 * 2.0**-24 * found.outputs * (1 + 1e-4)


def test_an_attention_layer_whose_weight_is_computed_is_refused_unless_computing_it_is_exact() -> None:
    torch.manual_seed(0)
    for make, is_exact in (
        (parametrizations.weight_norm, False),
        (lambda c: prune.random_unstructured(c, "weight", 0.5), True),
    ):
        model = convert_model(nn.Sequential(make(nn.Conv2d(3, 4, 3)), *tail(4)).eval()).model
        if is_exact:
            assert certificate(model, torch.randn(1, 3, 6, 7)).bound is not None
            continue
        with pytest.raises(ConversionError, match="is computed, with roundings"):
            certificate(model, torch.randn(1, 3, 6, 7))
        assert certify_network(model, input_range=(0, 1), size=(6, 7)).bound is None


class Limited(nn.Module):
    """Scores on either side of a limit, which float32 holds as a larger number."""

    def __init__(self, limit: Callable[[Tensor], Tensor], gain: float) -> None:
        super().__init__()
        self.limit, self.gain, self.score = limit, gain, nn.Parameter(torch.tensor([-0.5]))

    def forward(self, x: Tensor) -> Tensor:
        """The limited first channel beside the second, scaled, and a constant score."""
        first = (self.limit(x[:, :1]) - x[:, 1:]) * self.gain
        return torch.cat([first, first * 0.0 + self.score.to(first)], 1)


LIMITS: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp": lambda x: x.clamp(max=0.1),
    "hardtanh": lambda x: F.hardtanh(x, 0.0, 0.1),
    "padding": lambda x: F.pad(x, (1, 0), value=0.1)[:, :1],
}


@pytest.mark.parametrize("hypothesis", HYPOTHESES)
@pytest.mark.parametrize("name", LIMITS)
def test_a_number_that_the_precision_does_not_hold_is_the_same_in_a_margin_and_its_bound(
    name: str, hypothesis: str
) -> None:
    model, image = Limited(LIMITS[name], 2.0**30), torch.tensor([[0.2, 0.1]])
    found = certificate(model, image, hypothesis)
    assert found.top == int(model(image).argmax()) == 0
    assert found.contradiction is None
    assert found.margins[0].value == 0.5
    assert found.error is not None
    assert found.error > 1.5  # of the numbers as they are written


@pytest.mark.fault
@pytest.mark.parametrize("name", LIMITS)
def test_limits_that_are_taken_as_written_are_contradicted_by_the_run(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arithmetic, "held", lambda self, value: value)
    found = certificate(Limited(LIMITS[name], 2.0**30), torch.tensor([[0.2, 0.1]]))
    assert found.top == 1
    assert found.contradiction is not None
    assert not found.certified


def test_scores_that_tie_are_not_certified() -> None:
    model = Apply(lambda x: torch.cat([x[:, :1].clamp(max=0.1), x[:, 1:]], 1))
    for hypothesis in HYPOTHESES:
        assert not certificate(model, torch.tensor([[0.2, 0.1]]), hypothesis).certified


def contiguous(x: Tensor) -> Tensor:
    x = x * 0.5
    x.contiguous().relu_()
    return x


def reshaped(x: Tensor) -> Tensor:
    x = x * 0.5
    x.reshape(1, -1).add_(1.0)
    x.to(x.dtype).mul_(2.0)
    return x


def assigned(x: Tensor) -> Tensor:
    x = x * 0.5
    x[:, 0] = x[:, 1]
    x[:, :, 1:] = 0.1
    return x


WRITTEN: dict[str, Callable[[], nn.Module]] = {
    "dropout": lambda: Aliased(nn.ReLU(inplace=True)),
    "dropout of channels": lambda: nn.Sequential(Aliased(nn.LeakyReLU(0.2, inplace=True)), nn.Dropout2d(0.2)),
    "contiguous": lambda: Apply(contiguous),
    "reshape and to": lambda: Apply(reshaped),
    "slices": lambda: Apply(assigned),
}


@pytest.mark.parametrize("hypothesis", HYPOTHESES)
@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_under_another_name_is_what_is_certified(name: str, hypothesis: str) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(2, 3, 1), WRITTEN[name](), nn.Flatten()).eval()
    found = certificate(model, torch.randn(1, 2, 3, 2), hypothesis)
    assert found.measured < 1e-6
    assert found.contradiction is None
    assert found.bound is not None


@pytest.mark.fault
def test_a_write_that_no_other_name_sees_contradicts_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "close", lambda *_: None)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(2, 3, 1), WRITTEN["slices"](), nn.Flatten()).eval()
    found = certificate(model, torch.randn(1, 2, 3, 2))
    assert found.contradiction is not None
    assert not found.certified


@pytest.mark.fault
@pytest.mark.parametrize("where", ["bounds", "near", "backward"])
@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError])
def test_what_torch_cannot_compute_of_a_rule_names_the_operation(
    where: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error("no derivative")

    row = table.TABLE["silu"]

    def failing(call: Any) -> Any:
        local = row.near(call)
        return replace(local, apply=fail, absolute=fail)

    rows = {"bounds": Operation(fail, row.near, row.terms), "near": Operation(row.bounds, fail, row.terms)}
    monkeypatch.setitem(table.TABLE, "silu", rows.get(where, Operation(row.bounds, failing, row.terms)))
    with pytest.raises(ConversionError, match=r"1: .*no derivative"):
        certificate(nn.Sequential(nn.Conv2d(2, 3, 1), nn.SiLU(), nn.Flatten()), torch.randn(1, 2, 3, 2))


def test_a_run_of_another_class_or_beyond_the_bound_certifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, image = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), torch.randn(1, 3, 2, 2)
    run_of, plain = rooms.run_of, {one: certificate(model, image, one) for one in HYPOTHESES}
    assert all(one.certified and one.contradiction is None for one in plain.values())
    monkeypatch.setattr(rooms, "run_of", lambda *call: -run_of(*call))
    for hypothesis in HYPOTHESES:
        other = certificate(model, image, hypothesis)
        assert other.contradiction is not None
        assert not other.certified
    monkeypatch.setattr(rooms, "run_of", lambda *call: run_of(*call) * (1 + 2.0**-10))
    beyond, within = (certificate(model, image, one) for one in ("any order", "once"))  # which no run of torch is
    assert beyond.contradiction is not None
    assert (beyond.bound, beyond.margins[0].bound, beyond.certified) == (None, None, False)
    assert within.certified


def test_every_bit_of_a_drawn_seed_counts() -> None:
    nothing, ones = torch.zeros(2, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    seeds = [0, *(1 << bit for bit in range(0, 128, 7)), 1 << 127]
    drawn = {tuple(Draws(seed).added(nothing, ones).flatten().tolist()) for seed in seeds}
    assert len(drawn) == len(seeds)
    seeds = [certify_images(Apply(torch.neg).eval(), torch.ones(1, 3)).images[0].seed for _ in range(8)]
    assert max(seeds).bit_length() > 100


def test_a_probability_that_seeds_cannot_have_is_refused_and_words_name_it() -> None:
    with pytest.raises(ConversionError, match=r"between 2\^-100"):
        certificate(Apply(torch.neg), torch.ones(1, 3), p=2.0**-101)
    assert rooms.proof_in_words(0.0, 0) == "which is proved"
    assert "1e-09" in rooms.proof_in_words(1e-9, None)
    assert "fixed seed 0" in rooms.proof_in_words(1e-9, 0)


@pytest.mark.parametrize("seed", ATTACKED)
def test_no_adversarial_program_of_a_random_network_breaks_its_certificate(seed: int) -> None:
    for one in attacks(seed).values():
        assert one.violations == ()


READS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda t: t.sum().item() > 0,
    "bool": lambda t: bool(t.sum() > 0),
    "float": lambda t: float(t.sum()) > 0,
    "int": lambda t: int(t.sum() * 1e6) > 0,
    "index": lambda t: [False, True][(t.sum() > 0).long()],
    "tolist": lambda t: sum(t.flatten().tolist()) > 0,
    "numpy": lambda t: t.numpy().sum() > 0,
    "array": lambda t: np.asarray(t).sum() > 0,
    "dlpack": lambda t: np.from_dlpack(t).sum() > 0,
    "equal": lambda t: torch.equal(t.sum().relu(), t.sum()),
    "mask": lambda t: len(t.sum().view(1)[t.sum().view(1) > 0]) > 0,
}


@pytest.mark.fault
@pytest.mark.parametrize("kind", READS)
def test_a_class_that_a_read_of_values_decides_is_not_certified(kind: str) -> None:
    """The sum is 0 in exact arithmetic, so programs go either way; and each way has another class."""

    class Deciding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            scores = torch.tensor([[0.0, 1.0]]) + 0.1 * x.flatten(1)[:, :2]
            return scores.flip(1) if READS[kind](x - x.mean()) else scores

    image = torch.randn(1, 1, 2, 3, generator=torch.Generator().manual_seed(0))
    found = certificate(Deciding().eval(), image)
    assert not found.certified
    assert found.bound is None
    assert found.estimate > 0
    assert found.opens is not None
    assert "reads values" in found.opens.reason
