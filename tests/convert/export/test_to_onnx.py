"""A converted network becomes an ONNX file without a Conv, which runs on any batch and size, within its certificate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

from conv2attn.convert import ConversionError, certify_network, convert_model
from conv2attn.convert.examples.networks import mobile_cnn, plain_cnn, residual_cnn
from conv2attn.convert.export.to_onnx import export_onnx
from conv2attn.convert.spec import ConvSpec, Padding
from conv2attn.convert.subclasses.padded import PaddedConv2d
from tests.onnx_files import operators, run
from tests.small_models import UNet

PLACES = [str(place).encode() for place in (Path(torch.__file__).parent, Path(__file__).parents[3])]


def checked(
    cnn: nn.Module, path: Path, form: str, sizes: list[tuple[int, int, int]], alpha: float | None = None
) -> None:
    """Asserts that a file without a Conv, nor a path of this machine, is within the certificate on each batch."""
    model = convert_model(cnn, alpha=alpha).model
    made = export_onnx(model, path, size=sizes[0][1:], form=form)
    graph = onnx.load(path)
    assert operators(graph.graph).isdisjoint({"Conv", "ConvTranspose"})
    assert made.layers
    assert not any(place in path.read_bytes() for place in PLACES)
    for batch, *size in sizes:
        x = torch.rand(batch, 3, *size) * 2 - 1
        (output,) = run(graph, **{graph.graph.input[0].name: x.numpy()})
        with torch.no_grad():
            if alpha is not None:
                assert torch.allclose(torch.from_numpy(output), model(x), rtol=0, atol=1e-5)
                continue
            bound = certify_network(model, input_range=(-1, 1), size=size).bound
            assert bound is not None
            assert (torch.from_numpy(output) - cnn(x)).abs().max() <= bound


class Up(nn.Module):
    """Reflected borders, a shared layer, and a transposed one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1, padding_mode="reflect")
        self.body = nn.Conv2d(4, 4, 3, padding="same", bias=False)
        self.up = nn.ConvTranspose2d(4, 2, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.up(self.body(self.body(self.stem(x)).relu()))
        return out


SIZES = [(2, 16, 12), (3, 12, 20)]
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("network", "form", "alpha", "sizes"),
    [
        pytest.param(plain_cnn, "literal", None, SIZES, marks=slow),
        pytest.param(residual_cnn, "separable", None, SIZES, marks=slow),
        pytest.param(mobile_cnn, "literal", None, SIZES, marks=slow),
        (Up, "separable", None, [(2, 8, 12), (1, 14, 10)]),
        pytest.param(Up, "literal", None, [(2, 8, 12), (1, 14, 10)], marks=slow),
        (Up, "literal", 1.5, [(1, 8, 12), (1, 10, 8)]),
        (UNet, "separable", None, [(2, 8, 12), (1, 10, 6)]),
    ],
)
def test_a_network_is_exported_within_its_certificate(
    network: Callable[[], nn.Module], form: str, alpha: float | None, sizes: Any, tmp_path: Path
) -> None:
    checked(network().eval(), tmp_path / "net.onnx", form, sizes, alpha)


@pytest.mark.parametrize(
    ("form", "padding"),
    [("separable", "same_upper"), ("literal", "same_lower"), pytest.param("separable", "same_lower", marks=slow)],
)
def test_padding_by_the_input_s_size(form: str, padding: Padding, tmp_path: Path) -> None:
    stem = PaddedConv2d(ConvSpec(3, 4, (3, 7), (2, 4), padding=padding))
    thinned = PaddedConv2d(ConvSpec(4, 4, (1, 1), (2, 3), padding=padding))
    even = PaddedConv2d(ConvSpec(4, 2, (2, 3), (1, 1), dilation=(1, 2), padding=padding, bias=False))
    cnn = nn.Sequential(stem, nn.ReLU(), thinned, even).eval()
    checked(cnn, tmp_path / "net.onnx", form, [(2, 24, 26), (1, 23, 29), (3, 22, 24)])


class Unused(nn.Module):
    """Calls a layer whose result nothing takes, and has one that nothing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Conv2d(3, 2, 3) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.second(x)
        out: torch.Tensor = self.first(x)
        return out


class Told(nn.Module):
    """A transposed convolution that is told the size of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.up(self.down(x).relu(), output_size=list(x.shape[-2:]))
        return out


def test_a_network_whose_sizes_cannot_stay_open_is_exported_for_one_size_and_any_batch(tmp_path: Path) -> None:
    checked(Told().eval(), tmp_path / "m.onnx", "separable", [(2, 9, 10), (1, 9, 10)])


class Pyramid(nn.Module):
    """Pools to 2x3 pixels, which torch's exporter knows for one size only."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 4, 3, padding=1), nn.AdaptiveAvgPool2d((2, 3))

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.pool(self.conv(x)) * scale[..., None, None]
        return out


def test_sizes_at_which_a_file_computes_something_else_are_closed_and_named(tmp_path: Path) -> None:
    model = convert_model(Pyramid().eval()).model
    made = export_onnx(model, tmp_path / "m.onnx", inputs=(torch.zeros(2, 3, 8, 12), torch.zeros(2, 4)))
    assert made.closed == ("axis 2 of x (8)", "axis 3 of x (12)")
    assert made.unchecked is None
    graph = onnx.load(tmp_path / "m.onnx")
    x, scale = torch.randn(3, 3, 8, 12), torch.randn(3, 4)
    (output,) = run(graph, x=x.numpy(), scale=scale.numpy())
    assert torch.allclose(torch.from_numpy(output), model(x, scale), rtol=0, atol=1e-5)


def test_layers_that_no_output_depends_on_are_named_and_without_onnx_runtime_a_file_says_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    made = export_onnx(convert_model(Unused()).model, tmp_path / "net.onnx", size=(8, 9))
    assert made.layers == ("first",)
    assert made.unused == ("second", "third")
    assert "ONNX Runtime" in str(made.unchecked)


class Chooses(nn.Module):
    """Gives as many numbers as an image's values say, and asks how many."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.conv(x)
        found = scores[scores > 0]
        return found if len(found) > 5 else found + 1


def with_content() -> nn.Module:
    model = convert_model(Up().eval()).model
    model.body.add_content(2)  # type: ignore[operator, union-attr]
    return model


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 2, 3)), r"no attention .*export_onnx\(convert_model\(model\)\.model, "),
        (with_content, "body: its content terms"),
        (lambda: convert_model(Chooses()).model, "as where a detector chooses among boxes"),
    ],
)
def test_a_network_that_has_no_file_is_refused_and_nothing_is_written(
    network: Callable[[], nn.Module], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConversionError, match=words):
        export_onnx(network(), tmp_path / "net.onnx", size=(8, 12))
    assert not list(tmp_path.iterdir())
