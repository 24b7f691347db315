"""One-hot heads in n dimensions: what tells a convolution apart from its picture is where its taps fall.

Where the queries and centres of ``convert/spec.py`` lie is the same along every axis. The 2-D case, with every padding
mode and groups, has a proof of its own (``assembly.py``); this one writes out 1-D and 3-D.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import sympy as sp

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.formula import dot, fill
from ..common.notation import alpha
from .any_dimensions import encoding, head_vector
from .assembly import CENTER, QUERY, TARGET


def claims() -> list[Claim]:
    """The claims of this file."""
    return [dimension_assembly()]


@dataclass(frozen=True)
class Geometry:
    """A small n-D convolution: sizes per axis, of the padded input and of the kernel."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    def __str__(self) -> str:
        parts = {"input": self.size, "kernel": self.kernel, "stride": self.stride, "dilation": self.dilation}
        return f"{len(self.size)}-D, " + ", ".join(
            f"{name} {'x'.join(map(str, value))}" for name, value in parts.items()
        )

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


def dimension_assembly(
    *, query: Callable[[int, int, int, int], int] = query_at, center: Callable[[int, int, int], int] = center_of
) -> Claim:
    """One head for each tap of an n-D kernel reads the pixel that the tap reads."""
    return Claim(
        name="dimension-assembly",
        title="One head for each tap of an n-D kernel",
        statement=fill(
            r"\sum_h W_{\Delta_h} x_{q + \Delta_h} = \sum_m W_m\, x_{$target},\quad q = $query,\ \Delta_m = $center",
            "sum_h W_Delta_h x_{q + Delta_h} = sum_m W_m x_[$target], q = $query and Delta_m = $center on each axis",
            target=TARGET,
            query=QUERY,
            center=CENTER,
        ),
        assumptions=(
            "Heads are one-hot: each reads the key with its highest score.",
            "The keys are the pixels of the padded input.",
            "$s$ and $d$ are stride and dilation of each axis; $i$ is an output pixel, $m$ a kernel tap, "
            "$m_0 = floor((K - 1) / 2)$ the middle one.",
        ),
        steps=(
            Step(
                Formula(r"\arg\max_k\, v_h \cdot r_{k - q} = q + \Delta_h", "argmax_k v_h . r_{k - q} = q + Delta_h"),
                "By dimension, the score falls with the distance to the target, which is a key.",
            ),
            Step(
                fill(r"q + \Delta_m = $target", "q + Delta_m = $target", target=TARGET),
                "The query sits under the middle tap and centres count from there (claim `head-assembly`): this is "
                "the pixel that tap $m$ reads.",
            ),
            Step(
                Formula(r"N_h = \prod_{a=1}^{n} K_a", "N_h = K_1 ... K_n"),
                "A head for each tap; summed over heads, the values $W_m x$ are the convolution.",
            ),
        ),
        checks=(
            Check(
                "attention with symbolic weights and pixels is the convolution",
                Kind.INSTANCES,
                lambda: [failure for geometry in GEOMETRIES for failure in _other_output(geometry, query, center)],
                cases=tuple(map(str, GEOMETRIES)),
            ),
        ),
        justifies=("conv2attn.convert.spec.ConvSpec.tap_offsets", "conv2attn.convert.spec.ConvSpec.query_positions"),
        tests=("proofs.claims.test_dimensions.test_the_codes_centres_and_queries_are_those_of_the_assembly",),
    )


def _other_output(
    geometry: Geometry, query: Callable[[int, int, int, int], int], center: Callable[[int, int, int], int]
) -> list[str]:
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
            best = [key for key in keys if scores[key] == max(scores.values())]
            attended += sum(weight[tap] * x[key] for key in best)
            convolved += weight[tap] * x[tuple(s * i + d * m for m, (i, s, d, _) in zip(tap, axes, strict=True))]
        if attended - convolved != 0:
            found.append(f"{geometry}: output {output} is {attended}, not {convolved}")
    return found


def _score_at(key: tuple[int, ...], query: tuple[int, ...], vector: tuple[Any, ...]) -> int:
    """The score of a key, for alpha = 1."""
    delta = tuple(k - q for k, q in zip(key, query, strict=True))
    return int(dot(encoding(delta), [sp.sympify(entry).subs(alpha, 1) for entry in vector]))
