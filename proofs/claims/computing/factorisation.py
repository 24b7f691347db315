"""The smoothing factorisation: what makes ``convert/engines/factored.py`` exact for every alpha.

exp(-alpha) is the symbol q, so that both sides are polynomials in weights, biases and pixels whose coefficients
are rational functions of q.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import Any

from sympy import QQ
from sympy.polys.fields import field
from sympy.polys.rings import ring

from ...prover.checks import Expr
from ...prover.claim import Check, Checks, Status, claim
from ..common.small_convolutions import Case, Element, Grid, Places, Symbols, convolution, pad, pixels, symbols
from ..theorem.assembly import Positions, head_center, query_position

CASES = (
    Case((1, 1), size=(2, 2)),
    Case((2, 2), size=(3, 3)),
    Case((3, 3), size=(3, 4)),
    Case((2, 3), pads=(0, 1, 1, 1), size=(2, 2)),
    Case((2, 1), stride=(2, 1), size=(4, 2), channels=(2, 1)),
    Case((2, 2), stride=(2, 2), dilation=(1, 2), pads=(1, 0, 1, 0), size=(2, 3)),
    Case((2, 2), dilation=(2, 1), size=(3, 3), channels=(2, 2), groups=2),
    *(Case((2, 2), pads=(1, 0, 0, 1), mode=mode, size=(2, 2)) for mode in ("reflect", "replicate", "circular")),
)

# Keys; the first with a value, and the step to the next: as they are, and stuffed.
BOXES: tuple[tuple[Places, Places, Places], ...] = (
    ((5,), (0,), (1,)),
    ((8,), (1,), (3,)),
    ((3, 4), (1, 0), (2, 3)),
    ((2, 2, 3), (0, 0, 0), (1, 1, 1)),
    ((4, 2, 3), (1, 0, 0), (2, 1, 2)),
)


def quadratic(delta: Expr) -> Expr:
    """The exponent of q for a key at this distance from the target along one axis."""
    return delta**2


def softmax_row(length: int, target: int, q: Any, *, exponent: Callable[[int], int] = quadratic) -> list[Any]:
    """S[target, :]: q^((k - target)^2) over the sum of these, for k = 0, ..., length - 1."""
    weights = [q ** exponent(k - target) for k in range(length)]
    return [weight / sum(weights) for weight in weights]


def head_probabilities(size: Places, target: Places, q: Any) -> dict[Places, Any]:
    """softmax_k(-alpha |k - t|^2) over the whole grid, q = exp(-alpha)."""
    keys = product(*map(range, size))
    weights = {k: q ** sum((a - b) ** 2 for a, b in zip(k, target, strict=True)) for k in keys}
    total = sum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def smooth(grid: Grid, q: Any, zero: Element, *, exponent: Callable[[int], int] = quadratic) -> Grid:
    """S_row X S_col^T, one axis after the other."""
    rows, columns = len(grid), len(grid[0])
    S_row = [softmax_row(rows, t, q, exponent=exponent) for t in range(rows)]
    S_col = [softmax_row(columns, t, q, exponent=exponent) for t in range(columns)]
    half = [[sum((S_row[t][k] * grid[k][j] for k in range(rows)), zero) for j in range(columns)] for t in range(rows)]
    return [[sum((S_col[t][k] * line[k] for k in range(columns)), zero) for t in range(columns)] for line in half]


def soft_attention(case: Case, s: Symbols, q: Any, *, query: Positions, center: Positions) -> dict[Any, Element]:
    """B + sum_h W_h sum_k p_k x_k, every head with its softmax over all keys: by (output channel, row, column)."""
    values = pad(case, s)
    outputs = {(o, *pixel): s.bias[o] for o in range(case.channels[1]) for pixel in pixels(case.output)}
    for (i, j), (m, n) in product(pixels(case.output), case.taps):
        (row, column), Delta = query(case, (i, j)), center(case, (m, n))
        probabilities = head_probabilities(case.padded, (row + Delta[0], column + Delta[1]), q)
        seen = [sum((p * channel[k[0]][k[1]] for k, p in probabilities.items()), s.zero) for channel in values]
        for o in range(case.channels[1]):
            outputs[o, i, j] += sum((s.weight[o, c, m, n] * seen[c] for c in case.mixed(o)), s.zero)
    return outputs


def smoothed_convolution(case: Case, s: Symbols, q: Any, *, exponent: Callable[[int], int]) -> dict[Any, Element]:
    """Conv_W(S X) on the padded grid: by (output channel, row, column)."""
    smoothed = [smooth(channel, q, s.zero, exponent=exponent) for channel in pad(case, s)]
    return convolution(replace(case, pads=(0, 0, 0, 0), size=case.padded), replace(s, image=smoothed))


def factorisation_failures(
    cases: Iterable[Case] = CASES,
    *,
    query: Positions = query_position,
    center: Positions = head_center,
    exponent: Callable[[int], int] = quadratic,
) -> list[str]:
    """The outputs in which soft attention and the smoothed convolution differ, one for each case."""
    rational, q = field("q", QQ)
    failures = []
    for case in cases:
        s = symbols(case, rational.to_domain())
        expected = soft_attention(case, s, q, query=query, center=center)
        found = smoothed_convolution(case, s, q, exponent=exponent)
        wrong = [index for index, polynomial in expected.items() if polynomial - found[index] != 0]
        failures += [f"{case}: output {index}: attention and smoothed convolution differ" for index in wrong[:1]]
    return failures


def box_failures(
    boxes: Iterable[tuple[Places, Places, Places]] = BOXES,
    *,
    exponent: Callable[[int], int] = quadratic,
    is_renormalised: bool = False,
) -> list[str]:
    """Whether smoothing axis by axis, with the columns of S where x is, reads what a softmax over all keys reads.

    Args:
        boxes: Keys along each axis; along each, the first key with a value, and the step to the next. All others are 0.
        exponent: Of q, in S.
        is_renormalised: Whether the columns that are used sum to 1.
    """
    rational, q = field("q", QQ)
    failures = []
    for size, first, step in boxes:
        columns = [range(start, length, by) for length, start, by in zip(size, first, step, strict=True)]
        seen = list(product(*columns))
        polynomials, *values = ring([f"x{'_'.join(map(str, key))}" for key in seen], rational.to_domain())
        image = dict(zip(seen, values, strict=True))
        for target in product(*map(range, size)):
            probabilities = head_probabilities(size, target, q)
            expected = sum((probabilities[k] * value for k, value in image.items()), polynomials.zero)
            smoothed: dict[Places, Element] = dict(image)
            for length, t, used in zip(size, target, columns, strict=True):  # the first axis that is left
                row = softmax_row(length, t, q, exponent=exponent)
                share = sum(row[k] for k in used) if is_renormalised else 1
                rests = dict.fromkeys(key[1:] for key in smoothed)
                smoothed = {
                    rest: sum((row[k] / share * smoothed[k, *rest] for k in used), polynomials.zero) for rest in rests
                }
            if smoothed[()] != expected:
                failures.append(
                    f"{size} keys, values from {first} on at every {step}: target {target} reads something else"
                )
                break
    return failures


@claim(
    status=Status.COQ,
    scope=r"All heads share $\alpha$, which may be any real number, and sit at the kernel's taps. $X$ is the padded "
    r"image, and the convolution, of any kernel, stride, dilation and number of groups, pads no more. Exact "
    r"arithmetic.",
    justifies=("convert/engines/factored.py: FactoredEngine.attend", "convert/engines/factored.py: Axis.probabilities"),
    coq=("Factorisation.v: smoothing_factorisation",),
    tests=(
        "proofs/claims/test_factorisation.py: test_both_sides_of_the_proof_are_both_engines_of_the_code",
        "convert/engines/test_equivalence.py: test_soft_engines_agree_with_the_literal_one_in_double_precision",
        "proofs/formal/test_formal_bridge.py: test_the_layer_computes_the_numbers_of_the_formal_example",
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
    tests=("convert/engines/test_equivalence.py: test_soft_engines_agree_with_the_literal_one_in_double_precision",),
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
