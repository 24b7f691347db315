"""Networks beside ONNX files: what differs inside is named by operation."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from torch import Tensor, nn
from torch.export import ExportedProgram

from conv2attn.convert.errors import InputError
from conv2attn.convert.sameness import onnx_values
from conv2attn.convert.sameness.onnx_values import OnnxOperations
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.verdict import INNER, THRESHOLD
from tests.convert.sameness.planted import FAULTS, SIZES, Fault, Hiding, attending, dense, mobile
from tests.onnx_files import network, port, tensor

FEW = ("eps of layer norms", "lost bias", "swapped branches", "channel order")


def exported(model: nn.Module | ExportedProgram, image: Tensor, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch.onnx.export(model, (image,), path, dynamo=True, verbose=False)
    return path


@pytest.mark.fault
@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=() if fault.kind in FEW else pytest.mark.slow, id=fault.name) for fault in FAULTS],
)
def test_a_planted_fault_in_an_exported_file_is_named(fault: Fault, tmp_path: Path) -> None:
    model, faulty, image = fault.pair()
    found = same(model, exported(faulty, image, tmp_path / "faulty.onnx"), image)
    assert found.verdict == "not rounding"
    place = found.where[0]
    assert fault.place in (place.name, place.kind.split("`")[-2] if "`" in place.kind else place.name)
    assert (fault.says if fault.in_file is None else fault.in_file) in place.why
    assert found.only_outputs is None


@pytest.mark.slow
@pytest.mark.parametrize("build", [mobile, attending, dense], ids=lambda build: build.__name__)
def test_an_exported_network_is_rounding(build: Any, tmp_path: Path) -> None:
    image = torch.randn(2, *SIZES[build])
    assert same(build(), exported(build(), image, tmp_path / "a.onnx"), image).verdict == "rounding"


@pytest.mark.fault
def test_a_fault_that_rounding_covers_further_on_is_found_at_its_operation_in_a_file(tmp_path: Path) -> None:
    model, faulty, image = Hiding().eval(), Hiding().eval(), torch.randn(2, 3, 9, 11)
    assert same(model, exported(model, image, tmp_path / "a.onnx"), image).verdict == "rounding"
    with torch.no_grad():
        faulty.last.weight[3] *= 1 + 1e-4
    found = same(model, exported(faulty, image, tmp_path / "b.onnx"), image)
    assert (found.verdict, [place.name for place in found.where]) == ("not rounding", ["last"])
    assert found.ratio < THRESHOLD
    assert "8 of 64 elements of weight differ" in found.sentence


class Plain(nn.Module):
    """A convolution, a norm and an activation, which a file by hand has, too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = nn.functional.leaky_relu(self.norm(self.conv(x)), 0.1)
        return found


def by_hand(model: Plain, path: Path, *, slope: float = 0.1, eps: float = 1e-5) -> Path:
    """The same network in a file that no exporter wrote, whose nodes name no modules."""
    state = {name: tensor(name, value) for name, value in model.state_dict().items() if value.ndim}
    norm = [f"norm.{name}" for name in ("weight", "bias", "running_mean", "running_var")]
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", *norm], ["b"], epsilon=eps),
        helper.make_node("LeakyRelu", ["b"], ["y"], alpha=slope),
    ]
    ports = [port("x", ["n", 3, "h", "w"])], [port("y", None)]
    onnx.save(network(nodes, list(state.values()), inputs=ports[0], outputs=ports[1]), path)
    return path


@pytest.mark.fault
@pytest.mark.parametrize(
    ("change", "says"),
    [({"slope": 0.11}, ("negative_slope", "0.1", "0.11")), ({"eps": 1e-3}, ("eps", "1e-05", "0.001"))],
    ids=["slope", "eps"],
)
def test_an_operation_of_a_file_that_names_no_modules_is_named(
    change: dict[str, float], says: tuple[str, str, str], tmp_path: Path
) -> None:
    model, image = Plain().eval(), torch.randn(2, 3, 7, 9)
    assert same(model, by_hand(model, tmp_path / "a.onnx"), image).exit_code == 0
    (place,) = same(model, by_hand(model, tmp_path / "b.onnx", **change), image).where
    name, own, other = says
    assert place.why == f"{name} {own} in A, {other} in B"
    (place,) = same(by_hand(model, tmp_path / "b.onnx", **change), model, image).where
    assert place.why == f"{name} {other} in A, {own} in B"


@pytest.mark.fault
def test_one_weight_of_a_file_is_counted(tmp_path: Path) -> None:
    model, image = Plain().eval(), torch.randn(2, 3, 7, 9)
    other = copy.deepcopy(model)
    other.conv.weight.data[1, 2, 0, 1] += 0.01
    (place,) = same(model, by_hand(other, tmp_path / "b.onnx"), image).where
    assert (place.name, place.why) == ("conv", "1 of 108 elements of weight differ, by 0.01 at most")


class Gated(nn.Module):
    """Adds a sigmoid of numbers near -16, where ONNX Runtime's has hardly a digit."""

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.sigmoid(x - 16) + x
        return found


