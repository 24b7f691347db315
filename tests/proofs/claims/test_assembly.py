"""Claim 5: heads assemble the convolution; false variants are rejected, and the code agrees."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.claims.common.small_convolutions import Case, symbols
from conv2attn.proofs.claims.errata.passages import image_keys
from conv2attn.proofs.claims.theorem.assembly import (
    CASES,
    DILATION,
    OUTPUT,
    QUERY,
    STRIDE,
    Positions,
    assembly_failures,
    attention,
    head_center,
    inside_failures,
    middle_tap,
    query_position,
)


def _swapped(positions: Positions) -> Positions:
    return lambda case, pixel: (positions(case, pixel[::-1])[1], positions(case, pixel[::-1])[0])


def _moved(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return a[0] + b[0], a[1] + b[1]


def _middle(case: Case) -> tuple[int, int]:
    return case.dilation[0] * middle_tap(case)[0], case.dilation[1] * middle_tap(case)[1]


def _square(d: tuple[int, int]) -> int:
    return d[0] ** 2 + d[1] ** 2


def _dot(d: tuple[int, int], D: tuple[int, int]) -> int:
    return d[0] * D[0] + d[1] * D[1]


FALSE_VARIANTS: dict[str, partial[list[str]]] = {
    "queries without stride": partial(assembly_failures, query=lambda case, p: _moved(p, _middle(case))),
    "queries under the first tap": partial(
        assembly_failures, query=lambda case, p: (case.stride[0] * p[0], case.stride[1] * p[1])
    ),
    "queries under the last tap": partial(
        assembly_failures, query=lambda case, p: _moved(query_position(case, p), head_center(case, case.taps[-1]))
    ),
    "a middle tap without dilation": partial(
        assembly_failures,
        query=lambda case, p: _moved((case.stride[0] * p[0], case.stride[1] * p[1]), middle_tap(case)),
    ),
    "centres that count from the first tap": partial(
        assembly_failures, center=lambda case, tap: (case.dilation[0] * tap[0], case.dilation[1] * tap[1])
    ),
    "strides of rows and columns swapped": partial(assembly_failures, query=_swapped(query_position)),
    "centres without dilation": partial(
        assembly_failures, center=lambda case, tap: (tap[0] - middle_tap(case)[0], tap[1] - middle_tap(case)[1])
    ),
    "rows and columns of centres swapped": partial(assembly_failures, center=_swapped(head_center)),
    "centres off by one": partial(assembly_failures, center=lambda case, tap: _moved(head_center(case, tap), (1, 0))),
    "mirrored centres": partial(
        assembly_failures, center=lambda case, tap: (-head_center(case, tap)[0], -head_center(case, tap)[1])
    ),
    "a minus in the head vector": partial(assembly_failures, score=lambda d, D: -_square(d) - 2 * _dot(d, D)),
    "a head vector without the factor 2": partial(assembly_failures, score=lambda d, D: -_square(d) + _dot(d, D)),
    "no quadratic term": partial(assembly_failures, score=lambda d, D: 2 * _dot(d, D)),
    "keys of the image only": partial(assembly_failures, keys=image_keys),
    "a target beyond the last key": partial(inside_failures, slack=1),
    "a query that its centres do not count from": partial(inside_failures, query=STRIDE * OUTPUT),
    "a query under the tap behind the middle": partial(inside_failures, query=QUERY + DILATION),
    "a middle tap beyond the last": partial(inside_failures, middle=lambda taps: taps),
    "a middle tap before the first": partial(inside_failures, middle=lambda taps: taps / 2 - 1),
}


def spec_of(case: Case) -> ConvSpec:
    top, _, left, _ = case.pads
    return ConvSpec(
        *case.channels,
        kernel_size=case.kernel,
        stride=case.stride,
        dilation=case.dilation,
        padding=(top, left),
        padding_mode=case.mode,  # type: ignore[arg-type]
        groups=case.groups,
    )


def test_the_polynomial_of_the_proof_takes_the_values_of_the_code() -> None:
    for case in (case for case in CASES if case.pads[::2] == case.pads[1::2]):
        spec, s = spec_of(case), symbols(case)
        conv = nn.Conv2d(**spec.arguments(), dtype=torch.float64)
        x = torch.randint(-9, 10, (1, case.channels[0], *case.size)).double()
        with torch.no_grad():
            for parameter in conv.parameters():
                parameter.copy_(torch.randint(-9, 10, parameter.shape))
            outputs: Any = {"convolution": conv(x)[0]}
            outputs["attention"] = attention_from_conv(conv, engine="literal")(x)[0]
        values = integer_values(case, conv, x)
        for index, polynomial in attention(case, s).items():
            value = int(polynomial.evaluate(list(zip(polynomial.ring.gens, values, strict=True))))
            assert {name: output[index].item() for name, output in outputs.items()} == dict.fromkeys(outputs, value)


def integer_values(case: Case, conv: nn.Conv2d, x: torch.Tensor) -> list[int]:
    """Weights, biases and pixels in the order of the ring's generators."""
    assert conv.bias is not None
    weight = [conv.weight[o, c - case.mixed(o)[0], m, n] for o, c, m, n in symbols(case).weight]
    return [int(value) for value in (*weight, *conv.bias, *x.flatten())]
