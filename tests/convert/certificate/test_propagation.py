"""The bound on a whole network holds, for every operation that it is carried through, and says where it ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from conv2attn.convert import ConversionError, NetworkCertificate, certify, certify_network, convert_model
from conv2attn.convert.attention.layer import set_engine
from conv2attn.convert.certificate.propagation import rearranging as moves
from conv2attn.convert.certificate.propagation.interval import Arithmetic, Interval
from conv2attn.convert.errors import Problem
from tests.small_models import SMALL_MODELS, Composite

SIZE = (9, 8)


class Between(nn.Module):
    """A convolution, something, and a convolution that sees what it did."""

    def __init__(self, something: Callable[[Tensor], Tensor], channels: int = 4) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(channels, 2, (1, 2))
        self.something = something

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 3, rows, columns] to [batch, 2, ...]."""
        y: Tensor = self.last(self.something(self.first(x)))
        return y


def norm() -> nn.Module:
    layer = nn.BatchNorm2d(4)
    for tensor in (layer.running_mean, layer.weight, layer.bias):
        assert tensor is not None
        nn.init.normal_(tensor)
    assert layer.running_var is not None
    nn.init.uniform_(layer.running_var, 0.1, 3)
    return layer


MODULES: dict[str, tuple[Callable[[], Callable[[Tensor], Tensor]], int]] = {
    "ReLU": (nn.ReLU, 4),
    "ReLU in place": (lambda: nn.ReLU(inplace=True), 4),
    "ReLU6": (nn.ReLU6, 4),
    "Hardtanh": (lambda: nn.Hardtanh(-0.3, 0.7), 4),
    "LeakyReLU": (lambda: nn.LeakyReLU(1.7), 4),
    "Sigmoid": (nn.Sigmoid, 4),
    "Tanh": (nn.Tanh, 4),
    "Hardsigmoid": (nn.Hardsigmoid, 4),
    "Hardswish": (nn.Hardswish, 4),
    "SiLU": (nn.SiLU, 4),
    "GELU": (nn.GELU, 4),
    "batch norm": (norm, 4),
    "a convolution left alone": (lambda: nn.Conv2d(4, 6, (2, 3), stride=(1, 2), padding=(1, 0), groups=2), 6),
    "dropout": (lambda: nn.Dropout(0.5), 4),
    "max pooling": (lambda: nn.MaxPool2d(3, 2, 1), 4),
    "average pooling": (lambda: nn.AvgPool2d(3, 2, 1), 4),
    "adaptive pooling": (lambda: nn.AdaptiveAvgPool2d((2, 3)), 4),
    "shuffled channels": (lambda: nn.ChannelShuffle(2), 4),
    "nearest upsampling": (lambda: nn.Upsample(scale_factor=2), 4),
    "bilinear upsampling": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), 4),
    "a residual sum": (lambda: lambda x: x + F.relu(x), 4),
    "a difference": (lambda: lambda x: torch.sigmoid(x) - 2 * x, 4),
    "a product": (lambda: lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)), 4),
    "a quotient": (lambda: lambda x: (x + 1) / 3, 4),
    "joined channels": (lambda: lambda x: torch.cat([x, F.silu(x)], dim=1), 8),
    "joined rows": (lambda: lambda x: torch.cat([x, -1 * x], dim=2), 4),
    "a turned image": (lambda: lambda x: x.permute(0, 1, 3, 2).flip(2), 4),
    "split channels": (lambda: lambda x: torch.cat([x.chunk(2, 1)[1], x[:, :2]], 1), 4),
    "one input changed in place and read again": (lambda: lambda x: F.relu(x, inplace=True) + x, 4),
    "interpolation": (lambda: lambda x: F.interpolate(x, size=(5, 7), mode="bilinear"), 4),
    "functional pooling": (lambda: lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 2), 4),
}


def network(name: str) -> nn.Module:
    make, channels = MODULES[name]
    return Between(make(), channels).eval()


