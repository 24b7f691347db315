"""A subclass that has a reader is converted as what its own forward computes, and comes back as itself."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import (
    ConversionError,
    ConvSpec,
    Reader,
    attention_from_conv,
    certify,
    conv_from_attention,
    convert_model,
    register_reader,
    restore_model,
    save_converted,
)
from conv2attn.convert.errors import OutputError, UnsupportedLayerError
from conv2attn.convert.subclasses import readers
from conv2attn.convert.subclasses.libraries import (
    adapted,
    perhaps_same_padded,
    same_padded,
    scaled_standardised,
    standardised,
    standardised_by_deviation,
    zero_padded,
)
from tests.convert.subclasses.standardised import convolved, normalised, padded_same
from tests.small_models import assert_same_state


class Same(nn.Conv2d):
    """Of the shape of timm's Conv2dSame."""

    def forward(self, x: Tensor) -> Tensor:
        return convolved(padded_same(x, self), self.weight, self)


class Standardised(nn.Conv2d):
    """Of the shape of timm's StdConv2dSame."""

    def __init__(self, *args: Any, same: bool = False, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.same_pad, self.eps = same, eps

    def forward(self, x: Tensor) -> Tensor:
        return convolved(padded_same(x, self) if self.same_pad else x, normalised(self, self.eps), self)


class Scaled(Standardised):
    """Of the shape of timm's ScaledStdConv2dSame: with a learned gain."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.scale = self.weight[0].numel() ** -0.5
        self.gain = nn.Parameter(torch.linspace(0.5, 2, self.out_channels).view(-1, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        weight = normalised(self, self.eps, (self.gain * self.scale).view(-1))
        return convolved(padded_same(x, self) if self.same_pad else x, weight, self)


class ByDeviation(nn.Conv2d):
    """Of the shape of mmcv's ConvWS2d."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.eps = 1e-5

    def forward(self, x: Tensor) -> Tensor:
        c = self.weight.size(0)
        flat = self.weight.view(c, -1)
        mean = flat.mean(dim=1, keepdim=True).view(c, 1, 1, 1)
        std = flat.std(dim=1, keepdim=True).view(c, 1, 1, 1)
        return convolved(x, (self.weight - mean) / (std + self.eps), self)


class Adapted(nn.Conv2d):
    """Of the shape of mmcv's ConvAWS2d: scaled and shifted by buffers."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight_gamma = nn.Buffer(torch.rand(self.out_channels, 1, 1, 1))
        self.weight_beta = nn.Buffer(torch.rand(self.out_channels, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        flat = self.weight.view(self.weight.size(0), -1)
        mean = flat.mean(dim=1).view(-1, 1, 1, 1)
        std = torch.sqrt(flat.var(dim=1) + 1e-5).view(-1, 1, 1, 1)
        return convolved(x, self.weight_gamma * ((self.weight - mean) / std) + self.weight_beta, self)


def another_epsilon(parts: Any) -> Tensor:
    """A weight that is wrong by an epsilon only."""
    return normalised(parts, 1e-6)


def without_gradient(parts: Any) -> Tensor:
    """The right weight, through which no gradient flows."""
    return standardised(parts).detach()


def one_stride(conv: Any) -> ConvSpec:
    """A geometry that forgets the stride."""
    return replace(ConvSpec.from_conv(conv), stride=(1, 1))


READERS: dict[type[nn.Conv2d], Reader] = {
    Same: Reader(same_padded),
    Standardised: Reader(perhaps_same_padded, standardised),
    Scaled: Reader(perhaps_same_padded, scaled_standardised),
    ByDeviation: Reader(zero_padded, standardised_by_deviation),
    Adapted: Reader(zero_padded, adapted),
}
CONVOLUTIONS = {
    "same": lambda: Same(2, 4, (3, 2), stride=(2, 3), groups=2),
    "same, dilated": lambda: Same(2, 4, (2, 3), stride=(3, 1), dilation=(2, 1), bias=False),
    "standardised": lambda: Standardised(2, 4, (3, 2), stride=(1, 2), padding=(2, 1)),
    "standardised, same": lambda: Standardised(4, 4, 3, stride=2, groups=2, bias=False, same=True),
    "scaled": lambda: Scaled(2, 4, (2, 3), padding=1),
    "scaled, same": lambda: Scaled(2, 6, (5, 2), stride=(3, 2), same=True),
    "by its deviation": lambda: ByDeviation(2, 4, (3, 2), stride=(1, 2), padding=(2, 1)),
    "adapted": lambda: Adapted(4, 4, 3, stride=2, groups=2, bias=False),
}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The readers of the classes above, for one test."""
    monkeypatch.setattr(readers, "_READERS", dict(READERS))


@pytest.fixture(params=list(CONVOLUTIONS.values()), ids=list(CONVOLUTIONS))
def conv(request: pytest.FixtureRequest) -> nn.Conv2d:
    made: nn.Conv2d = request.param()
    return made


def network(conv: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(conv, nn.ReLU(), nn.Conv2d(conv.out_channels, 3, 1))


def image(conv: nn.Conv2d, *size: int) -> Tensor:
    return torch.randn(2, conv.in_channels, *(size or (6, 8)))


def test_a_read_layer_computes_what_its_class_does_bit_for_bit(conv: nn.Conv2d) -> None:
    layer = attention_from_conv(conv)
    for dtype, size in ((torch.float32, (5, 7)), (torch.bfloat16, (8, 6)), (torch.float64, (13, 4))):
        layer, conv, x = layer.to(dtype), conv.to(dtype), image(conv, *size).to(dtype)
        assert layer.weight.dtype == dtype
        expected = conv(x)
        assert torch.equal(layer(x), expected)


some = pytest.mark.parametrize("conv", [CONVOLUTIONS[name] for name in ("scaled, same", "adapted")], indirect=True)


def test_a_training_step_has_the_gradients_and_the_result_of_the_class(conv: nn.Conv2d) -> None:
    model, x, found = network(conv), image(conv), []
    converted = convert_model(model).model
    for each in (model, converted):
        optimizer = torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.1)
        each(x).square().sum().backward()
        found.append({name: p.grad.clone() for name, p in each.named_parameters() if p.grad is not None})
        optimizer.step()
    assert list(found[0]) == list(found[1])
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
    assert torch.equal(model(x), converted(x))


@some
@pytest.mark.parametrize("inplace", [False, True])
def test_the_way_back_is_the_very_class_with_all_it_had(conv: nn.Conv2d, inplace: bool) -> None:
    conv.remark = ["kept"]  # type: ignore[assignment]
    model = network(conv).train()
    before, kept = copy.deepcopy(model), dict(vars(conv))
    back = restore_model(convert_model(model, inplace=inplace).model, inplace=inplace)
    layer = back.get_submodule("0")
    assert type(layer) is type(conv)
    assert_same_state(back, before)
    plain = {name: value for name, value in vars(layer).items() if not name.startswith("_")}
    assert plain == {name: value for name, value in kept.items() if not name.startswith("_")}


@some
def test_copies_are_independent(conv: nn.Conv2d) -> None:
    layer, x = attention_from_conv(conv), image(conv)
    again = attention_from_conv(conv_from_attention(layer))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), again):
        assert torch.equal(twin(x), layer(x))
        for parameter in twin.parameters():
            nn.init.normal_(parameter)
        assert not torch.equal(twin(x), layer(x))
        assert torch.equal(layer(x), conv(x))


