"""Convolutions along one, two and three axes, transposed or not, are read from every file that describes them."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn

from conv2attn.convert import ConvSpec, convert_model
from conv2attn.convert.files.checkpoint import Opening
from conv2attn.convert.files.open import open_network
from conv2attn.convert.spec import Convolution
from conv2attn.proofs.evidence.strategies import convolution_of, convolutions_with_input, every_spec


def whole_numbers(*shape: int) -> Tensor:
    """Small integers, whose products are summed without rounding in any order."""
    return torch.randint(-4, 5, shape).float()


def with_whole_numbers(spec: ConvSpec) -> Convolution:
    conv = convolution_of(spec)
    for parameter in conv.parameters():
        parameter.data = whole_numbers(*parameter.shape)
    return conv.eval()


# Pickled modules and exported programs


@settings(max_examples=40)
@given(convolutions_with_input(integers=True, specs=every_spec()))
def test_a_pickled_module_is_the_convolution_that_was_saved(case: tuple[Convolution, Tensor]) -> None:
    conv, x = case
    with tempfile.TemporaryDirectory() as folder:
        torch.save(nn.Sequential(conv), Path(folder, "m"))
        network = open_network(Path(folder, "m"))
        cnn = network.cnn()
        assert repr(cnn.get_submodule("0")) == repr(conv)
        assert torch.equal(convert_model(cnn).model(x), conv(x))


PROGRAMS: list[tuple[type[nn.Module], dict[str, Any]]] = [
    (nn.Conv1d, {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    (nn.Conv1d, {"kernel_size": 5, "padding": "same", "padding_mode": "circular"}),
    (nn.Conv3d, {"kernel_size": (1, 2, 3), "padding": (0, 1, 2), "groups": 2, "bias": False}),
    (nn.Conv3d, {"kernel_size": (1, 2, 3), "padding": (0, 1, 2), "padding_mode": "replicate"}),
    (nn.Conv2d, {"kernel_size": (3, 2), "padding": (2, 1), "padding_mode": "reflect"}),
    (nn.ConvTranspose1d, {"kernel_size": 3, "stride": 3, "padding": 1, "output_padding": 2}),
    (nn.ConvTranspose2d, {"kernel_size": (3, 2), "stride": (2, 1), "output_padding": (1, 0), "groups": 2}),
    (nn.ConvTranspose3d, {"kernel_size": 2, "stride": (1, 2, 2), "dilation": (2, 1, 1), "bias": False}),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_s_node_is_the_convolution_that_was_exported(number: int, tmp_path: Path) -> None:
    kind, options = PROGRAMS[number]
    conv = kind(4, 6, **options).eval()
    assert isinstance(conv, Convolution)
    for parameter in conv.parameters():
        parameter.data = whole_numbers(*parameter.shape)
    x = whole_numbers(2, 4, *(9, 8, 7)[: len(conv.kernel_size)])
    with warnings.catch_warnings(action="ignore"):
        torch.export.save(torch.export.export(nn.Sequential(conv), (x,)), tmp_path / "m.pt2")
    cnn = open_network(tmp_path / "m.pt2", Opening(trust=True)).cnn()
    y = cnn(x)
    assert torch.equal(y, conv(x))
    assert torch.equal(convert_model(cnn, inplace=True).model(x), y)
