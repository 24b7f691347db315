"""Step 0 of a grafted network is the CNN's in every bit, whatever computes its weights and however large its inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import conv2attn as c2a
from conv2attn.convert.layer import layer as layers
from conv2attn.convert.layer import spare
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.subclasses.padded import convolution, has_class
from conv2attn.proofs.campaign.layers import draw_layer
from tests.bits import same_bits

Context = Callable[[], AbstractContextManager[Any]]


class DropConnect(nn.Module):
    """Draws which weights are left out."""

    def forward(self, weight: Tensor) -> Tensor:
        return F.dropout(weight, 0.3, self.training)


class Counted(nn.Module):
    """Has a state, which each computation in train mode changes, and draws a number."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, weight: Tensor) -> Tensor:
        self.steps += self.training
        return weight * (self.steps + torch.rand(())).to(weight.dtype)


COMPUTED: dict[str, Callable[[nn.Module], object]] = {
    "plain": lambda conv: None,
    "spectral_norm": parametrizations.spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "drop-connect": lambda conv: parametrize.register_parametrization(conv, "weight", DropConnect()),
    "state": lambda conv: parametrize.register_parametrization(conv, "weight", Counted()),
    "state of the bias": lambda conv: (
        conv.bias is not None and parametrize.register_parametrization(conv, "bias", Counted())
    ),
    "older spectral_norm": torch.nn.utils.spectral_norm,
}
FLAGS = ("train", "in front", "tied", "twice", "frozen", "in place", "norm", "hooks", "zeros", "beside", "positions")
SCALES = (1e-44, 1e-30, 1e-3, 1.0, 300.0, 6e4, 1e6, 1e10, 1e20, 1e30)
KINDS = ("float64", "float32", "bfloat16", "autocast")


class Around(nn.Module):
    """A convolution in a network that treats it in the ways of networks."""

    def __init__(self, conv: Any, computed: str, flags: Collection[str]) -> None:
        super().__init__()
        axes = len(conv.kernel_size)
        self.flags, options = flags, {"dtype": conv.weight.dtype}
        first: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[axes - 1]
        self.first = first(conv.in_channels, conv.in_channels, 1, **options) if "in front" in flags else nn.Identity()
        self.conv, self.twin = conv, None
        if "tied" in flags and computed == "plain":
            self.twin = copy.deepcopy(conv)
            self.twin.weight = conv.weight
        COMPUTED[computed](conv)
        conv.requires_grad_("frozen" not in flags)
        if "hooks" in flags:
            conv.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 1,))
            conv.register_forward_hook(lambda module, inputs, output: output / 2)
        norm: Any = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[axes - 1]
        self.norm = norm(conv.out_channels, **options) if "norm" in flags else nn.Identity()
        self.relu = nn.ReLU(inplace="in place" in flags)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.conv(x)
        if "twice" in self.flags:
            y = y + self.conv(x.flip(-1))
        if self.twin is not None:
            y = y - self.twin(x)
        y = torch.as_tensor(self.relu(self.norm(y)))
        return y + x.flatten(1).sum(1).view(-1, *(1,) * (y.ndim - 1))


def step(model: nn.Module, x: Tensor, context: Context = nullcontext) -> dict[str, Tensor | None]:
    """Output, gradients and buffers of one pass, by name; gradients of zeros of both signs come back."""
    torch.manual_seed(3)  # of what the network draws
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    with context():
        y = model(x * 1)  # of a leaf, autocast keeps the cast for the next layer that reads it
    slope = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).relu().mul(-1)
    y.backward(slope.to(y))
    found: dict[str, Tensor | None] = {"output": y, "input": x.grad}
    found |= {f"gradient of {name}": each.grad for name, each in model.named_parameters()}
    return found | dict(model.named_buffers())


def different(cnn: nn.Module, grafted: nn.Module, x: Tensor, context: Context = nullcontext) -> list[str]:
    """Names of what has other bits in the grafted network.

    Raises:
        FloatingPointError: A number of the CNN's is not finite.
    """
    expected, found = step(cnn, x, context), step(grafted, x, context)
    if not all(each is None or bool(each.isfinite().all()) for each in expected.values()):
        raise FloatingPointError
    return [
        name
        for name, one in expected.items()
        if (one is None) != ((other := found[name]) is None)
        or (one is not None and other is not None and not same_bits(one, other))
    ]


@given(
    index=st.integers(0, 2**31),
    computed=st.sampled_from(list(COMPUTED)),
    kind=st.sampled_from(KINDS),
    scale=st.sampled_from(SCALES),
    flags=st.frozensets(st.sampled_from(FLAGS)),
)
def test_a_drawn_step_0_is_the_cnn_in_every_bit(
    index: int, computed: str, kind: str, scale: float, flags: frozenset[str]
) -> None:
    drawn = draw_layer(0, index, dtypes=("float32" if kind == "autocast" else kind,), max_size=10)
    assume(has_class(drawn.spec))
    flags = flags - {"norm"} if scale > 1e10 else flags  # its variance would overflow
    torch.manual_seed(drawn.seed)
    cnn = Around(convolution(drawn.spec).to(drawn.torch_dtype), computed, flags).train("train" in flags)
    x = torch.randn(drawn.batch + 1, drawn.spec.in_channels, *drawn.size, dtype=torch.float64) * scale
    x = drawn.lay_out(
        torch.where(x.abs() < 0.3 * scale, -0.0, x).to(drawn.torch_dtype)
        if "zeros" in flags
        else x.to(drawn.torch_dtype)
    )
    grafted = c2a.graft(
        cnn,
        where=["conv", "twin"] if cnn.twin is not None else "conv",
        heads=1 + drawn.seed % 2,
        beside="beside" in flags and not drawn.spec.transposed,
        positions="positions" in flags,
    ).model
    context = partial(torch.autocast, "cpu", dtype=torch.bfloat16) if kind == "autocast" else nullcontext
    try:
        found = different(cnn, grafted, x, context)
    except FloatingPointError:
        reject()
    assert found == []


