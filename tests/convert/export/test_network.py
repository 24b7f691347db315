"""A converted network becomes an ONNX file without a Conv, which runs on any batch and size, within its certificate."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from conv2attn.convert import ConversionError, certify_network, convert_model
from conv2attn.convert.examples.networks import mobile_cnn, plain_cnn, residual_cnn
from conv2attn.convert.export.network import export_onnx
from conv2attn.convert.export.onnx.forms import FORMS
from conv2attn.convert.padded import PaddedConv2d
from conv2attn.convert.spec import ConvSpec, Padding
from tests.onnx_files import operators, run


def checked(cnn: nn.Module, path: Path, form: str, sizes: list[tuple[int, int, int]]) -> None:
    model = convert_model(cnn).model
    made = export_onnx(model, path, size=sizes[0][1:], form=form)
    graph = onnx.load(path)
    assert operators(graph.graph).isdisjoint({"Conv", "ConvTranspose"})
    assert made.layers
    for batch, *size in sizes:
        x = torch.rand(batch, 3, *size) * 2 - 1
        (output,) = run(graph, **{graph.graph.input[0].name: x.numpy()})
        bound = certify_network(model, input_range=(-1, 1), size=size).bound
        with torch.no_grad():
            assert bound is not None
            assert (torch.from_numpy(output) - cnn(x)).abs().max() <= bound


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("factory", [plain_cnn, residual_cnn, mobile_cnn])
def test_an_example_network_within_its_certificate(factory: type[nn.Module], form: str, tmp_path: Path) -> None:
    checked(factory().eval(), tmp_path / "net.onnx", form, [(2, 16, 16), (3, 12, 20)])


class Up(nn.Module):
    """Reflected borders, a shared layer, and a transposed one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1, padding_mode="reflect")
        self.body = nn.Conv2d(4, 4, 3, padding="same", bias=False)
        self.up = nn.ConvTranspose2d(4, 2, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 3, rows, columns] -> [batch, 2, rows, columns]."""
        out: torch.Tensor = self.up(self.body(self.body(self.stem(x)).relu()))
        return out


@pytest.mark.parametrize("form", FORMS)
def test_borders_shared_layers_and_transposed_ones(form: str, tmp_path: Path) -> None:
    checked(Up().eval(), tmp_path / "net.onnx", form, [(2, 8, 12), (1, 14, 10)])


class UNet(nn.Module):
    """Down and up again, with what was on the way down beside what comes up."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.middle = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(6, 4, 2, 2)
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 3, rows, columns] -> [batch, 2, rows, columns]."""
        kept = self.down(x)
        up = self.up(self.middle(nn.functional.max_pool2d(kept, 2)))
        out: torch.Tensor = self.last(torch.cat([up, kept], dim=1))
        return out


@pytest.mark.parametrize("form", FORMS)
def test_a_u_net_within_its_certificate(form: str, tmp_path: Path) -> None:
    checked(UNet().eval(), tmp_path / "net.onnx", form, [(2, 8, 12), (1, 10, 6)])


@pytest.mark.parametrize("padding", ["same_upper", "same_lower"])
@pytest.mark.parametrize("form", FORMS)
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
        """[batch, 3, rows, columns] -> [batch, 2, rows - 2, columns - 2]."""
        self.second(x)
        out: torch.Tensor = self.first(x)
        return out


def test_layers_that_no_output_depends_on_are_left_out_and_named(tmp_path: Path) -> None:
    made = export_onnx(convert_model(Unused()).model, tmp_path / "net.onnx", size=(8, 9))
    assert made.layers == ("first",)
    assert made.unused == ("second", "third")


def test_soft_attention_keeps_its_alpha(tmp_path: Path) -> None:
    model = convert_model(Up().eval(), alpha=1.5).model
    export_onnx(model, tmp_path / "net.onnx", size=(8, 12), form="literal")
    x = torch.randn(1, 3, 10, 8)
    graph = onnx.load(tmp_path / "net.onnx")
    (output,) = run(graph, **{graph.graph.input[0].name: x.numpy()})
    assert torch.allclose(torch.from_numpy(output), model(x), rtol=0, atol=1e-5)


def test_a_layer_that_has_no_form_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    model = convert_model(Up().eval()).model
    model.body.add_content(2)  # type: ignore[operator, union-attr]
    with pytest.raises(ConversionError, match="body: its content terms"):
        export_onnx(model, tmp_path / "net.onnx", size=(8, 12))
    assert not list(tmp_path.iterdir())
