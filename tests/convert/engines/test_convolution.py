"""An engine's own convolutions are right on every processor; an exact layer's are torch's, right or wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.overrides import TorchFunctionMode

from benchmarks import wrong_convolutions
from benchmarks.wrong_convolutions import Call, disagreement
from conv2attn.convert import attention_from_conv, compare_layers, convert_model
from conv2attn.convert.engines import convolution
from conv2attn.convert.engines.convolution import Geometry
from conv2attn.proofs.campaign.checks import compare_layer
from conv2attn.proofs.campaign.layers import draw_layer
from tests.integers import integers, with_integers

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
MEMORY_FORMATS = tuple(wrong_convolutions.MEMORY_FORMATS.values())


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


@pytest.mark.fault
def test_a_wrong_rearrangement_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which calls a processor gets wrong differs, so a fault of its own is planted."""
    monkeypatch.setattr(convolution, "_rearranged", lambda x, weight, geometry: (x.flip(3), geometry))
    call = Call((1, 2, 4, 4), (2, 2, 1, 1), Geometry.of(2), torch.bfloat16)
    assert disagreement(call, torch.contiguous_format) == "result, gradient of the image, gradient of the kernel"


@pytest.mark.slow
@pytest.mark.parametrize("instructions", [None, "AVX512_CORE", "AVX2"])
def test_what_torch_gets_wrong_or_crashes_on_is_right_on_every_cpu(instructions: str | None) -> None:
    environment = dict(os.environ) | ({} if instructions is None else {"ONEDNN_MAX_CPU_ISA": instructions})
    program = [sys.executable, str(Path(wrong_convolutions.__file__)), "--engines"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "Wrong as engines make them: none", done.stderr


class FaultyTorch(TorchFunctionMode):
    """Torch as it is where results with a stride along their columns are garbage."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func is not F.conv2d or output.dtype == torch.float64 or args[3][1] == 1:
            return output
        return output + 100


def test_an_exact_layer_has_the_call_of_its_convolution_right_or_wrong() -> None:
    conv, x = with_integers(nn.Conv2d(2, 6, (3, 2), stride=(1, 3), padding=1, groups=2)), integers(2, 2, 9, 8)
    layer, right = attention_from_conv(conv), conv(x)
    assert torch.equal(layer(x), right)
    with FaultyTorch():
        assert torch.equal(layer(x), conv(x))
        assert torch.equal(layer(x), right + 100)


@pytest.mark.parametrize("engine", ["literal", "separable"])
def test_a_comparison_says_that_it_fails_because_the_convolution_s_own_call_is_wrong(engine: str) -> None:
    cnn = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, (1, 3), stride=(1, 2), groups=4)).eval()
    model = convert_model(cnn, engine=engine).model
    with FaultyTorch():
        usual, faulty = compare_layers(cnn, model, [torch.randn(2, 2, 5, 9)])
    assert usual.note is None
    assert usual.own <= usual.bound
    assert faulty.own > faulty.bound
    assert faulty.note is not None
    assert "torch's own convolution is wrong on this processor" in faulty.note


def test_a_difference_that_is_the_layer_s_is_not_said_to_be_torch_s() -> None:
    cnn = nn.Sequential(nn.Conv2d(2, 4, 3)).eval()
    model: Any = convert_model(cnn).model
    model[0].forward = lambda x: type(model[0]).forward(model[0], x) + 1
    (found,) = compare_layers(cnn, model, [torch.randn(2, 2, 5, 9)])
    assert found.own > found.bound
    assert found.note is None


def test_a_campaign_says_that_torch_s_own_convolution_is_wrong() -> None:
    layers = (draw_layer(0, index, dtypes=("float32",)) for index in range(200))
    spec = next(
        layer for layer in layers if layer.spec.axes == 2 and not layer.spec.transposed and layer.spec.stride[1] > 1
    )
    assert all(made.holds for made in compare_layer(spec))
    with FaultyTorch():
        wrong = [made.what for made in compare_layer(spec) if not made.holds]
    assert wrong
    assert all("torch's own convolution is wrong on this processor" in what for what in wrong)


@pytest.mark.slow
def test_a_narrow_call_is_traced_and_exported() -> None:
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
