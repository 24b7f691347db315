"""Inputs are read from texts, drawn at random, and given to a network by place or by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import convert_model, graft
from conv2attn.convert.errors import OptionError
from conv2attn.convert.input_specs import InputSpec, parse_input, parse_inputs
from conv2attn.convert.inputs import as_inputs, call_with, random_inputs


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("x=1x3x224x200", InputSpec("x", (1, 3, 224, 200))),
        ("timestep=4:int64", InputSpec("timestep", (4,), "int64")),
        ("t=scalar:float64", InputSpec("t", (), "float64")),
    ],
)
def test_an_input_is_read(text: str, spec: InputSpec) -> None:
    assert parse_input(text) == spec
    drawn = random_inputs([spec])[spec.name]
    assert (drawn.shape, drawn.dtype) == (spec.shape, spec.dtype)


@pytest.mark.parametrize(
    ("texts", "said"),
    [(("x=1x", "x=1x3:float", "a.b=1"), "NAME=SHAPE:DTYPE"), (("x=0x3", "x=99999x99999"), "1 to 2147483647 numbers")],
)
def test_an_input_of_another_form_or_size_is_refused(texts: tuple[str, ...], said: str) -> None:
    for text in texts:
        with pytest.raises(OptionError, match=said):
            parse_input(text)


def test_random_inputs_are_those_of_their_seed_and_whole_numbers_are_0_or_1() -> None:
    specs = parse_inputs(["x=3x4", "steps=500:int32", "mask=7x70:bool"])
    first, again, other = random_inputs(specs, seed=1), random_inputs(specs, seed=1), random_inputs(specs, seed=2)
    assert all(torch.equal(first[name], again[name]) for name in ("x", "steps", "mask"))
    assert not torch.equal(first["x"], other["x"])
    assert first["steps"].unique().tolist() == [0, 1]


class Denoiser(nn.Module):
    """Takes a picture and a step, as diffusion's networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 1)

    def forward(self, sample: Tensor, timestep: Tensor, *, scale: Tensor | None = None) -> Tensor:
        done: Tensor = self.conv(sample) * (timestep.view(-1, 1, 1, 1) + 1)
        return done if scale is None else done * scale


def test_a_network_is_called_by_place_or_by_name_in_its_own_precision() -> None:
    network = Denoiser().double()
    inputs = random_inputs(parse_inputs(["sample=2x2x4x5", "timestep=2:int64"]), seed=3)
    made = call_with(network, inputs)
    assert made.dtype == torch.float64
    assert not made.requires_grad
    assert torch.equal(made, call_with(network, [*inputs.values()]))
    assert torch.equal(made * 2, call_with(network, {**inputs, "scale": torch.tensor(2.0)}))
    assert as_inputs(inputs["sample"]) == ((inputs["sample"],), {})


@pytest.mark.parametrize(
    ("inputs", "got"),
    [
        (None, "NoneType"),
        ([], "an empty list"),
        ({"x": 3}, "a dict of int"),
        ((torch.ones(1), "a"), "a tuple of str"),
        ({"a b": torch.ones(1)}, "a dict with the keys ['a b']"),
        ((3, 64, 65), "a tuple of int: torch.zeros(1, 3, 64, 65) makes one"),
        ([2, 3, 64, 65], "a list of int: torch.zeros(2, 3, 64, 65) makes one"),
        (np.ones(3), "ndarray: torch.as_tensor makes a tensor of it"),
    ],
)
def test_inputs_that_are_no_tensors_are_refused_by_their_argument_and_what_they_are(inputs: Any, got: str) -> None:
    told = f"example must be a tensor, or several in a sequence or by name; got {got}"
    with pytest.raises(OptionError, match=f"^{re.escape(told)}$"):
        as_inputs(inputs, "example")


@pytest.mark.parametrize("call", [graft, convert_model])
def test_an_example_that_is_a_size_is_refused_as_the_example(call: Callable[..., Any]) -> None:
    with pytest.raises(OptionError, match=r"^example must be .*; got a tuple of int: torch.zeros\(1, 3, 8, 9\)"):
        call(nn.Sequential(nn.Conv2d(3, 2, 3)), example=(3, 8, 9))
