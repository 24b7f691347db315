"""Errata about the theorem and the attention layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations

import sympy

from ...prover.checks import Expr, unequal
from ...prover.claim import Checks, Status
from ..theorem.one_hot import ALPHA
from .erratum import erratum, readings


def exactness_failures(probability: Callable[[Expr], Expr]) -> list[str]:
    """Whether a target with one other key at distance 1 gets all attention."""
    return unequal(probability(1 / (1 + sympy.exp(-ALPHA))), 1, "the target's probability")


@erratum(
    status=Status.INSTANCES,
    scope="Scores are finite, and probabilities are a softmax of them.",
    source="the published version, the article and the talk, Theorem 1",
)
def errata_limit(
    *,
    printed: Callable[[Expr], Expr] = lambda probability: probability,
    corrected: Callable[[Expr], Expr] = lambda probability: sympy.limit(probability, ALPHA, sympy.oo),
) -> Checks:
    r"""The theorem holds in the limit of large alpha.

    That the layer "can express any convolutional layer of kernel size $\sqrt{N_h} \times \sqrt{N_h}$" is to be read as
    a limit, $\lim_{\alpha \to \infty} p_t = 1$ (`one-hot-limit`); the draft says that $\alpha$ controls how spiky
    attention is. No finite $\alpha$ gives a target all attention, and in exact arithmetic no $K^2$ heads with finite
    scores equal a convolution with $K^2$ independent slices if there are more keys than taps (`head-count-exact`). The
    error is bounded (`error-bound`), and in floating point attention is one-hot from some $\alpha$ on
    (`one-hot-threshold`).
    """
    yield from readings(exactness_failures, printed, corrected, "one other key")


Layer = Callable[[Expr, Expr, Expr], Expr]
Reading = Callable[[list[Expr], tuple[int, ...]], list[Expr]]


def shuffle_failures(expected: Reading) -> list[str]:
    """Whether attention on shuffled pixels is what is expected of its output on the pixels in order."""
    pixels = sympy.symbols("x1:4", real=True)
    output = _attention(pixels)
    failures = []
    for order in permutations(range(3)):
        wanted = expected(output, order)
        for found, value in zip(_attention([pixels[i] for i in order]), wanted, strict=True):
            failures += [] if found == value else [f"order {order}: {found}, not {value}"]
    return failures[:3]


def _attention(x: Sequence[Expr]) -> list[Expr]:
    """One head on scalar pixels, W_qry = W_key = W_val = 1, no positions."""
    weights = [[sympy.exp(query * key) for key in x] for query in x]
    return [sympy.Add(*(w * value for w, value in zip(row, x, strict=True))) / sympy.Add(*row) for row in weights]


@erratum(
    status=Status.INSTANCES,
    scope="The layer has no positional encoding.",
    source="the article, section Relative Positional Encoding",
)
def errata_equivariance(
    *,
    printed: Reading = lambda output, order: output,
    corrected: Reading = lambda output, order: [output[i] for i in order],
) -> Checks:
    r"""Equivariant is not invariant.

    The words "equivariant to reordering, that is, it gives the same output independently of how the input pixels are
    shuffled" hold of one pixel's output, wherever that pixel is put. Of the image of all outputs they say
    $f(P X) = f(X)$, invariant; what holds is $f(P X) = P f(X)$, equivariant.
    """
    yield from readings(shuffle_failures, printed, corrected, "three scalar pixels, all orders")


def output_failures(layer: Layer) -> list[str]:
    """Whether some v and c make layer(x, v, c) the 1 x 1 convolution w x + b, whatever w and b."""
    x, v, c, w, b = sympy.symbols("x v c w b")
    equations = sympy.Poly(layer(x, v, c) - (w * x + b), x).all_coeffs()
    solutions = sympy.solve(equations, [v, c], dict=True)
    solved = any(all(sympy.expand(equation.subs(s)) == 0 for equation in equations) for s in solutions)
    return [] if solved else [f"{layer(x, v, c)} = w x + b for all x has no solution in v and c"]


@erratum(
    status=Status.INSTANCES,
    scope="The convolution has a bias vector.",
    source="the article, section Multi-Head Self-Attention Layer; the draft, eq. (4)",
)
def errata_bias(*, printed: Layer = lambda x, v, c: v * x, corrected: Layer = lambda x, v, c: v * x + c) -> Checks:
    r"""The output needs a bias.

    The layer has key, query and value matrices "along with a projection matrix $W_{out}$", so $X = 0$ gives $Y = 0$,
    where a convolution gives its bias. Read $Y = \operatorname{concat}_h (A_h X W^{(h)}_{val}) W_{out} + b_{out}$, as
    the published version does. A residual as in the draft does no harm if $C_{in} = C_{out}$: the head at $\Delta = 0$
    takes $W_0$ minus the identity.
    """
    yield from readings(output_failures, printed, corrected, "one pixel, one channel, symbolic $w$ and $b$")
