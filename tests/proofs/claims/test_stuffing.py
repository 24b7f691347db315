"""Transposed convolutions are convolutions of stuffed inputs: false variants are rejected, and the code agrees."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.arguments import Size
from conv2attn.convert.engines.convolution import Geometry, convolve
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.claims.common.small_convolutions import (
    CASES,
    Line,
    Numbers,
    Transposed,
    transposed_convolution,
    transposed_symbols,
)
from conv2attn.proofs.claims.theorem.stuffing import (
    after,
    before,
    flipped_kernel,
    index_failures,
    length_failures,
    stuffed,
    stuffing_failures,
)

TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}  # by axes


def unpadded(line: Line) -> Any:
    """D (K - 1), as if the transposed convolution dropped nothing."""
    return line.dilation * (line.taps - 1)


def added_before(line: Line) -> Any:
    """The output padding at the near end."""
    return before(line) + line.added


def strided(line: Line, output: Any, tap: Any) -> Any:
    """A convolution that keeps the stride."""
    return line.stride * output + line.dilation * tap


FALSE_VARIANTS: dict[str, partial[list[str]]] = {
    "index: a kernel that is not flipped": partial(index_failures, flip=lambda line, tap: tap),
    "index: a stride that is kept": partial(index_failures, read=strided),
    "index: output padding at the near end": partial(index_failures, before=added_before),
    "index: pads without the padding": partial(index_failures, before=unpadded),
    "index: pads of K - 1 without dilation": partial(index_failures, before=lambda line: line.taps - 1 - line.near),
    "index: flipped to K": partial(index_failures, flip=lambda line, tap: line.taps - tap),
    "length: pads without the padding": partial(length_failures, before=unpadded),
    "length: no output padding": partial(length_failures, after=before),
    "length: a stride that is kept": partial(length_failures, read=strided),
    "length: taps that read backwards": partial(length_failures, read=lambda line, i, m: i - line.dilation * m),
    "sum: a kernel that is not flipped": partial(stuffing_failures, flip=lambda line, tap: tap),
    "sum: a stride that is kept": partial(stuffing_failures, read=strided),
    "sum: no dilation": partial(stuffing_failures, read=lambda line, i, m: i + m),
    "sum: output padding at the near end": partial(
        stuffing_failures, before=added_before, after=lambda line: after(line) - line.added
    ),
    "sum: no output padding": partial(stuffing_failures, after=lambda line: after(line) - line.added),
    "sum: pads without the padding": partial(stuffing_failures, before=unpadded, after=unpadded),
    "sum: channels that keep their roles": partial(
        stuffing_failures, [CASES[8], CASES[9]], roles=lambda output, channel: (output, channel)
    ),
}


def spec_of(case: Transposed) -> ConvSpec:
    """The code's geometry for a case."""
    kernel, stride, dilation, near, far, added, _ = zip(*case.lines, strict=True)
    padding = near if near == far else tuple(zip(near, far, strict=True))
    return ConvSpec(
        *case.channels, kernel, stride, dilation, padding, groups=case.groups, transposed=True, output_padding=added
    )


def integer_numbers(case: Transposed, seed: int) -> tuple[Numbers, Tensor, Tensor, Tensor]:
    """Integers for the symbols, and the weight, the bias and the input that hold them."""
    draw, spec, symbols = random.Random(seed), spec_of(case), transposed_symbols(case)
    given = Numbers(
        0,
        {index: draw.randint(-9, 9) for index in symbols.weight},
        [draw.randint(-9, 9) for _ in symbols.bias],
        {index: draw.randint(-9, 9) for index in symbols.image},
    )
    weight = torch.zeros(spec.weight_shape, dtype=torch.float64)
    for (c, o, *tap), value in given.weight.items():
        weight[(c, o % weight.shape[1], *tap)] = value
    x = torch.zeros(case.channels[0], *(line.pixels for line in case.lines), dtype=torch.float64)
    for index, value in given.image.items():
        x[index] = value
    return given, weight, torch.tensor(given.bias, dtype=torch.float64), x.unsqueeze(0)


def test_the_keys_and_the_kernel_of_the_code_are_those_of_the_proof() -> None:
    for case in CASES:
        given, weight, bias, x = integer_numbers(case, 3)
        spec = spec_of(case)
        assert spec.pads == tuple((before(line), after(line)) for line in case.lines)
        keys, kernel = spec.pad(x), spec.kernel(weight)
        assert keys.shape[2:] == tuple(spec.padded_size(Size(*x.shape[2:])))
        grid = stuffed(case, given)
        assert len(grid) == keys.numel()
        assert all(keys[0][place] == value for place, value in grid.items())
        width = kernel.shape[1]
        flipped = flipped_kernel(case, given)
        assert len(flipped) == kernel.numel()
        assert all(kernel[(o, c % width, *tap)] == value for (o, c, *tap), value in flipped.items())
        assert spec.query_stride == (1,) * spec.axes
        geometry = Geometry(spec.query_stride, (0,) * spec.axes, spec.dilation, spec.groups)
        convolved = convolve(keys, kernel, bias, geometry)[0]
        expected = transposed_convolution(case, given)
        assert convolved.numel() == len(expected)
        assert all(convolved[place] == value for place, value in expected.items())


def test_the_definition_is_that_of_pytorch() -> None:
    for case in (case for case in CASES if not spec_of(case).is_uneven):
        given, weight, bias, x = integer_numbers(case, 7)
        spec = spec_of(case)
        cropped = tuple(line.near for line in case.lines)
        geometry = spec.stride, cropped, spec.output_padding, spec.groups, spec.dilation
        found = TRANSPOSED[spec.axes](x, weight, bias, *geometry)[0]
        expected = transposed_convolution(case, given)
        assert found.numel() == len(expected)
        assert all(found[place] == value for place, value in expected.items())
