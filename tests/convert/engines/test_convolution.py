"""A convolution is right whatever its memory format, dtype and shape, in the layer and as the reference."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from conv2attn.convert import attention_from_conv, compare_layers, convert_model
from conv2attn.convert.engines import convolution
from conv2attn.convert.engines.convolution import (
    BEYOND,
    HALF,
    NARROW,
    Geometry,
    convolve,
    known_fault,
)
from tests.integers import integers, with_integers
from tests.known_faults import (
    KNOWN,
    MEMORY_FORMATS,
    Call,
    FaultyTorch,
    disagreement,
    laid_out,
)

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Any small call, often with a narrow result."""
    groups = draw(st.sampled_from([1, 1, 2, 3, 16]))
    inputs, outputs = (groups * draw(st.sampled_from([1, 1, 2, 4] if groups < 4 else [1])) for _ in range(2))
    kernel = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 3, 4, 9]))
    stride, padding, dilation = (
        (draw(st.integers(low, high)), draw(st.integers(low, high))) for low, high in ((1, 4), (0, 4), (1, 3))
    )
    smallest = (max(dilation[axis] * (kernel[axis] - 1) + 1 - 2 * padding[axis], 1) for axis in (0, 1))
    rows, columns = (least + draw(st.integers(0, 5)) for least in smallest)
    return Call(
        (draw(st.integers(1, 2)), inputs, rows, columns),
        (outputs, inputs // groups, *kernel),
        Geometry(stride, padding, dilation, groups),
        draw(st.sampled_from(DTYPES)),
        draw(st.booleans()),
    )


@given(call=calls(), memory_format=st.sampled_from(MEMORY_FORMATS))
def test_a_convolution_and_its_gradients_are_right_in_every_memory_format(
    call: Call, memory_format: torch.memory_format
) -> None:
    assert disagreement(call, memory_format) is None


@pytest.mark.slow
@pytest.mark.parametrize("instructions", [None, "AVX512_CORE", "AVX2"])
def test_what_torch_gets_wrong_or_crashes_on_is_right_on_every_cpu(instructions: str | None) -> None:
    environment = dict(os.environ) | ({} if instructions is None else {"ONEDNN_MAX_CPU_ISA": instructions})
    program = [sys.executable, "-m", "tests.known_faults"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == [str(len(MEMORY_FORMATS) * len(KNOWN))], done.stderr


@pytest.mark.parametrize("memory_format", MEMORY_FORMATS)
def test_a_layer_is_right_where_torch_is_wrong(memory_format: torch.memory_format) -> None:
    assert _layer_is_right(memory_format)


@pytest.mark.fault
def test_a_layer_whose_convolution_is_not_guarded_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "known_fault", lambda *call: None)
    assert not _layer_is_right(torch.channels_last)


def test_a_comparison_of_networks_is_not_misled_and_says_so() -> None:
    cnn = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, (1, 3), stride=(1, 2), groups=4)).eval()
    model = convert_model(cnn).model
    with FaultyTorch():
        usual, narrow = compare_layers(cnn, model, [torch.randn(2, 2, 5, 4)])
    assert usual.note is None
    assert narrow.note is not None
    assert NARROW in narrow.note
    for layer in (usual, narrow):
        assert layer.own <= layer.bound
        assert layer.total <= layer.bound + layer.inherited


def _layer_is_right(memory_format: torch.memory_format) -> bool:
    """Whether a layer whose convolution has a narrow result computes that of float64, exactly."""
    conv = with_integers(nn.Conv2d(2, 6, (3, 2), stride=(1, 3), padding=1, groups=2, bias=False).bfloat16())
    x = integers(2, 2, 9, 2).bfloat16()
    with FaultyTorch():
        observed: Tensor = attention_from_conv(conv, engine="factored")(laid_out(x, memory_format))
    exact = F.conv2d(x.double(), conv.weight.double(), None, conv.stride, (1, 1), conv.dilation, conv.groups)
    assert exact.shape[3] == 1
    return torch.equal(observed.double(), exact)


@pytest.mark.slow
def test_the_guard_is_traced_and_exported() -> None:
    torch.compiler.reset()
    layer = attention_from_conv(with_integers(nn.Conv2d(3, 6, 3, stride=(1, 2), padding=1, groups=3)))
    compiled = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
    for columns in (9, 12, 2, 1):
        x = integers(2, 3, 7, columns)
        assert torch.equal(compiled(x), layer(x))
    width = torch.export.Dim("width", min=4, max=100)
    exported = torch.export.export(layer, (torch.randn(2, 3, 7, 9),), dynamic_shapes={"input": {3: width}}).module()
    for columns in (4, 9, 30):
        x = integers(2, 3, 7, columns)
        assert torch.equal(exported(x), layer(x))