def observed(cnn: nn.Module, model: nn.Module, *, count: int = 8) -> float:
    x = torch.rand(count, 3, *SIZE, dtype=next(cnn.parameters()).dtype) * 2 - 1
    with torch.no_grad():
        return float((model(x) - cnn(x)).abs().max())


@pytest.mark.parametrize("alpha", [None, 5.0])
@pytest.mark.parametrize("name", MODULES)
def test_a_network_stays_within_its_bound(name: str, alpha: float | None) -> None:
    cnn = network(name)
    model = convert_model(cnn, alpha=alpha, engine="literal", filter_fn=lambda _, name: name != "something").model
    certificate = certify_network(model, input_range=(-1, 1), size=SIZE)
    assert certificate.unbounded == ()
    assert certificate.bound is not None
    assert observed(cnn, model) <= certificate.bound
    assert [layer.name for layer in certificate.layers] == ["first", "last"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["batch norm", "SiLU", "a residual sum", "adaptive pooling", "average pooling"])
def test_the_bound_holds_in_other_precisions(name: str, dtype: torch.dtype) -> None:
    cnn = network(name).to(dtype)
    model = convert_model(cnn, alpha=5.0, filter_fn=lambda _, name: name != "something").model
    bound = certify_network(model, input_range=(-1, 1), size=SIZE).bound
    assert bound is not None
    assert observed(cnn, model) <= bound


@pytest.mark.parametrize("name", sorted(SMALL_MODELS.keys() - {"ConvNeXt"}))
def test_known_architectures_have_a_bound(name: str) -> None:
    cnn = SMALL_MODELS[name]().eval()
    model = convert_model(cnn, alpha=6.0).model
    certificate = certify_network(model, input_range=(-1, 1), size=(32, 30))
    x = torch.rand(2, 3, 32, 30) * 2 - 1
    with torch.no_grad():
        difference = (model(x) - cnn(x)).abs().max()
    assert certificate.unbounded == ()
    assert 0 < difference <= certificate.bound


