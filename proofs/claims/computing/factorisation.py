"""The smoothing factorisation: what makes ``convert/engines/factored.py`` exact for every alpha.

exp(-alpha) is the symbol q, so that both sides are polynomials in weights, biases and pixels whose coefficients
are rational functions of q.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from sympy import QQ
from sympy.polys.fields import field
from sympy.polys.rings import ring

from ...prover.checks import Expr
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import Point
from ..common.small import (
    Case,
    Element,
    Entries,
    Positions,
    Probabilities,
    attention,
    convolution_of,
    head_center,
    pad,
    padded,
    points,
    query_position,
    softmax,
    symbols,
)

CASES = (
    Case.sized((2, 2), (1, 1)),
    Case.sized((3, 3), (2, 2)),
    Case.sized((3, 4), (3, 3)),
    Case.sized((2, 2), (2, 3), pads=((0, 1), (1, 1))),
    Case.sized((4, 2), (2, 1), stride=(2, 1), channels=(2, 1)),
    Case.sized((2, 3), (2, 2), stride=(2, 2), dilation=(1, 2), pads=((1, 0), (1, 0))),
    Case.sized((3, 3), (2, 2), dilation=(2, 1), channels=(2, 2), groups=2),
    *(Case.sized((2, 2), (2, 2), pads=((1, 0), (0, 1)), mode=mode) for mode in ("reflect", "replicate", "circular")),
)

# Keys; the first with a value, and the step to the next: as they are, and stuffed.
BOXES: tuple[tuple[Point, Point, Point], ...] = (
    ((5,), (0,), (1,)),
    ((8,), (1,), (3,)),
    ((3, 4), (1, 0), (2, 3)),
    ((2, 2, 3), (0, 0, 0), (1, 1, 1)),
    ((4, 2, 3), (1, 0, 0), (2, 1, 2)),
)


Exponent = Callable[[int], int]


def quadratic(delta: Expr) -> Expr:
    """The exponent of q for a key at this distance from the target along one axis."""
    return delta**2


def soft(q: Any) -> Probabilities:
    """Soft attention of heads with this q = exp(-alpha), over all pixels of the padded image."""

    def probabilities(case: Case, query: Point, center: Point) -> dict[Point, Any]:
        target = tuple(a + b for a, b in zip(query, center, strict=True))
        return softmax(case.along(padded), target, q)

    return probabilities


def smooth(
    image: Mapping[Point, Element],
    size: Point,
    q: Any,
    *,
    exponent: Exponent = quadratic,
    is_renormalised: bool = False,
) -> dict[Point, Element]:
    """(S_1 x ... x S_n) X, one axis after the other, with S[t, k] = q^((k - t)^2) over the sum of these for all k.

    Args:
        image: By key; where it has none, X is 0, and the column of S is left out.
        size: The grid of keys.
        q: exp(-alpha).
        exponent: Of q.
        is_renormalised: Whether the columns that are used sum to 1.
    """
    smoothed = dict(image)
    for axis, length in enumerate(size):
        used = {key[axis] for key in smoothed} if is_renormalised else range(length)
        found: dict[Point, Element] = {}
        for target in range(length):
            weights = [q ** exponent(k - target) for k in range(length)]
            total = sum(weights[k] for k in used)
            for key, value in smoothed.items():
                place = (*key[:axis], target, *key[axis + 1 :])
                term = value * (weights[key[axis]] / total)
                found[place] = found[place] + term if place in found else term
        smoothed = found
    return smoothed


def smoothed_convolution(case: Case, s: Entries, q: Any, *, exponent: Exponent = quadratic) -> dict[Point, Element]:
    """Conv_W(S X) on the padded grid, by (output channel, *output)."""
    values, size = pad(case, s), case.along(padded)
    smoothed = {
        (c, *key): value
        for c in range(case.channels[0])
        for key, value in smooth({k: values[c, *k] for k in points(size)}, size, q, exponent=exponent).items()
    }
    return convolution_of(case.of_padded, replace(s, image=smoothed))


def factorisation_failures(
    cases: Iterable[Case] = CASES,
    *,
    query: Positions = query_position,
    center: Positions = head_center,
    exponent: Exponent = quadratic,
) -> Failures:
    """The outputs in which soft attention and the smoothed convolution differ."""
    rational, q = field("q", QQ)
    for case in cases:
        s = symbols(case, rational.to_domain())
        expected = attention(case, s, soft(q), query=query, center=center)
        found = smoothed_convolution(case, s, q, exponent=exponent)
        wrong = [output for output, polynomial in expected.items() if polynomial != found[output]]
        yield from (f"{case}: output {output}: attention and smoothed convolution differ" for output in wrong)


def box_failures(
    boxes: Iterable[tuple[Point, Point, Point]] = BOXES,
    *,
    exponent: Exponent = quadratic,
    is_renormalised: bool = False,
) -> Failures:
    """Fails unless smoothing axis by axis, with the columns of S where x is, reads what a softmax of all keys reads."""
    rational, q = field("q", QQ)
    for size, first, step in boxes:
        seen = list(product(*map(range, first, size, step)))
        polynomials, *values = ring([f"x{'_'.join(map(str, key))}" for key in seen], rational.to_domain())
        image = dict(zip(seen, values, strict=True))
        smoothed = smooth(image, size, q, exponent=exponent, is_renormalised=is_renormalised)
        for target in points(size):
            probabilities = softmax(size, target, q)
            if smoothed[target] != sum((value * probabilities[k] for k, value in image.items()), polynomials.zero):
                yield f"{size} keys, values from {first} at every {step}: {target} reads something else"


@claim(
    status=Status.COQ,
    scope=r"All heads share $\alpha$, which may be any real number, and sit at the kernel's taps. $X$ is the padded "
    r"image, and the convolution, of any kernel, stride, dilation and number of groups, pads no more. Exact "
    r"arithmetic.",
    justifies=("convert/engines/factored.py: FactoredEngine.attend", "convert/engines/factored.py: Axis.probabilities"),
    coq=("Factorisation.v: smoothing_factorisation",),
    tests=(
        "proofs/claims/test_factorisation.py",
        "convert/engines/test_equivalence.py",
        "proofs/formal/test_formal_bridge.py",
    ),
)
def smoothing_factorisation() -> Checks:
    r"""Soft attention is the convolution of a smoothed input.

    ```math
    \operatorname{Attention}_\alpha(X) = \operatorname{Conv}_W(S_\alpha X), \qquad S_\alpha = S_1 \otimes S_2, \qquad
    S_i[t, k] = \operatorname{softmax}_k(-\alpha (k - t)^2) ,
    ```

    with one matrix for the rows and one for the columns.

    **Proof.** Head and query enter the probabilities by the target $t = q + \Delta_h$ alone,
    $p_k = \operatorname{softmax}_k(-\alpha |k - t|^2)$, and the keys are the same for all queries. So
    $p_k = S_1[t_1, k_1]\ S_2[t_2, k_2]$ (`separable-softmax`), where $t$ is a pixel of the padded image
    (`head-assembly`) and numbers a row of each matrix. Hence $\sum_k p_k x_k = (S_\alpha X)_{q + \Delta_h}$, and
    $b + \sum_h W_{\Delta_h} (S_\alpha X)_{q + \Delta_h}$ is the convolution of $S_\alpha X$. $\square$ As
    $\alpha \to \infty$, $S_\alpha \to I$: this is the theorem.
    """
    yield Check(
        r"both sides are the same polynomial in weights, biases and pixels, for every $q = e^{-\alpha}$",
        factorisation_failures,
        f"{len(CASES)} convolutions",
    )


@claim(
    status=Status.INSTANCES,
    scope="As in `smoothing-factorisation`, along any number of axes; of a transposed convolution, $X$ is the stuffed "
    "input (`stuffed-input`).",
    justifies=("convert/engines/factored.py: FactoredEngine.attend", "convert/engines/factored.py: Axis.probabilities"),
    tests=("convert/engines/test_equivalence.py",),
    is_lemma=True,
)
def smoothing_along_axes() -> Checks:
    r"""Along any number of axes the smoothing is a product of one matrix an axis, and zeros need no column.

    The proof is that for images. A key whose value is 0 counts in the softmax, but adds nothing to what is read: its
    column of $S_i$ is not needed.
    """
    yield Check(
        "smoothing axis by axis, with the columns of $S_i$ where $x$ is, reads what each head reads",
        box_failures,
        f"{len(BOXES)} grids of 1 to 3 axes",
    )
