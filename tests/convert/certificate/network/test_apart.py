"""Differences in the 2-norm: proven norms are norms, no perturbation exceeds a gain, and planted faults are caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import SelfAttention, certify_images, convert_model
from conv2attn.convert.certificate.network import apart as module
from conv2attn.convert.certificate.network.apart import Apart, Differences
from conv2attn.convert.certificate.network.certificate import program_of
from conv2attn.convert.certificate.network.rules import gains
from conv2attn.convert.certificate.network.rules.spectral import convolution_norm, euclidean, matrix_norm
from conv2attn.convert.size import Size
from tests.convert.certificate.network.networks import attention

KERNELS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one axis": ((5, 3, 4), {}),
    "image": ((6, 4, 3, 5), {}),
    "stride": ((4, 3, 3, 5), {"stride": (2, 3)}),
    "one stride": ((4, 3, 2, 3), {"stride": (1, 2)}),
    "groups": ((6, 2, 3, 2), {"groups": 3, "stride": (2, 1)}),
    "dilation": ((3, 2, 3, 3), {"dilation": 2, "stride": (2, 2)}),
    "one tap": ((7, 3, 1, 1), {"stride": (2, 2)}),
    "volume": ((3, 2, 2, 3, 2), {}),
    "depthwise": ((8, 1, 7, 7), {"groups": 8}),
}


def enlarged(kernel: Tensor, options: dict[str, Any], size: int = 24) -> float:
    """By how much a convolution enlarges an image that power iteration finds."""
    axes = kernel.ndim - 2
    size = size if axes < 3 else 9
    call: Callable[..., Tensor] = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    x = torch.randn(1, kernel.shape[1] * options.get("groups", 1), *[size] * axes, dtype=torch.float64)
    factor = 0.0
    for _ in range(60):
        x = (x / x.norm()).requires_grad_()
        y = call(x, kernel, padding=[side - 1 for side in kernel.shape[2:]], **options)
        factor = float(y.detach().norm())
        (x,) = torch.autograd.grad(y, x, y.detach())
    return factor


@pytest.mark.parametrize("name", KERNELS)
def test_no_direction_is_enlarged_by_more_than_the_norm(name: str) -> None:
    shape, options = KERNELS[name]
    torch.manual_seed(len(name))
    for scale in (1.0, 2.0**-600, 2.0**500):
        kernel = torch.randn(shape, dtype=torch.float64)
        bound = convolution_norm(kernel * scale, **options) / scale
        assert enlarged(kernel, options) <= bound < 1.6 * enlarged(kernel, options)


def test_large_matrices_are_bounded_in_single_precision() -> None:
    matrix = torch.randn(300, 260, dtype=torch.float64)
    exact = float(torch.linalg.matrix_norm(matrix, 2))
    assert exact <= matrix_norm(matrix) <= 1.06 * exact
    same = torch.ones(300, 260)
    assert math.sqrt(300 * 260) <= matrix_norm(same) <= 1.06 * math.sqrt(300 * 260)


def test_norms_of_zeros_and_of_numbers_that_are_not_finite() -> None:
    assert matrix_norm(torch.zeros(3, 2)) == euclidean(torch.zeros(3)) == 0
    assert matrix_norm(torch.tensor([[math.nan, 1.0]])) == math.inf
    assert euclidean(torch.full((3, 3), 2.0**-1000, dtype=torch.float64)) >= 3 * 2.0**-1000


NETWORKS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "overlapping maxima": lambda m, x: F.max_pool2d(x, (3, 2), stride=(1, 2), padding=1),
    "dilated maxima": lambda m, x: F.max_pool2d(x, 3, stride=2, dilation=2),
    "adaptive maxima": lambda m, x: F.adaptive_max_pool2d(x, (5, 4)),
    "averages": lambda m, x: F.avg_pool2d(x, 3, 1, 1),
    "mean": lambda m, x: x.mean((2, 3)),
    "joined": lambda m, x: torch.cat([x, x.flip(2), x[:, :1]], 1),
    "repeated": lambda m, x: x.repeat(1, 2, 2, 1),
    "reflected": lambda m, x: F.pad(x, (2, 1, 1, 2), "reflect"),
    "gate of channels": lambda m, x: x * x.mean((2, 3), keepdim=True).sigmoid(),
    "product": lambda m, x: x * x.flip(2),
    "weighted sum": lambda m, x: torch.add(x[:, :1], x, alpha=-3),
    "shares": lambda m, x: x.softmax(3),
    "gated": lambda m, x: F.glu(x, 1),
    "normalised": lambda m, x: F.group_norm(x, 1, eps=0.1),
    "normalised far from zero": lambda m, x: F.group_norm(x + 3.0, 1, eps=0.1),
    "norm of rows": lambda m, x: F.layer_norm(x, x.shape[3:], eps=0.1),
    "matrix": lambda m, x: m.linear(x),
    "interpolated": lambda m, x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "quotient": lambda m, x: x.tanh() / 0.3,
    "pieces": lambda m, x: torch.stack(x.chunk(2, 1)).amax(0),
    "batch norm": lambda m, x: m.norm(x),
    "leaky": lambda m, x: F.leaky_relu(x, -1.7),
}


def ball(model: nn.Module, start: Tensor, apart: float) -> float:
    """The radius that a ball has behind a function, as the walk says it, with the ball for the layer's output."""

    class Started(Differences):
        def attention(self, name: str, layer: Any, x: Any, node: Any) -> Any:
            return Apart.within(start, torch.full_like(start, math.inf), apart)

    first = next(layer for layer in model.modules() if isinstance(layer, SelfAttention))
    (output,) = Started(program_of(model, first, Size(*start.shape[2:])), None).outputs_for(start[:, :1])
    return output.apart