def gated(path: Path) -> Path:
    nodes = [
        helper.make_node("Sub", ["x", "low"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["y"]),
    ]
    ports = [port("x", ["n", 40])], [port("y", None)]
    onnx.save(network(nodes, [tensor("low", torch.tensor(16.0))], inputs=ports[0], outputs=ports[1]), path)
    return path


def test_a_library_s_inexact_operation_that_the_outputs_do_not_show_is_a_note(tmp_path: Path) -> None:
    found = same(Gated().eval(), gated(tmp_path / "a.onnx"), torch.randn(3, 40))
    assert (found.verdict, found.exit_code, found.where) == ("rounding", 0, ())
    assert found.inner is not None
    assert found.inner > INNER
    (note,) = found.notes
    assert note.startswith("`sigmoid` (sigmoid): the operation is the same, and its result is not (B: Sigmoid); on the")
    assert "which the outputs do not show" in " ".join(str(found).split())


@pytest.mark.parametrize("limit", [0.3, 0.25])
def test_a_limit_that_float32_does_not_hold_is_rounded(limit: float, tmp_path: Path) -> None:
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["y"])]
    held = [tensor("low", torch.tensor(-limit)), tensor("high", torch.tensor(limit))]
    ports = [port("x", ["n", 40])], [port("y", None)]
    onnx.save(network(nodes, held, inputs=ports[0], outputs=ports[1]), tmp_path / "a.onnx")
    for other in (tmp_path / "a.onnx", nn.Hardtanh(-limit, limit).eval().double()):
        assert same(nn.Hardtanh(-limit, limit).eval(), other, 9 * torch.randn(3, 40)).exit_code == 0


def test_inner_values_are_those_of_the_operations(tmp_path: Path) -> None:
    model, image = Plain().eval(), torch.randn(2, 3, 7, 9)
    found = OnnxOperations(by_hand(model, tmp_path / "a.onnx"), {"x": image})
    values = [found.values[node] for node in found.nodes]
    with torch.no_grad():
        torch.testing.assert_close(values[0], model.conv(image))
        torch.testing.assert_close(values[2], model(image))
    assert [found.kind(node) for node in found.nodes] == ["convolution", "batch norm", "leaky relu"]


def test_a_file_too_large_for_one_message_is_compared_by_its_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, image = Plain().eval(), torch.randn(2, 3, 7, 9)
    monkeypatch.setattr(onnx_values, "_MOST", 10)
    found = same(model, by_hand(model, tmp_path / "a.onnx", slope=0.11), image)
    assert (
        "Only outputs could be compared: B is an ONNX file, which ONNX Runtime runs; its inner values are not read"
        in (found.sentence)
    )


def test_an_onnx_file_names_the_inputs_that_it_takes(tmp_path: Path) -> None:
    model, image = Plain().eval(), torch.randn(2, 3, 7, 9)
    path = by_hand(model, tmp_path / "a.onnx")
    with pytest.raises(InputError, match=r"takes 1 inputs \(x\); got 2"):
        same(lambda *given: model(given[0]), path, [image, image])


class Calibrating(CalibrationDataReader):  # type: ignore[misc]
    """Random images for the calibration of a quantised file."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self._batches = iter([{"x": torch.randn(4, 3, 7, 9, generator=generator).numpy()} for _ in range(8)])

    def get_next(self) -> Any:
        """The next batch, or None."""
        return next(self._batches, None)


def quantised(path: Path) -> Path:
    """The file with weights of seven bits and activations of eight, between QuantizeLinear and DequantizeLinear.

    With eight bits, processors without VNNI saturate sums of two products at 16 bits, which no step explains.
    """
    out = path.with_name("int8.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_static(
            path, out, Calibrating(), quant_format=QuantFormat.QDQ, weight_type=QuantType.QInt8, reduce_range=True
        )
    return out


def test_steps_explain_a_quantised_file_and_not_a_fault_in_it(tmp_path: Path) -> None:
    model, image = Plain().eval(), torch.randn(4, 3, 7, 9)
    found = same(model, quantised(by_hand(model, tmp_path / "a.onnx")), image)
    assert (found.verdict, found.exit_code) == ("quantised", 1)
    assert found.steps is not None
    assert 0.1 < found.steps < THRESHOLD < found.ratio
    assert "B computes with 8-bit integers, whose steps explain the difference" in found.sentence
    faulty = copy.deepcopy(model)
    faulty.norm.bias.data += 0.5
    found = same(model, quantised(by_hand(faulty, tmp_path / "b.onnx")), image)
    assert found.verdict == "quantised"
    assert "whose steps do not explain the difference" in found.sentence


class Residual(nn.Module):
    """A stem and two branches, whose last normalisations give 0, as many networks begin."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), last)
            for last in (nn.BatchNorm2d(8), nn.BatchNorm2d(8))
        )
        for branch in self.branches:
            nn.init.zeros_(branch.get_parameter("4.weight"))
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.norm(self.stem(x)))
        for branch in self.branches:
            x = self.relu(x + branch(x))
        found: Tensor = self.head(x.mean((2, 3)))
        return found


@pytest.mark.fault
def test_branches_that_give_0_neither_hide_a_fault_before_them_nor_are_blamed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Residual().eval(), torch.randn(2, 3, 12, 12)
    other = copy.deepcopy(model)
    other.norm.eps = 1e-3
    found = same(model, exported(other, x, tmp_path / "other.onnx"), x)
    assert found.verdict == "not rounding"
    assert [place.name for place in found.where] == ["stem"]
    assert same(model, exported(model, x, tmp_path / "own.onnx"), x).verdict == "rounding"