def underflowing(depth: int) -> tuple[nn.Module, Tensor]:
    """A network in half precision whose first outputs round to -0."""
    cnn = nn.Sequential(*(nn.Conv2d(1, 1, 1, bias=False) for _ in range(depth))).half()
    for parameter in cnn.parameters():
        nn.init.constant_(parameter, 1e-6)
    return cnn, torch.full((2, 1, 4, 5), -1e-6, dtype=torch.float16)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_gradients_of_heads_at_0_are_negative_zeros_which_change_no_sum(zero: float) -> None:
    x = torch.randn(2, 3, 4, 5, requires_grad=True)
    pixels = spare._clamped_pixels(x)
    (slope,) = torch.autograd.grad(pixels, x, torch.full_like(pixels, zero))
    assert same_bits(slope, torch.full_like(x, -0.0))
    (slope,) = torch.autograd.grad(spare._clamped_pixels(x), x, pixels.detach())
    assert torch.equal(slope, x)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_outputs_that_underflow_keep_their_sign(beside: bool, depth: int) -> None:
    cnn, x = underflowing(depth)
    model = c2a.graft(cnn, where="0", beside=beside).model
    assert bool((1 / model[0](x) == -torch.inf).all())  # type: ignore[index]
    assert different(cnn, model, x) == []


@pytest.mark.parametrize("size", [6e4, 1e6, 1e20, 1e30])
@pytest.mark.parametrize("channels", [4, 64])
def test_large_inputs_leave_gradients_finite_in_training(size: float, channels: int) -> None:
    cnn = nn.Sequential(nn.Conv2d(channels, 6, 3, padding=1))
    x = torch.randn(1, channels, 12, 9) * size
    model = c2a.graft(cnn, where="0").model
    assert different(cnn, model, x) == []
    nn.init.normal_(model.get_parameter("0.spare_out"))
    assert all(each is None or bool(each.isfinite().all()) for each in step(model, x).values())


def half_network() -> tuple[nn.Module, nn.Module, Tensor]:
    """A network, its graft, and inputs of which the values of the heads would overflow."""
    cnn = nn.Sequential(nn.Conv2d(16, 2, 1)).half()
    nn.init.constant_(cnn[0].weight, 1e-2)  # type: ignore[arg-type]
    model = c2a.graft(cnn, where="0").model
    nn.init.constant_(model.get_parameter("0.spare_value"), 0.25)
    return cnn, model, torch.full((1, 16, 5, 4), 6e4, dtype=torch.float16)


def test_half_precision_keeps_values_of_large_inputs_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    cnn, model, x = half_network()
    assert bool(cnn(x).isfinite().all())
    assert same_bits(model(x), cnn(x))
    monkeypatch.setattr(spare, "input_limit", lambda channels, dtype: 65504.0)
    assert not same_bits(model(x), cnn(x))


@pytest.mark.parametrize("engine", ["auto", "literal"])
def test_a_computed_weight_is_computed_once_a_pass_and_not_by_whoever_looks_at_the_layer(engine: str) -> None:
    cnn = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1))
    parametrize.register_parametrization(cnn[0], "weight", Counted())
    before, state = cnn.state_dict()["0.parametrizations.weight.0.steps"].clone(), torch.get_rng_state()
    model = c2a.graft(cnn, where="0", positions=True).model
    layer: Any = model[0]  # type: ignore[index]
    layer.engine = engine
    assert torch.equal(torch.get_rng_state(), state)
    layer.attention_probabilities((5, 6))
    c2a.conv_from_attention(layer)
    layer.explain((5, 6))
    assert c2a.convert_model(cnn).model[0].parametrizations.weight[0].steps == before  # type: ignore[index]
    assert layer.parametrizations.weight[0].steps == before
    layer(torch.randn(1, 4, 5, 6))
    layer(torch.randn(1, 4, 5, 6), need_weights=True)
    assert layer.parametrizations.weight[0].steps == before + 2


@pytest.mark.parametrize("batch", [0, 3])
def test_an_output_without_a_pixel_is_the_cnn_s(batch: int) -> None:
    cnn = nn.Sequential(nn.ConvTranspose2d(2, 3, 1, padding=1, dilation=2))
    x = torch.randn(batch, 2, 2, 5)
    y = c2a.graft(cnn, where="0").model(x)
    y.sum().backward()
    assert cnn(x).numel() == 0
    assert same_bits(y, cnn(x))


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a sum": lambda patch: patch.setattr(layers, "_minus", lambda x, negated: x + negated.to(x.dtype)),
    "scores of any size": lambda patch: patch.setattr(
        spare, "score_limit", lambda width, dtype: torch.finfo(dtype).max
    ),
    "a second reading": lambda patch: patch.setattr(
        SelfAttention, "_check_input", lambda self, x, spec, dtype: self.weight.dtype
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_change_bits(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[fault](monkeypatch)
    large = nn.Sequential(nn.Conv2d(16, 8, 3, padding=1)).train()
    parametrizations.spectral_norm(large[0])
    cases = [underflowing(1), underflowing(2), (large, 1e6 * torch.randn(2, 16, 14, 13))]
    models = [c2a.graft(cnn, where="0", beside=True).model for cnn, _ in cases]
    assert any(different(cnn, model, x) for model, (cnn, x) in zip(models, cases, strict=True))