def assert_within_its_ball(name: str, apart: float) -> None:
    """The worst of random perturbations, and of those along the gradient of the result in a random direction."""
    torch.manual_seed(1)
    norm, linear, function = nn.BatchNorm2d(2), nn.Linear(6, 3), NETWORKS[name]
    norm.running_var, norm.weight.data = torch.tensor([0.5, 2.0]), torch.tensor([1.0, -3.0])
    model = attention(lambda m, x: function(m, m.conv(x)), alpha=None, norm=norm, linear=linear)
    x, direction = torch.randn(2, 1, 2, 7, 6, dtype=torch.float64)
    bound, largest = ball(model, x, apart), 0.0
    model = model.double()
    expected = function(model, x).detach()
    for step in range(40):
        moved = (x + apart * direction / direction.norm()).requires_grad_()
        difference = function(model, moved) - expected
        largest = max(largest, float(difference.detach().norm()))
        (direction,) = torch.autograd.grad(difference, moved, difference.detach())
        if step % 8 == 7 or not float(direction.norm()):
            direction = torch.randn_like(x)
    assert largest <= bound < 12 * largest


@pytest.mark.parametrize("name", NETWORKS)
def test_no_perturbation_exceeds_what_an_operation_makes_of_a_ball(name: str) -> None:
    for apart in (0.5, 1e-3):
        assert_within_its_ball(name, apart)


def deep(layers: int = 12) -> nn.Module:
    torch.manual_seed(2)
    parts: list[nn.Module] = []
    for number in range(layers):
        parts += [nn.Conv2d(8 if number else 3, 8, 3, padding=1), nn.BatchNorm2d(8, momentum=None), nn.ReLU()]
    cnn = nn.Sequential(*parts[:-1])
    with torch.no_grad():
        cnn(torch.randn(4, 3, 12, 11))
    return convert_model(cnn.eval()).model


IMAGE = torch.randn(1, 3, 12, 11, generator=torch.Generator().manual_seed(3))


def test_norms_make_the_bound_of_a_deep_network_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    with_norms = certify_images(deep(), IMAGE, margins=0).bound
    monkeypatch.setattr(module, "gains", lambda *_: None)
    monkeypatch.setattr(Differences, "_passed_on", lambda *_: math.inf)
    by_entries = certify_images(deep(), IMAGE, margins=0).bound
    assert with_norms is not None
    assert by_entries is not None
    assert with_norms < by_entries / 100


@pytest.mark.fault
def test_a_network_s_own_differences_left_out_of_the_norm_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """What layers differ by on equal inputs does not count, and nothing is left to be apart."""
    whole = certify_images(deep(2), IMAGE, margins=0).bound
    assert whole is not None
    monkeypatch.setattr(module, "euclidean", lambda _: 0.0)
    assert certify_images(deep(2), IMAGE, margins=0).bound == 0.0


FAULTS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "windows that do not overlap": ("_maxima", lambda call, apart: [1.0], "overlapping maxima"),
    "pixels that are not repeated": ("_schur", lambda call, apart: [1.0] * len(apart), "repeated"),
    "a product with one factor fixed": ("_product", lambda call, apart: [1.0, 1.0], "product"),
    "a factor left out": ("_sum", lambda call, apart: [1.0, 1.0], "weighted sum"),
    "a norm of the largest weight": ("_linear", lambda call, apart: [float(call["weight"].abs().max())], "matrix"),
}


@pytest.mark.fault
@pytest.mark.parametrize("fault", FAULTS)
def test_a_gain_that_is_too_small_is_exceeded(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, false, name = FAULTS[fault]
    for operation, found in list(gains._RULES.items()):
        if found is getattr(gains, rule):
            monkeypatch.setitem(gains._RULES, operation, false)
    with pytest.raises(AssertionError):
        assert_within_its_ball(name, 0.5)


@pytest.mark.fault
@pytest.mark.parametrize(
    "unfolding", [lambda k: k.flatten(1), lambda k: k.transpose(0, 1).flatten(1), lambda k: k.sum((2, 3))]
)
def test_the_norm_of_one_unfolding_alone_is_exceeded(unfolding: Callable[[Tensor], Tensor]) -> None:
    kernel = torch.randn(6, 4, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    assert matrix_norm(unfolding(kernel)) < enlarged(kernel, {})


def test_a_margin_of_a_linear_layer_is_bounded_by_the_difference_of_its_rows() -> None:
    """Two rows that are equal have a margin that no difference of their input moves; only their own counts."""
    linear = nn.Linear(8, 3)
    with torch.no_grad():
        linear.weight[1] = linear.weight[0]
    cnn = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear
    )
    model = convert_model(cnn.eval(), alpha=4.0).model
    first = next(layer for layer in model.modules() if isinstance(layer, SelfAttention))
    (output,) = Differences(program_of(model, first, Size(12, 11)), None).outputs_for(IMAGE)
    same, other = output.margin(0, 1), output.margin(0, 2)
    assert 0 < same < other / 1000
    assert other <= float(output.error[0, [0, 2]].sum())