def test_a_certificate_is_of_the_weight_that_is_computed() -> None:
    conv = Standardised(3, 4, 3, bias=False)
    nn.init.normal_(conv.weight, mean=5, std=100)
    plain = nn.Conv2d(3, 4, 3, bias=False)
    weight = attention_from_conv(conv).weight.detach()
    plain.weight = nn.Parameter(weight)
    one, other = (certify(attention_from_conv(each, alpha=2), input_range=(-1, 1)) for each in (conv, plain))
    assert one == other


@pytest.mark.parametrize(
    ("kind", "wrong", "reason"),
    [
        (Same, Reader(), "the output is"),
        (Standardised, Reader(), "the output differs by up to"),
        (Standardised, Reader(weight=another_epsilon), "the output differs by up to"),
        (Standardised, Reader(weight=without_gradient), "the gradient of weight is missing"),
        (Standardised, Reader(one_stride, standardised), "the output is"),
        (
            Standardised,
            Reader(weight=scaled_standardised),
            "could not be held against its forward: .* has no attribute .gain.",
        ),
    ],
)
def test_a_reader_that_is_wrong_is_refused_and_nothing_is_converted(
    kind: type[nn.Conv2d], wrong: Reader, reason: str
) -> None:
    register_reader(kind, wrong)
    model = network(kind(2, 4, 3, stride=2))
    nn.init.zeros_(model.get_parameter("0.weight"))  # which would hide it
    modules = list(model.modules())
    with pytest.raises(UnsupportedLayerError, match=f"0: the reader of {kind.__name__} .*{reason}"):
        convert_model(model, inplace=True)
    assert list(model.modules()) == modules


