"""Quantised weights of PyTorch's files are what PyTorch makes of them, bit for bit, or are refused by name."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import convert_model
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import Checkpoint, read_checkpoint
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.readers.common.quantised import DEQUANTISED, ROUNDING
from tests.hostile.files import EMPTY_ORDERED_DICT, state, tensor, value, write_torch, write_zip

SHAPE = (4, 3, 2, 5)
DTYPES = (torch.qint8, torch.quint8, torch.qint32)


def quantised(dtype: torch.dtype, axis: int | None) -> Tensor:
    """Random numbers, rounded to integers of one scale and zero point, or of one for each slice of an axis."""
    numbers = torch.randn(SHAPE)
    low = 0 if dtype == torch.qint32 else 3
    with warnings.catch_warnings(action="ignore"):  # these tensors are deprecated; their files are still around
        return _quantised(numbers, low, dtype, axis)


def _quantised(numbers: Tensor, low: int, dtype: torch.dtype, axis: int | None) -> Tensor:
    if axis is None:
        return torch.quantize_per_tensor(numbers, 0.0173, low, dtype)
    count = SHAPE[axis]
    scales, points = (
        torch.rand(count, dtype=torch.float64) / 50 + 1e-3,
        torch.arange(count) if low else torch.zeros(count),
    )
    return torch.quantize_per_channel(numbers, scales, points.long(), axis, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [None, 0, 1, 3])
@pytest.mark.parametrize("legacy", [False, True])
def test_a_quantised_tensor_is_what_torch_makes_of_it(
    dtype: torch.dtype, axis: int | None, legacy: bool, tmp_path: Path
) -> None:
    weight = quantised(dtype, axis)
    torch.save(
        {"w": weight, "turned": weight.permute(1, 0, 2, 3)} if axis is None else {"w": weight},
        tmp_path / "w",
        _use_new_zipfile_serialization=not legacy,
    )
    found = read_checkpoint(tmp_path / "w").state_dict
    assert torch.equal(found["w"], weight.dequantize())
    assert found["w"].unique().numel() > 10
    assert axis is not None or torch.equal(found["turned"], weight.dequantize().permute(1, 0, 2, 3))


def quantised_conv(kind: type[nn.Module], **options: object) -> nn.Module:
    with warnings.catch_warnings(action="ignore"):  # torch.ao is deprecated; its files are still around
        conv: nn.Module = kind(3, 4, (2, 5), **options)
    conv.set_weight_bias(quantised(torch.qint8, 0), torch.randn(4) if options.get("bias", True) else None)  # type: ignore[operator]
    return conv


@pytest.mark.parametrize(
    "options", [{}, {"bias": False, "stride": (2, 1)}, {"padding": (1, 2), "padding_mode": "reflect"}]
)
def test_a_pickled_quantised_convolution_is_that_of_what_its_integers_stand_for(
    options: dict[str, object], tmp_path: Path
) -> None:
    conv = quantised_conv(torch.ao.nn.quantized.Conv2d, **options)
    with warnings.catch_warnings(action="ignore"):
        torch.save(nn.Sequential(conv), tmp_path / "w")
    network = open_network(tmp_path / "w")
    assert network.notes == {"0": f"{DEQUANTISED}; {ROUNDING}"}
    found = network.model.get_submodule("0")
    assert isinstance(found, nn.Conv2d)
    weight, bias = conv.weight(), conv.bias()  # type: ignore[operator]
    plain = nn.Conv2d(3, 4, (2, 5), **options)  # type: ignore[arg-type]
    plain.weight.data = weight.dequantize().contiguous()  # its bytes lie as those of channels last
    if bias is not None:
        assert plain.bias is not None
        plain.bias.data = bias
    x = torch.rand(2, 3, 7, 8)
    assert repr(found) == repr(plain)
    assert torch.equal(found(x), plain(x))
    assert torch.equal(convert_model(network.model).model.get_submodule("0")(x), plain(x))


def test_a_quantised_convolution_that_computes_more_is_refused_by_name(tmp_path: Path) -> None:
    conv = quantised_conv(torch.ao.nn.intrinsic.quantized.ConvReLU2d)
    with warnings.catch_warnings(action="ignore"):
        torch.save(nn.Sequential(conv, nn.Conv2d(1, 1, 1)), tmp_path / "w")
    found = read_checkpoint(tmp_path / "w").convolutions
    assert found["0"].spec is None
    assert "ConvReLU2d" in str(found["0"].problem)
    assert found["1"].spec is not None


# Exported programs


class Dequantising(nn.Module):
    """Convolutions by weights that torch.ao's operators make of integers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("q", torch.randint(-128, 128, (4, 3, 2, 3), dtype=torch.int8))
        self.register_buffer("s", torch.rand(4) / 50)
        self.register_buffer("z", torch.arange(4))
        self.register_buffer("p", torch.randint(0, 256, (2, 4, 1, 1), dtype=torch.uint8))

    def weights(self) -> tuple[Tensor, Tensor]:
        """One of each kind."""
        operators = torch.ops.quantized_decomposed
        slices: Tensor = operators.dequantize_per_channel(self.q, self.s, self.z, 0, -128, 127, torch.int8)
        return slices, operators.dequantize_per_tensor(self.p, 0.03, 7, 0, 255, torch.uint8)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 3, rows, columns] to [batch, 2, ...]."""
        first, second = self.weights()
        return nn.functional.conv2d(nn.functional.conv2d(x, first, stride=(2, 1)), second)


def exported(path: Path, model: nn.Module) -> Checkpoint:
    with warnings.catch_warnings(action="ignore"):
        torch.export.save(torch.export.export(model, (torch.rand(1, 3, 8, 9),)), path)
    return read_checkpoint(path)


def test_an_exported_program_s_dequantised_weights_are_what_its_operators_make(tmp_path: Path) -> None:
    with warnings.catch_warnings(action="ignore"):
        import torch.ao.quantization.fx._decomposed
    model = Dequantising()
    found = exported(tmp_path / "m.pt2", model)
    for (name, stored), weight in zip(found.convolutions.items(), model.weights(), strict=True):
        assert stored.spec is not None, (name, stored.problem)
        assert torch.equal(found.state_dict[stored.weight], weight)
        assert stored.note == DEQUANTISED


# What no file of PyTorch's says


def qtensor(storage: bytes, quantiser: bytes, shape: object = (2, 3), stride: object = (3, 1)) -> bytes:
    """The opcodes that push a quantised tensor."""
    arguments = value(0) + value(shape) + value(stride) + quantiser + value(False) + EMPTY_ORDERED_DICT
    return b"ctorch._utils\n_rebuild_qtensor\n(" + storage + arguments + b"tR"


def storage(kind: str) -> bytes:
    return b"(" + value("storage") + f"ctorch\n{kind}\n".encode() + value("0") + value("cpu") + value(24) + b"tQ"


def quantiser(kind: str, *parts: bytes) -> bytes:
    return b"(ctorch\n" + kind.encode() + b"\n" + b"".join(parts) + b"t"


ONE = quantiser("per_tensor_affine", value(0.5), value(3))
LISTED = tensor(shape=(2,), stride=(1,), storage="DoubleStorage", count=12, key="1")
POINTS = tensor(shape=(2,), stride=(1,), storage="LongStorage", count=12, key="2")
WRONG: dict[str, tuple[bytes, str]] = {
    "integers that are floats": (qtensor(storage("FloatStorage"), ONE), "its storage is not of integers"),
    "no storage": (qtensor(b"N", ONE), "its storage is not of integers"),
    "a plain tensor of integers of quantised ones": (tensor(storage="QInt8Storage"), "without its scale"),
    "a scale that is a text": (
        qtensor(storage("QInt8Storage"), quantiser("per_tensor_affine", value("a"), value(3))),
        "its scale is not one number",
    ),
    "a zero point of 2^40": (
        qtensor(storage("QInt8Storage"), quantiser("per_tensor_affine", value(0.5), value(2**40))),
        "its scale is not one number",
    ),
    "a scheme that nobody knows": (
        qtensor(storage("QInt8Storage"), quantiser("per_channel_affine_float_qparams", LISTED, POINTS, value(0))),
        "its scale is not one number",
    ),
    "scales in single precision": (
        qtensor(
            storage("QInt8Storage"),
            quantiser("per_channel_affine", tensor(shape=(2,), stride=(1,), key="1"), POINTS, value(0)),
        ),
        "its scale is not one number",
    ),
    "another number of scales than of slices": (
        qtensor(storage("QInt8Storage"), quantiser("per_channel_affine", LISTED, POINTS, value(1))),
        "another number of scales than of slices",
    ),
    "an axis that is not there": (
        qtensor(storage("QInt8Storage"), quantiser("per_channel_affine", LISTED, POINTS, value(5))),
        "along an axis that it lacks",
    ),
    "scales of a single number": (
        qtensor(
            storage("QInt8Storage"),
            quantiser("per_channel_affine", LISTED.replace(value((2,)), value((1,)), 1), POINTS, value(0)),
            shape=(),
            stride=(),
        ),
        "along an axis that it lacks",
    ),
    "more numbers than the storage has": (
        qtensor(storage("QInt8Storage"), ONE, shape=(50, 50), stride=(50, 1)),
        "its storage has only 96 bytes",
    ),
    "a stride of zero": (
        qtensor(storage("QInt8Storage"), ONE, shape=(10**5, 10**5), stride=(0, 0)),
        "overlap|more memory|no memory|storage has only",
    ),
    "too little": (b"ctorch._utils\n_rebuild_qtensor\n(" + storage("QInt8Storage") + b"tR", "by too little"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_quantised_tensor_that_is_not_what_it_says_is_refused(name: str, tmp_path: Path) -> None:
    content, reason = WRONG[name]
    storages = {f"data/{key}": bytes(range(96)) for key in range(3)}
    write_zip(tmp_path / "w", {"data.pkl": state({"w": content}), **storages})
    with pytest.raises(CheckpointError, match=reason):
        read_checkpoint(tmp_path / "w")


def test_a_quantised_tensor_by_hand_is_read(tmp_path: Path) -> None:
    write_torch(tmp_path / "w", state({"w": qtensor(storage("QUInt8Storage"), ONE)}), storage=bytes(range(96)))
    assert read_checkpoint(tmp_path / "w").state_dict["w"].tolist() == [[-1.5, -1.0, -0.5], [0.0, 0.5, 1.0]]


@pytest.mark.parametrize("change", [lambda parts: parts[:-1], lambda parts: (*parts[:10], None, *parts[11:])])
def test_a_quantised_module_with_another_state_is_refused_or_no_layer(
    change: Callable[[tuple[object, ...]], tuple[object, ...]], tmp_path: Path
) -> None:
    """The state is a tuple of fifteen; without its weight, or with fewer parts, there is nothing to convert."""

    class Pickled:
        def __init__(self, parts: tuple[object, ...]) -> None:
            self.parts = parts

        def __reduce__(self) -> tuple[object, ...]:
            return (torch.ao.nn.quantized.Conv2d, (1, 1, 1), self.parts)

    conv = quantised_conv(torch.ao.nn.quantized.Conv2d)
    buffer = io.BytesIO()
    torch.save({"state_dict": {"x": torch.ones(1)}, "model": Pickled(change(conv.__getstate__()))}, buffer)
    (tmp_path / "w").write_bytes(buffer.getvalue())
    assert all(stored.spec is None for stored in read_checkpoint(tmp_path / "w").convolutions.values())
