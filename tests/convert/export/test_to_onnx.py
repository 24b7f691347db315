"""A converted network becomes an ONNX file without a Conv, which runs on any batch and size, within its certificate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from conv2attn.convert import ConversionError, certify_network, convert_model
from conv2attn.convert.examples.networks import mobile_cnn, plain_cnn, residual_cnn
from conv2attn.convert.export.to_onnx import export_onnx
from conv2attn.convert.onnx.write import FORMS
from conv2attn.convert.spec import ConvSpec, Padding
from conv2attn.convert.subclasses.padded import PaddedConv2d
from tests.onnx_files import operators, run
from tests.small_models import UNet


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


NETWORKS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, int, int]]]] = {
    "plain": (plain_cnn, [(2, 16, 12), (3, 12, 20)]),
    "residual": (residual_cnn, [(2, 16, 12), (3, 12, 20)]),
    "mobile": (mobile_cnn, [(2, 16, 12), (3, 12, 20)]),
    "transposed": (Up, [(2, 8, 12), (1, 14, 10)]),
    "U-Net": (UNet, [(2, 8, 12), (1, 10, 6)]),
}


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *(("plain", "literal"), ("residual", "separable"), ("mobile", "literal")),
        *(("transposed", form) for form in FORMS),
        ("U-Net", "separable"),
    ],
)
def test_a_network_is_exported_within_its_certificate(name: str, form: str, tmp_path: Path) -> None:
    factory, sizes = NETWORKS[name]
    checked(factory().eval(), tmp_path / "net.onnx", form, sizes)


def test_a_file_holds_no_path_of_the_machine_that_wrote_it(tmp_path: Path) -> None:
    model = convert_model(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()).model
    export_onnx(model, tmp_path / "net.onnx", size=(9, 9))
    written = (tmp_path / "net.onnx").read_bytes()
    assert [
        place for place in (Path(torch.__file__).parent, Path(__file__).parents[3]) if str(place).encode() in written
    ] == []


@pytest.mark.parametrize(
    ("form", "padding"), [("separable", "same_upper"), ("literal", "same_lower"), ("separable", "same_lower")]
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


def test_a_network_without_attention_is_refused_with_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(
        ConversionError, match=r"^the model has no attention .*export_onnx\(convert_model\(model\).model, "
    ):
        export_onnx(nn.Sequential(nn.Conv2d(3, 2, 3)), tmp_path / "net.onnx", size=(8, 12))
    assert not list(tmp_path.iterdir())


def test_a_layer_that_has_no_form_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    model = convert_model(Up().eval()).model
    model.body.add_content(2)  # type: ignore[operator, union-attr]
    with pytest.raises(ConversionError, match="body: its content terms"):
        export_onnx(model, tmp_path / "net.onnx", size=(8, 12))
    assert not list(tmp_path.iterdir())


class Chooses(nn.Module):
    """Gives as many numbers as an image's values say, and asks how many."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, 3, rows, columns] -> [chosen]."""
        scores: torch.Tensor = self.conv(x)
        found = scores[scores > 0]
        return found if len(found) > 5 else found + 1


def test_a_network_whose_sizes_depend_on_values_is_refused_with_what_can_be_done(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="as where a detector chooses among boxes; what comes before"):
        export_onnx(convert_model(Chooses()).model, tmp_path / "net.onnx", size=(8, 9))


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
        """[batch, 3, rows, columns] and [batch, 4] -> [batch, 4, 2, 3]."""
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


def test_without_onnx_runtime_the_file_is_written_and_it_says_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    model = convert_model(nn.Sequential(nn.Conv2d(3, 4, 3)).eval()).model
    made = export_onnx(model, tmp_path / "m.onnx", size=(8, 12))
    assert "ONNX Runtime" in str(made.unchecked)
