"""Claim 5: heads assemble the convolution; false variants are rejected, and the code agrees."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.claims.common.scores import dot
from conv2attn.proofs.claims.common.small import (
    Case,
    Positions,
    attention,
    head_center,
    middle,
    query_position,
    symbols,
)
from conv2attn.proofs.claims.errata.passages import image_keys
from conv2attn.proofs.claims.theorem.assembly import (
    CASES,
    DILATION,
    OTHER_AXES,
    OUTPUT,
    QUERY,
    STRIDE,
    assembly_failures,
    inside_failures,
)
from conv2attn.proofs.prover.claim import Failures
from tests.claims import integers

CONVOLUTIONS: dict[int, type[nn.Conv1d | nn.Conv2d | nn.Conv3d]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}  # by axes


def _swapped(positions: Positions) -> Positions:
    return lambda case, pixel: (positions(case, pixel[::-1])[1], positions(case, pixel[::-1])[0])


FALSE_VARIANTS: dict[str, partial[Failures]] = {
    "queries without stride": partial(
        assembly_failures, query=lambda case, p: case.along(lambda axis, i: i + axis.dilation * middle(axis.taps), p)
    ),
    "queries under the first tap": partial(
        assembly_failures, query=lambda case, p: case.along(lambda axis, i: axis.stride * i, p)
    ),
    "queries under the last tap": partial(
        assembly_failures,
        query=lambda case, p: case.along(lambda axis, i: axis.stride * i + axis.dilation * (axis.taps - 1), p),
    ),
    "a middle tap without dilation": partial(
        assembly_failures, query=lambda case, p: case.along(lambda axis, i: axis.stride * i + middle(axis.taps), p)
    ),
    "centres that count from the first tap": partial(
        assembly_failures, center=lambda case, tap: case.along(lambda axis, m: axis.dilation * m, tap)
    ),
    "strides of rows and columns swapped": partial(assembly_failures, query=_swapped(query_position)),
    "centres without dilation": partial(
        assembly_failures, center=lambda case, tap: case.along(lambda axis, m: m - middle(axis.taps), tap)
    ),
    "rows and columns of centres swapped": partial(assembly_failures, center=_swapped(head_center)),
    "centres off by one": partial(
        assembly_failures, center=lambda case, tap: (head_center(case, tap)[0] + 1, head_center(case, tap)[1])
    ),
    "mirrored centres": partial(
        assembly_failures, center=lambda case, tap: tuple(-entry for entry in head_center(case, tap))
    ),
    "a minus in the head vector": partial(assembly_failures, score=lambda d, D: -dot(d, d) - 2 * dot(d, D)),
    "a head vector without the factor 2": partial(assembly_failures, score=lambda d, D: -dot(d, d) + dot(d, D)),
    "no quadratic term": partial(assembly_failures, score=lambda d, D: 2 * dot(d, D)),
    "keys of the image only": partial(assembly_failures, keys=image_keys),
    "a target beyond the last key": partial(inside_failures, slack=1),
    "a query that its centres do not count from": partial(inside_failures, query=STRIDE * OUTPUT),
    "a query under the tap behind the middle": partial(inside_failures, query=QUERY + DILATION),
    "a middle tap beyond the last": partial(inside_failures, middle=lambda taps: taps),
    "a middle tap before the first": partial(inside_failures, middle=lambda taps: taps / 2 - 1),
}


def spec_of(case: Case) -> ConvSpec:
    _, kernel, stride, dilation, padding, *_ = zip(*case.axes, strict=True)
    return ConvSpec(
        *case.channels,
        kernel_size=kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        padding_mode=case.mode,  # type: ignore[arg-type]
        groups=case.groups,
    )


def test_the_polynomial_of_the_proof_takes_the_values_of_the_code() -> None:
    for case in (case for case in (*CASES, *OTHER_AXES) if all(axis.before == axis.after for axis in case.axes)):
        conv = CONVOLUTIONS[len(case.axes)](**spec_of(case).arguments(), dtype=torch.float64)
        x = integers(1, case.channels[0], *(axis.pixels for axis in case.axes))
        with torch.no_grad():
            for parameter in conv.parameters():
                parameter.copy_(integers(*parameter.shape))
            outputs: Any = {"convolution": conv(x)[0]}
            outputs["attention"] = attention_from_conv(conv, engine="literal")(x)[0]
        # The weights, biases and pixels of a case stand in the order of the layer's.
        values = [int(value) for part in (*conv.parameters(), x) for value in part.flatten()]
        for index, polynomial in attention(case, symbols(case)).items():
            value = int(polynomial.evaluate(list(zip(polynomial.ring.gens, values, strict=True))))
            assert {name: output[index].item() for name, output in outputs.items()} == dict.fromkeys(outputs, value)
