"""Each place where a text of the paper is wrong: the words as printed, the checked correction.

An erratum is a test of a passage that its words as printed fail and its corrected words pass, so it can be wrong in
either direction, and is then refused. Conventions, names, and conditions that are called necessary and are necessary,
are no errata.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import sympy
from sympy.matrices.exceptions import ShapeError

from ...prover.checks import Expr, unequal
from ...prover.claim import Check, Checks, Failures, Status, claim
from ..common.scores import Point, alpha, minus, squared_distance
from ..common.small import Case, Keys, padded_keys
from ..other_encodings.gaussian import EXPONENT, a, b, c, mu_1, mu_2, x_1, x_2
from ..theorem.absolute import KEY_WEIGHT, QUERY_WEIGHT, appended, k_1, k_2, q_1, q_2
from ..theorem.assembly import assembly_failures
from ..theorem.encoding import CENTER
from ..theorem.one_hot import ALPHA

erratum = partial(claim, tests=("proofs/claims/test_errata.py",), is_lemma=True)


def readings(
    holds: Callable[[Any], Failures], printed: Any, corrected: Any, cases: str = "", what: str = "words"
) -> Checks:
    """The two checks of an erratum.

    Args:
        holds: What is wrong with a reading, empty if it holds.
        printed: The reading as printed.
        corrected: The corrected reading.
        cases: What the test of the corrected reading covers; empty if all.
        what: What is read, in the plural.
    """
    yield Check(
        f"the {what} as printed fail", lambda: [] if any(holds(printed)) else ["what is printed passes the test"]
    )
    yield Check(f"the {what} as corrected hold", partial(holds, corrected), cases)


# The published version, Theorem 1 and the attention layer


def exactness_failures(probability: Callable[[Expr], Expr]) -> Failures:
    """Fails unless a target with one other key at distance 1 gets all attention."""
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
    attention is. No finite $\alpha$ gives a target all attention, since every key keeps some. The error is
    bounded (`error-bound`), and in floating point attention is one-hot from some $\alpha$ on
    (`one-hot-threshold`).
    """
    yield from readings(exactness_failures, printed, corrected, "one other key")


Layer = Callable[[Expr, Expr, Expr], Expr]
Reading = Callable[[list[Expr], tuple[int, ...]], list[Expr]]


def shuffle_failures(expected: Reading) -> Failures:
    """Fails unless attention on shuffled pixels is what is expected of its output on the pixels in order."""
    pixels = sympy.symbols("x1:4", real=True)
    output = _attention(pixels)
    for order in permutations(range(3)):
        wanted = expected(output, order)
        for found, value in zip(_attention([pixels[i] for i in order]), wanted, strict=True):
            if found != value:
                yield f"order {order}: {found}, not {value}"


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


def output_failures(layer: Layer) -> Failures:
    """Fails unless some v and c make layer(x, v, c) the 1 x 1 convolution w x + b, whatever w and b."""
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


# The convolution: the shifts of an even kernel, and what lies outside the image

KERNEL_SIZE = sympy.Symbol("K", integer=True, positive=True)
BORDER = Case.sized((2, 3), (3, 3), pads=((1, 1), (1, 1)))

IndexSet = Callable[[Expr], tuple[Expr, Expr]]


def centred(K: Expr) -> tuple[Expr, Expr]:
    """-floor((K - 1) / 2), ..., floor(K / 2)."""
    return -sympy.floor((K - 1) / 2), sympy.floor(K / 2)


def index_set_failures(ends: IndexSet) -> Failures:
    """Fails unless first, ..., last are K integers, 0 among them, for odd and for even K."""
    m = sympy.Symbol("m", integer=True, nonnegative=True)
    for K in (2 * m + 1, 2 * m + 2):
        first, last = ends(K)
        yield from unequal(last - first + 1, K, f"number of taps for K = {K}")
        if not (sympy.simplify(-first).is_nonnegative and sympy.simplify(last).is_nonnegative):
            yield f"K = {K}: 0 is not in {{{first}, ..., {last}}}"


@erratum(
    status=Status.ALGEBRA,
    scope=r"Kernels of size $K \times K$; the examples have $K = 3$.",
    source="the published version, section 2; the article, section Convolutional Layer",
)
def errata_even_kernels(
    *, printed: IndexSet = lambda K: (-sympy.floor(K / 2), sympy.floor(K / 2)), corrected: IndexSet = centred
) -> Checks:
    r"""Shifts of an even kernel.

    For $\Delta_1, \Delta_2 = {=printed(KERNEL_SIZE)[0]}, \dots, {=printed(KERNEL_SIZE)[1]}$ read
    $\Delta_1, \Delta_2 = {=corrected(KERNEL_SIZE)[0]}, \dots, {=corrected(KERNEL_SIZE)[1]}$. These agree for odd $K$;
    for even $K$ the first are $(K + 1)^2$ shifts, not $K^2$. The query sits under the middle tap (`head-assembly`).
    """
    yield from readings(index_set_failures, printed, corrected)