F16, F32 = torch.float16, torch.float32
# Image, kernel, stride, padding, dilation, dtype, and what may go wrong: at a limit, and one beyond it.
CALLS: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], torch.dtype, str | None]] = [
    ((1, 1, 9, 2), (4, 1, 3, 2), (1, 3), (0, 1), F32, NARROW),
    ((1, 1, 9, 3), (4, 1, 3, 2), (1, 3), (0, 1), F32, None),
    ((1, 2, 9, 2), (4, 2, 3, 2), (1, 3), (0, 1), F32, None),
    ((1, 2, 9, 2), (4, 2, 3, 2), (1, 3), (0, 1), F16, NARROW),
    ((1, 1, 2), (4, 1, 2), (3,), (1,), F32, NARROW),
    ((1, 2, 9, 9, 4), (4, 2, 3, 3, 3), (1, 1, 2), (1, 1, 0), F32, NARROW),
    ((1, 2, 9, 20), (2, 2, 3, 8), (1, 1), (0, 0), torch.bfloat16, HALF),
    ((1, 2, 9, 20), (2, 2, 3, 7), (1, 1), (0, 0), torch.bfloat16, None),
    ((1, 2, 9, 20), (2, 2, 3, 8), (1, 1), (0, 0), F16, None),
    ((1, 2, 9, 20), (2, 2, 3, 3), (1, 4), (0, 0), torch.bfloat16, HALF),
    ((1, 2, 2, 20), (2, 2, 3, 3), (1, 1), (1, 0), torch.bfloat16, HALF),
    ((1, 2, 9, 20), (2, 2, 3, 3), (1, 1), (3, 2), torch.bfloat16, HALF),
    ((1, 2, 9, 20), (2, 2, 3, 3), (1, 1), (4, 2), torch.bfloat16, HALF),
    ((1, 2, 9, 2), (2, 2, 3, 2), (1, 3), (0, 2), F32, BEYOND),
    ((1, 2, 9, 3), (2, 2, 3, 2), (1, 3), (0, 2), F32, None),
    ((1, 2, 2, 9, 9), (2, 2, 3, 3, 3), (1, 1, 1), (1, 0, 0), F32, BEYOND),
    ((1, 2, 3, 9, 9), (2, 2, 3, 3, 3), (1, 1, 1), (1, 0, 0), F32, None),
]


def test_a_call_is_not_to_be_trusted_up_to_the_limit_and_no_further() -> None:
    for image, kernel, stride, padding, dtype, fault in CALLS:
        x, weight = torch.ones(image, dtype=dtype), torch.ones(kernel, dtype=dtype)
        geometry = Geometry.of(len(stride), stride, padding)
        assert known_fault(x, weight, geometry) == fault, (image, kernel, stride, padding, dtype)
        elsewhere = x.new_ones(()).expand(1, image[1], *(99,) * len(stride))
        assert known_fault(elsewhere, weight, geometry, image[2:]) == fault, (image, kernel, stride, padding, dtype)
        assert known_fault(x.to("meta"), weight.to("meta"), geometry) is None
        assert known_fault(x.double(), weight.double(), geometry) is None


class Channels(TorchFunctionMode):
    """Notes how many channels of a group the calls of torch have."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (F.conv1d, F.conv2d, F.conv3d):
            self.seen.append(args[1].shape[1])
        return func(*args, **(kwargs or {}))


REGISTERS: list[tuple[dict[str, Any], int]] = [
    *(({"channels": channels}, 16) for channels in (2, 15, 16)),
    *(({"channels": channels}, channels) for channels in (1, 17)),
    *(({"stride": stride}, seen) for stride, seen in (((2, 1), 16), ((1, 1), 5), ((2,), 5), ((1, 1, 2), 5))),
    ({"taps": 2}, 5),
    ({"groups": 2}, 5),
    ({"dtype": torch.float64}, 5),
    *(({"trained": trained}, seen) for trained, seen in (("bias", 16), ("image", 5), ("nothing", 5))),
]


def test_a_kernel_of_one_tap_whose_gradient_torch_may_write_beyond_its_memory_fills_a_register() -> None:
    """No result shows it: what lies beyond is somebody else's."""
    usual: dict[str, Any] = {"channels": 5, "stride": (1, 2), "taps": 1, "groups": 1, "dtype": torch.float32}
    usual["trained"] = "kernel"
    for changes, seen in REGISTERS:
        channels, stride, taps, groups, dtype, trained = (usual | changes).values()
        x = integers(1, channels * groups, *(8 for _ in stride), dtype=dtype)
        weight, bias = integers(4, channels, *(taps for _ in stride), dtype=dtype), torch.ones(4, dtype=dtype)
        {"image": x, "kernel": weight, "bias": bias, "nothing": torch.ones(())}[trained].requires_grad_()
        with Channels() as noted:
            convolve(x, weight, bias, Geometry.of(len(stride), stride, groups=groups))
        assert noted.seen == [seen], changes


@pytest.mark.parametrize(
    ("lying", "stride", "padding"),
    [
        (torch.contiguous_format, (2, 2), (0, 0)),
        (torch.channels_last, (1, 2), (1, 0)),
        (torch.channels_last, (3, 1), (2, 1)),
    ],
)
def test_a_kernel_of_one_tap_and_its_gradients_are_right(
    lying: torch.memory_format, stride: tuple[int, int], padding: tuple[int, int]
) -> None:
    geometry = Geometry(stride, padding, (1, 1))
    x = integers(2, 5, 8, 10).contiguous(memory_format=lying)
    weight, bias = integers(4, 5, 1, 1), torch.arange(4.0)
    leaves = [tensor.requires_grad_() for tensor in (x, weight, bias)]
    observed = convolve(x, weight, bias, geometry)
    exact = F.conv2d(x.double(), weight.double(), bias.double(), *geometry)
    assert torch.equal(observed.double(), exact)
    assert observed.stride() == F.conv2d(x, weight, bias, *geometry).stride()
    upstream = integers(*exact.shape, dtype=torch.float64)
    found = torch.autograd.grad(observed, leaves, upstream.float())
    for gradient, expected in zip(found, torch.autograd.grad(exact, leaves, upstream), strict=True):
        assert torch.equal(gradient, expected)