class Step(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function."""
        return self.function(x)


NOT_POOLING = [name for name, (_, channels) in MODULES.items() if channels == 4 and "pooling" not in name]


@settings(max_examples=30)
@given(st.lists(st.sampled_from(NOT_POOLING), min_size=2, max_size=4))
def test_operations_after_one_another_stay_within_their_bound(names: list[str]) -> None:
    parts = [MODULES[name][0]() for name in names]
    cnn = Between(nn.Sequential(*(part if isinstance(part, nn.Module) else Step(part) for part in parts))).eval()
    model = convert_model(cnn, alpha=4.0).model
    bound = certify_network(model, input_range=(-1, 1), size=SIZE).bound
    assert bound is not None
    assert observed(cnn, model, count=2) <= bound


def test_a_single_layer_has_its_own_certificate() -> None:
    model = convert_model(nn.Conv2d(3, 4, 3), alpha=3.0).model
    own = certify(model, input_range=(-1, 1)).bound  # type: ignore[arg-type]
    assert certify_network(model, input_range=(-1, 1), size=SIZE).bound == own


def test_a_shared_layer_is_listed_for_each_call() -> None:
    model = convert_model(Composite().eval()).model
    certificate = certify_network(model, input_range=(-1, 1), size=(7, 10))
    assert [layer.name for layer in certificate.layers] == ["stem", "blocks.0", "blocks.0", "named.a-b.0.0", "tied"]
    assert certificate.unbounded == ()
    first, second, *_ = certificate.layers
    assert first.inherited == 0 < second.inherited
    assert second.total >= second.own


def unbounded(something: Callable[[Tensor], Tensor]) -> NetworkCertificate:
    cnn = Between(something)
    model = convert_model(cnn, filter_fn=lambda _, name: name in ("first", "last")).model
    return certify_network(model, input_range=(-1, 1), size=SIZE)


@pytest.mark.parametrize(
    ("something", "reason"),
    [
        (nn.Softmax(1), "no bound is known for Softmax"),
        (lambda x: x.exp(), "no bound is known for exp"),
        (lambda x: x / x.abs(), "no bound is known for abs"),
        (nn.BatchNorm2d(4), "batch norm takes its statistics from the batch"),
        (nn.Dropout(), "dropout draws random numbers"),
        (nn.GELU(approximate="tanh"), "no Lipschitz constant"),
        (lambda x: F.interpolate(x, size=(9, 9), mode="bicubic"), "interpolation in mode 'bicubic'"),
    ],
)
def test_what_has_no_bound_is_listed(something: Callable[[Tensor], Tensor], reason: str) -> None:
    certificate = unbounded(something)
    assert certificate.bound is None
    assert reason in certificate.unbounded[0].reason
    assert certificate.unbounded[-1] == Problem("last", "the values of its input are not bounded")
    assert [layer.name for layer in certificate.layers] == ["first"]
    json.dumps(certificate.to_json(), allow_nan=False)


def test_what_is_not_known_may_be_nan_and_is_not_bounded_by_a_saturating_function() -> None:
    certificate = unbounded(lambda x: torch.sigmoid(x.exp()))
    assert certificate.bound is None
    assert [problem.name for problem in certificate.unbounded] == ["exp", "last"]


def test_values_that_overflow_are_nan_after_a_saturating_function() -> None:
    cnn = Between(lambda x: torch.sigmoid(1e30 * (1e30 * x) - x.mean() * 1e30 * 1e30)).eval()
    model = convert_model(cnn, alpha=5.0).model
    with torch.no_grad():
        assert model(torch.rand(1, 3, *SIZE)).isnan().any()
    assert certify_network(model, input_range=(-1, 1), size=SIZE).bound is None


def test_a_value_that_nothing_depends_on_may_be_unknown() -> None:
    certificate = unbounded(lambda x: (x.exp(), x)[1])
    assert certificate.bound is not None
    assert [problem.name for problem in certificate.unbounded] == ["exp"]


def test_a_hook_may_compute_anything() -> None:
    model = convert_model(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())).model
    model[1].register_forward_hook(lambda module, inputs, output: 100 * output)  # type: ignore[index]
    assert certify_network(model, input_range=(-1, 1), size=SIZE).unbounded[0].reason.startswith("it has hooks")


class Branching(nn.Module):
    """Decides by values what to do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 3, rows, columns] to [batch, 4, ...]."""
        y: Tensor = self.conv(x) if x.sum() > 0 else self.conv(-x)
        return y


@pytest.mark.parametrize(
    ("cnn", "size", "reason"),
    [
        (Branching(), SIZE, "it reads values of tensors, and only their shapes are followed"),
        (
            nn.Sequential(nn.Conv2d(3, 4, 3)),
            (2, 2),
            "a kernel that spans 3x3 pixels does not fit into an input of 2x2 pixels",
        ),
        (nn.ModuleDict({"a": nn.Conv2d(3, 4, 3)}), SIZE, "it does not run on them: NotImplementedError: "),
    ],
)
def test_a_network_that_cannot_be_followed_has_no_bound_and_says_why(
    cnn: nn.Module, size: tuple[int, int], reason: str
) -> None:
    certificate = certify_network(convert_model(cnn).model, input_range=(-1, 1), size=size)
    assert (certificate.bound, certificate.layers) == (None, ())
    (problem,) = certificate.unbounded
    assert problem.reason.startswith(f"the network cannot be followed on images of {size[0]}x{size[1]}: ")
    assert reason in problem.reason
    assert "traced" not in problem.reason


def test_a_network_without_attention_or_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(ConversionError, match="convert it first"):
        certify_network(nn.Sequential(nn.Conv2d(3, 4, 3)), input_range=(-1, 1))
    model = convert_model(nn.Conv2d(3, 4, 3)).model
    for wrong in ((1, 0), (0, float("inf")), ([0, 0], [1, 1])):
        with pytest.raises(ConversionError, match="input_range"):
            certify_network(model, input_range=wrong)


def test_ranges_by_channel_give_a_smaller_bound() -> None:
    model = convert_model(nn.Conv2d(3, 4, 3), alpha=2.0).model
    whole, narrow = (
        certify_network(model, input_range=ends, size=SIZE).bound for ends in ((-1, 1), ([-1, 0, 0], [1, 0, 0.5]))
    )
    assert narrow < whole  # type: ignore[operator]


def lose_the_error(a: Interval, b: Interval, arithmetic: Arithmetic, **_: int) -> Interval:
    return Interval(a.low + b.low, a.high + b.high, 0 * a.error)


def multiply_without_errors(a: Interval, b: Interval, arithmetic: Arithmetic) -> Interval:
    largest = a.largest * b.largest
    return Interval(-largest, largest, 0 * largest)


@pytest.mark.parametrize(
    ("rule", "fault", "name"),
    [("added", lose_the_error, "a residual sum"), ("multiplied", multiply_without_errors, "a product")],
)
def test_a_planted_fault_breaks_the_bound(
    rule: str, fault: Callable[..., Interval], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cnn = network(name)
    model = convert_model(cnn, alpha=1.0, filter_fn=lambda _, name: name == "first").model
    monkeypatch.setattr(moves, rule, fault)
    bound = certify_network(model, input_range=(-1, 1), size=SIZE).bound
    assert bound is not None
    assert observed(cnn, model) > bound


def test_a_bound_divided_by_a_hundred_is_broken() -> None:
    """In one soft layer without anything behind it, images of single bright pixels come near the bound."""
    cnn = nn.Conv2d(3, 4, 3)
    model = convert_model(cnn, alpha=1.0).model
    bound = certify_network(model, input_range=(-1, 1), size=SIZE).bound
    assert bound is not None
    assert bound / 100 < observed(cnn, model) <= bound


class Seen(nn.Module):
    """Two layers, and what they saw; it may fail then. A copy, which is followed without values, sees nothing."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(2, 3, 2, stride=4), nn.Conv2d(3, 1, 1)])
        convert_model(self, engine="literal", inplace=True)
        self.images: list[Tensor] = []
        self.engines: set[object] = set()
        self.error = error
        self.own = id(self)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 2, rows, columns] to [batch, 1, ...]."""
        if id(self) == self.own:
            self.images.append(x)
            self.engines |= {layer.engine for layer in self.layers}
            if self.error is not None:
                raise self.error
        for layer in self.layers:
            x = layer(x)
        return x


def test_outputs_are_those_of_one_image_drawn_from_the_range() -> None:
    model = Seen()
    certificate = certify_network(model, input_range=(2.0, 2.5))
    assert certificate.size == (224, 224)
    (image,) = model.images
    assert image.shape == (1, 2, 224, 224)
    assert 2.0 <= image.min() < 2.01
    assert 2.49 < image.max() <= 2.5
    assert model.engines == {"auto"}
    assert {layer.engine for layer in model.layers} == {"literal"}
    set_engine(model, "auto")
    assert certificate.outputs == float(model(image).detach().abs().max())
    certify_network(model, input_range=(2.0, 2.5))
    assert torch.equal(model.images[-1], image)


@pytest.mark.parametrize("error", [RuntimeError("no memory"), ConversionError("no engine")])
def test_outputs_are_not_known_where_the_network_does_not_run(error: Exception) -> None:
    model = Seen(error)
    certificate = certify_network(model, input_range=(0, 1), size=SIZE)
    assert certificate.outputs is None
    assert certificate.bound is not None
    assert {layer.engine for layer in model.layers} == {"literal"}