def key_failures(keys: Keys) -> Failures:
    """Fails unless one-hot attention over these pixels is the convolution at the border."""
    return assembly_failures([BORDER], keys=keys)


def image_keys(case: Case) -> list[Point]:
    """The pixels of the image itself, in coordinates of the padded image."""
    return [case.along(lambda axis, pixel: axis.before + pixel, pixel) for pixel in case.pixels]


@erratum(
    status=Status.INSTANCES,
    scope="Attention is over the pixels of $X$, and $Y_{i,j}$ is meant at the border, too.",
    source="draft, section 2.1, eq. (1); the article and the talk do not say it either",
)
def errata_border(*, printed: Keys = image_keys, corrected: Keys = padded_keys) -> Checks:
    r"""The pixels outside the image are not defined.

    $Y_{i,j,:} = b + \sum_{m,n} W_{m,n,:,:} X_{i+m,j+n,:}$ does not say what $X$ is outside the image. If the target is
    no key, the softmax tends to the nearest pixels instead of to nothing. The keys are to be all pixels of the padded
    input, whose zeros have the value 0 (`head-assembly`); the published version has a remark on padding.
    """
    yield from readings(key_failures, printed, corrected, "3x3 taps, 2x3 pixels")


# The draft: a condition that is called necessary, and typos


def absolute_failures(suffices: bool) -> Failures:
    """Fails unless ``suffices`` says if absolute encodings (|p|^2, p, 1) give the relative scores up to a constant."""
    query = QUERY_WEIGHT * sympy.Matrix(appended(q_1, q_2))
    key = KEY_WEIGHT * sympy.Matrix(appended(k_1, k_2))
    relative = -alpha * squared_distance(minus((k_1, k_2), (q_1, q_2)), CENTER)
    rest = sympy.expand(query.dot(key) - relative)
    found = not rest.has(k_1, k_2)
    return [] if found == suffices else [f"absolute minus relative score is {rest}; free of the key: {found}"]


@erratum(
    status=Status.ALGEBRA,
    scope="One of the conditions under which attention is said to have the expressive power to encode CNN layers.",
    source="draft, section 1",
)
def errata_relative(*, printed: bool = False, corrected: bool = True) -> Checks:
    r"""Positions need not be relative.

    That "(i) positional encoding must be relative to the position of the computed value" is not so: absolute encodings
    with second-order terms have the same scores up to a constant for each query (`absolute-positions`),

    ```math
    (|k|^2, k, 1)\, M\, (|q|^2, q, 1)^\top = -\alpha |k - q - \Delta|^2 + \alpha |q + \Delta|^2 .
    ```

    Of another of these conditions the author notes that it is not shown to be necessary.
    """
    yield from readings(absolute_failures, printed, corrected)


STRENGTH = sympy.Symbol("alpha")
T, D, D_HEAD, HEADS = 7, 5, 2, 3  # different numbers, so that a mix-up shows
DECLARED, USED = ("W^Q", "W^V", "W^V", "W^Q", "W^O"), ("W^K", "W^Q", "W^P", "W^O")
NAMES = ("W^Q", "W^K", "W^V", "W^O")

Lists = tuple[Sequence[str], Sequence[str]]
Alternative = tuple[tuple[int, int], Callable[[list[Expr]], Expr]]


def name_failures(lists: Lists) -> Failures:
    """Fails unless every parameter is declared once, and exactly the declared ones are used."""
    declared, used = lists
    repeated = [f"{name} is declared {declared.count(name)} times" for name in NAMES if declared.count(name) > 1]
    return repeated + [f"{name} is declared or used, not both" for name in set(declared) ^ set(used)]


def shape_failures(alternatives: Sequence[Alternative]) -> Failures:
    """Fails unless Y = combine(A_k X W_k) W^O has the shape of X for one of the declared shapes of W_k."""
    failures = []
    for shape, combine in alternatives:
        try:
            X, W_O = sympy.MatrixSymbol("X", T, D), sympy.MatrixSymbol("W_O", HEADS * D_HEAD, D)
            heads = [sympy.MatrixSymbol(f"A{k}", T, T) * X * sympy.MatrixSymbol(f"W{k}", *shape) for k in range(HEADS)]
            output = combine(heads) * W_O
        except ShapeError as error:
            failures.append(f"W_k of shape {shape}: {error}")
        else:
            return [] if output.shape == (T, D) else [f"the output has shape {output.shape}"]
    return failures


def concatenated(heads: list[Expr]) -> Expr:
    """The heads side by side."""
    return sympy.BlockMatrix([heads])


def added(heads: list[Expr]) -> Expr:
    """The sum of the heads."""
    return sympy.MatAdd(*heads)


