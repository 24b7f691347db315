"""A public function gives the same under a process's own defaults: of device, dtype, gradients and determinism."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import conv2attn as c2a
from conv2attn.convert import ConvSpec, certify_data, certify_report, measure_input
from conv2attn.convert.export.multihead import attention_from_multihead, multihead_from_attention
from conv2attn.convert.layer.layer import SelfAttention

ENGINES = "literal", "factored", "separable"
RANGE = (-1.0, 2.0)
SIZE = (9, 8)


@contextmanager
def defaults_of(device: str, dtype: torch.dtype, *, deterministic: bool, gradients: bool) -> Iterator[None]:
    """Sets the process's own defaults, and puts them back."""
    before = torch.get_default_dtype()
    torch.set_default_device(device)
    torch.set_default_dtype(dtype)
    torch.use_deterministic_algorithms(deterministic)
    torch.set_grad_enabled(gradients)
    try:
        yield
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(before)
        torch.use_deterministic_algorithms(False)
        torch.set_grad_enabled(True)


# Several at a time: what one of them changes, it changes beside the others, too.
DEFAULTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "meta, bfloat16, deterministic": lambda: defaults_of("meta", torch.bfloat16, deterministic=True, gradients=True),
    "cpu, float64, no gradients": lambda: defaults_of("cpu", torch.float64, deterministic=False, gradients=False),
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
}


@dataclass
class Given:
    """What a function is given, made before the defaults are set."""

    out: Path  # an empty folder
    cnn: nn.Sequential
    images: Tensor
    exact: Any
    soft: Any
    layer: SelfAttention  # soft, without a network
    grafted: nn.Module  # whose spare heads are no longer at 0
    melted: nn.Module

    @classmethod
    def at(cls, out: Path) -> Given:
        torch.manual_seed(3)
        norm = nn.BatchNorm2d(4)
        norm.running_mean = torch.tensor([0.1, -0.2, 0.3, 0.0])
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3))
        cnn = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), norm, nn.ReLU(), nn.Conv2d(4, 2, (3, 2), stride=2), *head
        ).eval()
        images = torch.randn(2, 3, *SIZE)
        grafted = c2a.graft(cnn, example=images, where="0").model
        nn.init.normal_(grafted.get_parameter("0.spare_out"))
        layer = c2a.attention_from_conv(nn.Conv2d(3, 4, 3, padding=1), alpha=3.0).eval()
        exact, soft = c2a.convert_model(cnn).model, c2a.convert_model(cnn, alpha=9.0).model
        return cls(out, cnn, images, exact, soft, layer, grafted, c2a.melt(cnn, alpha=4.0))

    @property
    def conv(self) -> nn.Conv2d:
        first = self.cnn[0]
        assert isinstance(first, nn.Conv2d)
        return first


def engines(given: Given) -> list[Tensor]:
    """A soft and an exact layer in each engine."""
    outputs = []
    for layer, name in itertools.product((given.layer, given.exact.get_submodule("0")), ENGINES):
        layer.engine = name
        outputs.append(layer(given.images).detach())
    return outputs


def set_engine(given: Given) -> Tensor:
    c2a.set_engine(given.exact, "sdpa")
    outputs: Tensor = given.exact(given.images)
    return outputs.detach()


def saved_and_loaded(given: Given) -> nn.Module:
    c2a.save_converted(given.soft, given.out / "folder")
    return c2a.load_converted(given.out / "folder", architecture=given.cnn)


def there_and_back(given: Given) -> nn.Module:
    return attention_from_multihead(multihead_from_attention(c2a.attention_from_conv(given.conv), size=(5, 6)))


def drawn(name: str, of: Callable[[Given], nn.Module]) -> Callable[[Given], bytes]:
    def draw(given: Given) -> bytes:
        c2a.draw(of(given), given.out / name, given.images[:1])
        return (given.out / name).read_bytes()

    return draw


def exported(given: Given) -> bytes:
    c2a.export_onnx(given.exact, given.out / "network.onnx", size=SIZE)
    return (given.out / "network.onnx").read_bytes()


