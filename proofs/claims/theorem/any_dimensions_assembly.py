"""One-hot heads along other numbers of axes than two: what tells a convolution apart is where its taps fall.

Where the queries and centres of ``convert/spec.py`` lie is the same along every axis. ``assembly.py`` writes images
out, with every padding mode and groups; this writes out 1-D and 3-D.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import sympy as sp

from ...prover.claim import Check, Checks, Status, claim
from ..common.notation import alpha
from .encoding import dot, encoding, head_vector


@dataclass(frozen=True)
class Geometry:
    """A small n-D convolution: sizes per axis, of the padded input and of the kernel."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def taps(self) -> list[tuple[int, ...]]:
        """Kernel taps, m."""
        return list(product(*map(range, self.kernel)))

    @property
    def queries(self) -> list[tuple[int, ...]]:
        """Output pixels, i."""
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel, strict=True)]
        counts = [(n - span) // s + 1 for n, span, s in zip(self.size, spans, self.stride, strict=True)]
        return list(product(*map(range, counts)))


GEOMETRIES = (
    Geometry((7,), (3,), (2,), (2,)),
    Geometry((6,), (2,), (1,), (3,)),
    Geometry((3, 3, 4), (2, 1, 2), (1, 1, 2), (1, 1, 1)),
    Geometry((4, 3, 3), (2, 2, 1), (1, 1, 2), (2, 1, 1)),
)


def query_at(output: int, stride: int, dilation: int, taps: int) -> int:
    """s i + d m0: under the middle tap."""
    return stride * output + dilation * ((taps - 1) // 2)


def center_of(tap: int, dilation: int, taps: int) -> int:
    """d (m - m0): the tap's offset from the middle one."""
    return dilation * (tap - (taps - 1) // 2)


Query = Callable[[int, int, int, int], int]
Center = Callable[[int, int, int], int]


@claim(
    status=Status.INSTANCES,
    scope="One-hot heads; the keys are the pixels of the padded input, along one and three axes.",
    justifies=("convert/spec.py: ConvSpec.tap_offsets, ConvSpec.query_positions",),
    tests=("proofs/claims/test_dimensions.py: test_the_codes_centres_and_queries_are_those_of_the_assembly",),
    is_lemma=True,
)
def dimension_assembly(*, query: Query = query_at, center: Center = center_of) -> Checks:
    r"""The theorem along one and three axes.

    The layer of `head-assembly` has $K_1 \cdots K_n$ heads along $n$ axes: queries and centres are the same along each
    axis, and the score is a sum over axes.
    """
    yield Check(
        "attention with symbolic weights and pixels is the convolution",
        lambda: [failure for geometry in GEOMETRIES for failure in _other_output(geometry, query, center)],
        f"{len(GEOMETRIES)} convolutions in 1-D and 3-D",
    )


def _other_output(geometry: Geometry, query: Query, center: Center) -> list[str]:
    """Output pixels at which one-hot attention differs from the convolution."""
    x, weight = sp.IndexedBase("x"), sp.IndexedBase("W")
    keys = list(product(*map(range, geometry.size)))
    found = []
    for output in geometry.queries:
        axes = list(zip(output, geometry.stride, geometry.dilation, geometry.kernel, strict=True))
        position = tuple(query(i, s, d, taps) for i, s, d, taps in axes)
        attended = convolved = sp.Integer(0)
        for tap in geometry.taps:
            vector = head_vector(tuple(center(m, d, taps) for m, (_, _, d, taps) in zip(tap, axes, strict=True)))
            scores = {key: _score_at(key, position, vector) for key in keys}
            attended += sum(weight[tap] * x[key] for key in keys if scores[key] == max(scores.values()))
            convolved += weight[tap] * x[tuple(s * i + d * m for m, (i, s, d, _) in zip(tap, axes, strict=True))]
        if attended - convolved != 0:
            found.append(f"{geometry}: output {output} is {attended}, not {convolved}")
    return found


def _score_at(key: tuple[int, ...], query: tuple[int, ...], vector: tuple[Any, ...]) -> int:
    """The score of a key, for alpha = 1."""
    delta = tuple(k - q for k, q in zip(key, query, strict=True))
    return int(dot(encoding(delta), tuple(sp.sympify(entry).subs(alpha, 1) for entry in vector)))
