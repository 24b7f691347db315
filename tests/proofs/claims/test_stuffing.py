"""Transposed convolutions are convolutions of stuffed inputs: false variants are rejected, and the code agrees."""

from __future__ import annotations

import random
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert.arguments import Size
from conv2attn.convert.engines.convolution import Geometry, convolve
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.claims.common.small import Axis, Case, Entries, entries, pad, transposed_convolution
from conv2attn.proofs.claims.theorem.stuffing import (
    CASES,
    index_failures,
    length_failures,
    stuffed,
    stuffed_convolution,
    stuffing_failures,
)
from conv2attn.proofs.prover.claim import Failures

TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}  # by axes


def unpadded(axis: Axis) -> Axis:
    """Pads as if the transposed convolution dropped nothing."""
    full = axis.dilation * (axis.taps - 1)
    return stuffed(axis)._replace(before=full, after=full)


def added_before(axis: Axis) -> Axis:
    """The output padding at the near end."""
    found = stuffed(axis)
    return found._replace(before=found.before + axis.added, after=found.after - axis.added)


def never_added(axis: Axis) -> Axis:
    """No output padding."""
    return stuffed(axis)._replace(after=stuffed(axis).after - axis.added)


def strided(axis: Axis) -> Axis:
    """A convolution that keeps the stride."""
    return stuffed(axis)._replace(stride=axis.stride)


FALSE_VARIANTS: dict[str, partial[Failures]] = {
    "index: a kernel that is not flipped": partial(index_failures, flip=lambda axis, tap: tap),
    "index: a stride that is kept": partial(index_failures, stuffed=strided),
    "index: output padding at the near end": partial(index_failures, stuffed=added_before),
    "index: pads without the padding": partial(index_failures, stuffed=unpadded),
    "index: pads of K - 1 without dilation": partial(
        index_failures, stuffed=lambda axis: stuffed(axis)._replace(before=axis.taps - 1 - axis.before)
    ),
    "index: flipped to K": partial(index_failures, flip=lambda axis, tap: axis.taps - tap),
    "length: pads without the padding": partial(length_failures, stuffed=unpadded),
    "length: no output padding": partial(length_failures, stuffed=never_added),
    "length: a stride that is kept": partial(length_failures, stuffed=strided),
    "length: taps that read backwards": partial(
        length_failures, stuffed=lambda axis: stuffed(axis)._replace(dilation=-axis.dilation)
    ),
    "sum: a kernel that is not flipped": partial(stuffing_failures, flip=lambda axis, tap: tap),
    "sum: a stride that is kept": partial(stuffing_failures, stuffed=strided),
    "sum: no dilation": partial(stuffing_failures, stuffed=lambda axis: stuffed(axis)._replace(dilation=1)),
    "sum: output padding at the near end": partial(stuffing_failures, stuffed=added_before),
    "sum: no output padding": partial(stuffing_failures, stuffed=never_added),
    "sum: pads without the padding": partial(stuffing_failures, stuffed=unpadded),
    "sum: channels that keep their roles": partial(
        stuffing_failures, [CASES[8], CASES[9]], roles=lambda output, channel: (output, channel)
    ),
}


def spec_of(case: Case) -> ConvSpec:
    """The code's geometry for a case."""
    _, kernel, stride, dilation, near, far, added = zip(*case.axes, strict=True)
    padding = near if near == far else tuple(zip(near, far, strict=True))
    return ConvSpec(
        *case.channels, kernel, stride, dilation, padding, groups=case.groups, transposed=True, output_padding=added
    )


def integer_entries(case: Case, seed: int) -> tuple[Entries, Tensor, Tensor, Tensor]:
    """Integers for the symbols, and the weight, the bias and the input that hold them."""
    given, spec = entries(case, partial(random.Random(seed).randint, -9, 9)), spec_of(case)
    weight = torch.zeros(spec.weight_shape, dtype=torch.float64)
    for (c, o, *tap), value in given.weight.items():
        weight[(c, o % weight.shape[1], *tap)] = value
    x = torch.zeros(1, case.channels[0], *(axis.pixels for axis in case.axes), dtype=torch.float64)
    for index, value in given.image.items():
        x[(0, *index)] = value
    return given, weight, torch.tensor(given.bias, dtype=torch.float64), x


def test_the_keys_and_the_kernel_of_the_code_are_those_of_the_proof() -> None:
    for case in CASES:
        given, weight, bias, x = integer_entries(case, 3)
        spec = spec_of(case)
        plain, flipped = stuffed_convolution(case, given)
        assert spec.pads == tuple((axis.before, axis.after) for axis in plain.axes)
        keys, kernel = spec.pad(x), spec.kernel(weight)
        assert keys.shape[2:] == tuple(spec.padded_size(Size(*x.shape[2:])))
        grid = pad(plain, flipped)
        assert len(grid) == keys.numel()
        assert all(keys[0][place] == value for place, value in grid.items())
        width = kernel.shape[1]
        assert len(flipped.weight) == kernel.numel()
        assert all(kernel[(o, c % width, *tap)] == value for (o, c, *tap), value in flipped.weight.items())
        assert spec.query_stride == (1,) * spec.axes
        geometry = Geometry(spec.query_stride, (0,) * spec.axes, spec.dilation, spec.groups)
        convolved = convolve(keys, kernel, bias, geometry)[0]
        expected = transposed_convolution(case, given)
        assert convolved.numel() == len(expected)
        assert all(convolved[place] == value for place, value in expected.items())


def test_the_definition_is_that_of_pytorch() -> None:
    for case in (case for case in CASES if not spec_of(case).is_uneven):
        given, weight, bias, x = integer_entries(case, 7)
        spec = spec_of(case)
        cropped = tuple(axis.before for axis in case.axes)
        geometry = spec.stride, cropped, spec.output_padding, spec.groups, spec.dilation
        found = TRANSPOSED[spec.axes](x, weight, bias, *geometry)[0]
        expected = transposed_convolution(case, given)
        assert found.numel() == len(expected)
        assert all(found[place] == value for place, value in expected.items())