def new_layer(given: Given) -> list[Any]:
    """The parameters of a layer that is drawn: of the device and dtype that torch's own layers have by default."""
    layer, conv = c2a.SelfAttention(ConvSpec.from_conv(given.conv)), nn.Conv2d(3, 4, 3)
    return [
        (p.shape, p.dtype == own.dtype, p.device == own.device)
        for p, own in zip(layer.parameters(), conv.parameters(), strict=True)
    ]


FUNCTIONS: dict[str, Callable[[Given], Any]] = {
    "SelfAttention": new_layer,
    "SelfAttention.forward": engines,
    "SelfAttention.attention_probabilities": lambda g: g.layer.attention_probabilities((9, 8), queries=[(1, 2)]),
    "alpha_for": lambda g: c2a.alpha_for(0.01, g.layer, RANGE),
    "assert_same": lambda g: c2a.assert_same(g.cnn, g.exact, g.images),
    "attention_from_conv": lambda g: c2a.attention_from_conv(g.conv, alpha=2.0),
    "certify": lambda g: [c2a.certify(layer, input_range=RANGE) for layer in (g.layer, g.exact.get_submodule("3"))],
    "certify_data": lambda g: certify_data(g.layer, [g.images]),
    "certify_images": lambda g: c2a.certify_images(g.exact, g.images[:1], seed=0),
    "certify_network": lambda g: c2a.certify_network(g.soft, input_range=RANGE, size=SIZE),
    "certify_report": lambda g: [
        certify_report(*c2a.convert_model(g.cnn, alpha=alpha), size=SIZE) for alpha in (None, 9.0)
    ],
    "compare_layers": lambda g: c2a.compare_layers(g.cnn, g.soft, [g.images]),
    "conv_from_attention": lambda g: c2a.conv_from_attention(g.exact.get_submodule("0")),
    "convert_model": lambda g: c2a.convert_model(g.cnn, example=g.images).model,
    "draw a page": drawn("page.html", lambda g: g.soft),
    "draw a picture": drawn("maps.png", lambda g: g.layer),
    "export_onnx": exported,
    "freeze": lambda g: c2a.freeze(g.melted, 0.5).model,
    "graft": lambda g: c2a.graft(g.cnn, example=g.images, where="3", positions=True).model,
    "graft beside": lambda g: c2a.graft(g.cnn, example=g.images, where="3", beside=True).model,
    "load_converted": saved_and_loaded,
    "measure_input": lambda g: measure_input(g.layer, [g.images]),
    "melt": lambda g: c2a.melt(g.cnn, tolerance=0.3),
    "multihead_from_attention": there_and_back,
    "parameter_groups": lambda g: [len(group["params"]) for group in c2a.parameter_groups(g.melted, 0.1, 0.1)],
    "restore_model": lambda g: [c2a.restore_model(model, tolerance=inf) for model in (g.exact, g.soft)],
    "same": lambda g: c2a.same(g.cnn[:1], g.soft[:1], g.images[:1, :, :4, :5]),
    "set_engine": set_engine,
    "ungraft": lambda g: c2a.ungraft(g.grafted, all=True).model,
}


def plain(found: Any, images: Tensor) -> Any:
    """A result as what can be compared: of a network its outputs, gradients and state."""
    if isinstance(found, nn.Module):
        outputs = found(images[:, : next(found.parameters()).shape[1]])
        outputs.sum().backward()
        gradients = [each.grad for each in found.parameters()]
        return plain([outputs, gradients, *found.state_dict().values()], images)
    if isinstance(found, Tensor):
        return found.device.type, found.dtype, found.tolist()
    if isinstance(found, list | tuple):
        return [plain(each, images) for each in found]
    return found if isinstance(found, bytes) else repr(found)


def result(function: str, defaults: Callable[[], AbstractContextManager[object]]) -> Any:
    with TemporaryDirectory() as folder:
        given = Given.at(Path(folder))
        with defaults():
            found = FUNCTIONS[function](given)
        return plain(found, given.images)


expected = cache(lambda function: result(function, nullcontext))


SLOW = "export_onnx", "draw a picture"  # torch's exporter and matplotlib take a second or more
ROWS = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in FUNCTIONS]


@pytest.mark.parametrize("function", ROWS)
@pytest.mark.parametrize("defaults", DEFAULTS)
def test_a_public_function_gives_the_same_under_other_defaults(function: str, defaults: str) -> None:
    assert result(function, DEFAULTS[defaults]) == expected(function)