def four_terms(values: dict[str, Any]) -> dict[str, Expr]:
    """Terms (a) to (d) of eq. (7)."""
    E_i, E_j, R, u, v, W_q, W_E, W_R = (values[name] for name in ("E_i", "E_j", "R", "u", "v", "W_q", "W_E", "W_R"))
    query = W_q * E_i
    terms = {"a": query.T * W_E * E_j, "b": query.T * W_R * R, "c": u.T * W_E * E_j, "d": v.T * W_R * R}
    return {name: sympy.expand(term[0, 0]) for name, term in terms.items()}


def zeroed_failures(zeroed: Collection[str]) -> Failures:
    """Fails unless these parameters at zero leave term (d) alone, and whole."""
    vectors = {name: sympy.Matrix(2, 1, sympy.symbols(f"{name}:2")) for name in ("E_i", "E_j", "R", "u", "v")}
    matrices = {name: sympy.Matrix(2, 2, sympy.symbols(f"{name}:2:2")) for name in ("W_q", "W_E", "W_R")}
    before = four_terms({**vectors, **matrices})
    after = four_terms({**vectors, **matrices, **{name: sympy.zeros(2, 2) for name in zeroed}})
    wanted = {"a": 0, "b": 0, "c": 0, "d": before["d"]}
    return [failure for name, term in wanted.items() for failure in unequal(after[name], term, f"term ({name})")]


def product_failures(shape: tuple[int, int]) -> Failures:
    """Fails unless R^T t is a number for R and t of this shape."""
    found = (sympy.MatrixSymbol("R", *shape).T * sympy.MatrixSymbol("t", *shape)).shape
    return [] if found == (1, 1) else [f"R^T t has shape {found}"]


def constant_failures(constants: Callable[[Expr], tuple[Expr, Expr]]) -> Failures:
    """Fails unless eq. (16) with b = 0 and these a and c is eq. (11)."""
    first, last = constants(alpha)
    general = EXPONENT.subs({a: first, b: 0, c: last})
    return unequal(general, -alpha * squared_distance((x_1, x_2), (mu_1, mu_2)), "eq. (16) minus eq. (11)")


class Typo(NamedTuple):
    """A typo of the draft, as ``readings`` takes it."""

    holds: Callable[[Any], Failures]
    printed: Any
    corrected: Any
    cases: str = ""


TYPOS = {
    "taps": Typo(index_set_failures, lambda K: (sympy.floor((K - 1) / 2), sympy.floor(K / 2)), centred),
    "names": Typo(name_failures, (DECLARED, USED), (NAMES, NAMES)),
    "heads": Typo(
        shape_failures,
        (((D, D_HEAD), added), ((D_HEAD, D), added)),
        (((D, D_HEAD), concatenated),),
        f"$T = {T}$, $d = {D}$, $d_h = {D_HEAD}$, $K = {HEADS}$",
    ),
    "parameters": Typo(zeroed_failures, ("W_E", "W_R"), ("W_q", "W_E"), "all dimensions 2, symbolic entries"),
    "vectors": Typo(product_failures, (1, 10), (10, 1)),
    "constants": Typo(constant_failures, lambda alpha: (alpha, alpha), lambda alpha: (2 * alpha, 2 * alpha)),
}


@erratum(
    status=Status.INSTANCES,
    scope="The draft's sections 2.1 to 3.2; its author's note beside eq. (2)-(4) asks for checking.",
    source="draft",
)
def errata_draft(*, typos: Mapping[str, Typo] = TYPOS) -> Checks:
    r"""Typos of the draft.

    - The taps of eq. (1): for $m, n = {=printed_taps[0]}, \dots, {=printed_taps[1]}$ read
      $m, n = {=taps[0]}, \dots, {=taps[1]}$. There are to be $K^2$.
    - The names of eq. (2)-(4): declared are ${=", ".join(DECLARED)}$, used ${=", ".join(USED)}$. Read
      ${=", ".join(NAMES)}$ for query, key, value and output, each once, as in the article.
    - The heads of eq. (3): for $H = \sum_k A_k X W^P_k$, which has no shape that $W^O$ takes, read
      $H = [A_1 X W^V_1 \ \cdots \ A_K X W^V_K]$.
    - The parameters before eq. (8), which keeps term $(d)$: for $W_{k,E} = W_{k,R} = 0$, which removes it, read
      $W_q = W_{k,E} = 0$ (`position-alone`).
    - The vectors of eq. (14) and (15): for rows, which make $R_x^\top t_h$ a matrix, read columns.
    - The constants of eq. (16) that give eq. (11), beside $b = 0$: for
      $a = c = {=typos["constants"].printed(STRENGTH)[0]}$ read $a = c = {=typos["constants"].corrected(STRENGTH)[0]}$
      (`gaussian-isotropic`).
    """
    printed_taps = typos["taps"].printed(KERNEL_SIZE)
    taps = typos["taps"].corrected(KERNEL_SIZE)
    for what, typo in typos.items():
        yield from readings(*typo, what)
