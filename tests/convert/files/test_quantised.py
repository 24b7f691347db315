"""Quantised weights, whatever holds them, are refused by name or said to be dequantised."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.convert import convert_model
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.opening import Opening
from tests.command import Run, result_of

FLOAT_STATE = "holds quantised weights, which are not read: save the float network's state dict, or dequantise it first"
FLOAT_EXPORT = "holds quantised weights, which are not read: export the float network"


pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")  # torch means to give them up


def convolutions() -> nn.Module:
    return nn.Sequential(torch.ao.nn.quantized.Conv2d(2, 3, 2), nn.ReLU())


def one_linear_layer() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), torch.ao.nn.quantized.dynamic.Linear(3, 2))


class OfIntegers(nn.Module):
    """A convolution whose kernel is stored as bytes, behind one that is stored as it is."""

    def __init__(self, kernel: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.kernel = nn.Conv2d(2, 2, 1), kernel
        self.register_buffer("stored", torch.arange(24, dtype=torch.int8).view(3, 2, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(self.conv(x), self.kernel(self.get_buffer("stored")))


class BesideIntegers(nn.Module):
    """A convolution, and bytes that are added to what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 2)
        self.register_buffer("stored", torch.arange(3, dtype=torch.uint8).view(3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x) + self.get_buffer("stored").float()
        return y


def dequantised_by_torch(stored: Tensor) -> Tensor:
    from torch.ao.quantization.fx import _decomposed  # noqa: F401  it declares the operation

    made: Any = torch.ops.quantized_decomposed.dequantize_per_tensor(stored, 0.1, 0, -128, 127, torch.int8)
    return made  # type: ignore[no-any-return]


def dequantised_by_hand(stored: Tensor) -> Tensor:
    return (stored.to(torch.float32) - 3) * 0.1


def dump(value: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(value))


def export(value: nn.Module, path: Path) -> None:
    program = torch.export.export(value, (torch.rand(1, 2, 4, 5),))
    torch.export.save(program, path.with_suffix(".pt2"))
    path.with_suffix(".pt2").rename(path)


def beside_integers(**more: Tensor) -> dict[str, Tensor]:
    return {"0.bias": torch.zeros(3), **{key.replace("_", ".", 1): value for key, value in more.items()}}


CONV = nn.Sequential(nn.Conv2d(2, 3, 1))
MODULES, EXPORT = rf"{FLOAT_STATE} \(torch\.ao\.nn\.quantized\.", rf"{FLOAT_EXPORT} \("
INT8, POINT = torch.ones(3, 2, 1, 1, dtype=torch.int8), torch.tensor(3)

# who writes what, whether the file is trusted, for which architecture it is opened, and how it is refused
QUANTISED: list[tuple[Callable[[Any, Path], object], Callable[[], object], bool, nn.Module | None, str]] = [
    (torch.save, convolutions, False, None, MODULES),
    (torch.save, lambda: {"model": convolutions(), "epoch": 3}, True, CONV, MODULES),
    (torch.save, lambda: {"model": one_linear_layer(), "epoch": 3}, False, CONV, MODULES),
    (torch.save, one_linear_layer, True, None, MODULES),
    (dump, convolutions, True, CONV, MODULES),
    (dump, lambda: {"model": one_linear_layer(), "epoch": 3}, True, None, MODULES),
    (torch.save, lambda: one_linear_layer().state_dict(), False, None, rf"{FLOAT_STATE} \(2\.zero_point\)"),
    *(
        (write, lambda: beside_integers(**{"0_weight": INT8}), False, CONV, FLOAT_STATE)
        for write in (torch.save, save_file)
    ),
    (torch.save, lambda: beside_integers(**{"0_weight": INT8 + 0.5, "0_zero_point": POINT}), False, CONV, FLOAT_STATE),
    (save_file, lambda: beside_integers(**{"0_qweight": INT8 + 0.5, "0_qzeros": POINT}), False, CONV, FLOAT_STATE),
    (export, lambda: OfIntegers(dequantised_by_torch), False, None, rf"{EXPORT}quantized_decomposed.dequantize_per"),
    (export, lambda: OfIntegers(dequantised_by_torch), True, None, rf"{EXPORT}quantized_decomposed.dequantize_per"),
    (export, lambda: OfIntegers(dequantised_by_hand), True, None, rf"{EXPORT}conv2d_1\)"),
]


@pytest.mark.parametrize(("write", "make", "trust", "architecture", "told"), QUANTISED)
def test_quantised_weights_are_refused_by_what_tells_whatever_holds_them(
    write: Callable[[Any, Path], object],
    make: Callable[[], object],
    trust: bool,
    architecture: nn.Module | None,
    told: str,
    tmp_path: Path,
) -> None:
    write(make(), tmp_path / "m")
    with pytest.raises(CheckpointError, match=told):
        open_network(tmp_path / "m", Opening(architecture, trust=trust)).cnn()


def test_float_weights_beside_bytes_or_made_ready_for_quantisation_are_read(tmp_path: Path) -> None:
    net, x = BesideIntegers(), torch.rand(1, 2, 4, 5)
    export(net, tmp_path / "m")
    opened = open_network(tmp_path / "m", Opening(trust=True)).whole().cnn()
    assert torch.equal(convert_model(opened, inplace=True).model(x), net(x))
    ready = nn.Sequential(nn.Conv2d(2, 3, 2))
    ready.add_module("add", torch.ao.nn.quantized.FloatFunctional())
    torch.save(ready, tmp_path / "m")
    opened = open_network(tmp_path / "m", Opening(nn.Sequential(nn.Conv2d(2, 3, 2)))).cnn()
    assert torch.equal(opened.get_parameter("0.weight"), ready.get_parameter("0.weight"))


def test_tensors_that_torch_quantised_are_said_to_be_dequantised(run: Run) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3))
    weight = net.get_parameter("0.weight").detach()
    with warnings.catch_warnings(action="ignore"):  # torch means to give them up
        whole = torch.quantize_per_channel(weight, torch.full((4,), 0.01), torch.arange(4), 0, torch.qint8)
    Path("net.py").write_text("from torch import nn\ndef net(): return nn.Sequential(nn.Conv2d(3, 4, 3))\n")
    command = ("convert", "w.pth", "--arch", "net.py:net", "--no-page", "--force", "--out", "out")
    torch.save(net.state_dict(), "w.pth")
    assert "equantised" not in run(*command).out
    torch.save(net.state_dict() | {"0.weight": whole}, "w.pth")
    assert "\nDequantised, (integer - zero point) * scale: 0.weight\n" in run(*command).out
    assert result_of("convert", run(*command, "--json").out)["dequantised"] == ["0.weight"]
