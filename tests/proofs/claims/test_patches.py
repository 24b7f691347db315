"""Convolutions of pixels are convolutions of patches: false variants are rejected, and the code agrees."""

from __future__ import annotations

from functools import partial

import torch

from conv2attn.convert.attention.patches import patch_kernel
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.claims.theorem.patches import (
    CASES,
    OWN,
    B,
    P,
    count_failures,
    first,
    index_failures,
    last,
    patch_failures,
    place,
)

FALSE_VARIANTS: dict[str, partial[list[str]]] = {
    "index: a patch further": partial(index_failures, pixel=lambda patch, inside: P * (patch + 1) + inside),
    "index: the padding left out": partial(index_failures, pixel=lambda patch, inside: P * patch + inside + B),
    "index: the query's patch for the key's": partial(index_failures, pixel=lambda patch, inside: P * OWN + inside),
    "sum: the first patch left out": partial(patch_failures, first=lambda line: first(line) + 1),
    "sum: the last patch left out": partial(patch_failures, last=lambda line: last(line) - 1),
    "sum: pixels of a patch in reverse": partial(
        patch_failures, split=lambda number, patch: (number // patch, patch - 1 - number % patch)
    ),
    "count: rounded down": partial(count_failures, count=lambda taps, patch: 2 * ((taps - 1) // (2 * patch)) + 1),
    "count: K - 1 for (K - 1) / 2": partial(count_failures, count=lambda taps, patch: 2 * -(-(taps - 1) // patch) + 1),
}


def test_the_kernel_of_the_code_is_that_of_the_proof() -> None:
    for line in CASES:
        after = (
            line.dilation * (line.taps - 1) - line.before
        )  # one output for every pixel, or less of what is at the end
        spec = ConvSpec(
            1,
            1,
            (line.taps, 1),
            stride=(line.stride, line.stride),
            dilation=(line.dilation, 1),
            padding=((line.before, max(after - line.stride + 1, 0)), (0, 0)),
        )
        weight = torch.arange(1.0, line.taps + 1).reshape(1, 1, -1, 1)
        kernel, (pads, _) = patch_kernel(spec, weight, line.patch)
        assert pads == (-first(line), last(line))
        outputs = line.patch // line.stride
        found = kernel.unflatten(0, (outputs, outputs)).unflatten(2, (line.patch, line.patch))  # u, u', v, v', J, J'
        expected = torch.zeros(outputs, line.patch, last(line) - first(line) + 1)
        for u in range(outputs):
            for m in range(line.taps):
                patch, inside = divmod(place(line, u, m), line.patch)
                expected[u, inside, patch - first(line)] = m + 1
        assert torch.equal(found[:, 0, :, 0, :, 0], expected)