def test_a_reader_is_of_one_class_and_not_of_its_subclasses() -> None:
    class Further(Same):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    with pytest.raises(UnsupportedLayerError, match=r"Further has none"):
        attention_from_conv(Further(2, 4, 3))


@pytest.mark.parametrize("cls", [nn.Conv2d, nn.Linear, "Same"])
def test_only_subclasses_of_convolutions_are_registered(cls: Any) -> None:
    with pytest.raises(ConversionError, match="cls must be a subclass"):
        register_reader(cls, Reader())
    with pytest.raises(ConversionError, match="reader must be a Reader"):
        register_reader(Same, cls)


def test_what_an_attention_layer_cannot_keep_is_refused() -> None:
    conv = Same(2, 4, 3)
    conv.register_parameter("alpha", nn.Parameter(torch.ones(4)))
    with pytest.raises(UnsupportedLayerError, match="its alpha has the name of a part of the attention layer"):
        attention_from_conv(conv)
    holding = Same(2, 4, 3)
    holding.add_module("norm", nn.BatchNorm2d(2))
    with pytest.raises(UnsupportedLayerError, match=r"it holds modules with tensors \(norm\)"):
        attention_from_conv(holding)


def test_a_read_layer_is_not_saved_without_a_network_that_has_its_class(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="only layers of PyTorch's own convolutions can be saved without a network"):
        save_converted(attention_from_conv(Same(2, 4, 3)), tmp_path / "alone")


def test_a_class_with_the_name_of_a_known_one_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_READERS", {})
    module, name = "timm.layers.conv2d_same", "Conv2dSame"
    known = type(name, (Same,), {"__module__": module})
    impostor = type(name, (nn.Conv2d,), {"__module__": module})
    x = torch.randn(1, 2, 8, 7)
    conv: Any = known(2, 4, 3, stride=2)
    assert torch.equal(attention_from_conv(conv)(x), conv(x))
    with pytest.raises(UnsupportedLayerError, match="the reader of Conv2dSame disagrees with its forward"):
        attention_from_conv(impostor(2, 4, 3, stride=2))


@pytest.mark.parametrize("conv", [CONVOLUTIONS["scaled, same"]], indirect=True)
def test_a_read_layer_is_exported_and_traced(conv: nn.Conv2d) -> None:
    model, x = convert_model(network(conv).eval()).model, image(conv)
    exported = torch.export.export(model, (x,)).module()
    assert torch.equal(exported(x), model(x))
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x))
