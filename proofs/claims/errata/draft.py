"""Errata of the draft: a condition that is called necessary, and typos."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sympy
from sympy.matrices.exceptions import ShapeError

from ...prover.checks import Expr, unequal
from ...prover.claim import Checks, Status
from .convolution import centred, index_set_failures
from .erratum import erratum, readings


def absolute_failures(suffices: bool) -> list[str]:
    """Whether it is so that absolute encodings (|p|^2, p, 1) give the relative scores up to a constant per query."""
    alpha, k1, k2, q1, q2, D1, D2 = sympy.symbols("alpha k1 k2 q1 q2 Delta1 Delta2", real=True)
    key = sympy.Matrix([k1**2 + k2**2, k1, k2, 1])
    query = sympy.Matrix([q1**2 + q2**2, q1, q2, 1])
    bilinear = alpha * sympy.Matrix([[0, 0, 0, -1], [0, 2, 0, 2 * D1], [0, 0, 2, 2 * D2], [0, 0, 0, 0]])
    relative = -alpha * ((k1 - q1 - D1) ** 2 + (k2 - q2 - D2) ** 2)
    rest = sympy.expand((key.T * bilinear * query)[0, 0] - relative)
    found = not rest.has(k1, k2)
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


K, ALPHA = sympy.Symbol("K", integer=True, positive=True), sympy.Symbol("alpha")
T, D, D_HEAD, HEADS = 7, 5, 2, 3  # different numbers, so that a mix-up shows
DECLARED, USED = ("W^Q", "W^V", "W^V", "W^Q", "W^O"), ("W^K", "W^Q", "W^P", "W^O")
NAMES = ("W^Q", "W^K", "W^V", "W^O")

Lists = tuple[Sequence[str], Sequence[str]]
Alternative = tuple[tuple[int, int], Callable[[list[Expr]], Expr]]


def name_failures(lists: Lists) -> list[str]:
    """Whether every parameter is declared once, and exactly the declared ones are used."""
    declared, used = lists
    repeated = [f"{name} is declared {declared.count(name)} times" for name in NAMES if declared.count(name) > 1]
    return repeated + [f"{name} is declared or used, not both" for name in set(declared) ^ set(used)]


def shape_failures(alternatives: Sequence[Alternative]) -> list[str]:
    """Whether Y = combine(A_k X W_k) W^O has the shape of X for one of the declared shapes of W_k."""
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


def zeroed_failures(zeroed: Collection[str]) -> list[str]:
    """Whether these parameters at zero leave term (d) alone, and whole."""
    vectors = {name: sympy.Matrix(2, 1, sympy.symbols(f"{name}:2")) for name in ("E_i", "E_j", "R", "u", "v")}
    matrices = {name: sympy.Matrix(2, 2, sympy.symbols(f"{name}:2:2")) for name in ("W_q", "W_E", "W_R")}
    before = four_terms({**vectors, **matrices})
    after = four_terms({**vectors, **matrices, **{name: sympy.zeros(2, 2) for name in zeroed}})
    wanted = {"a": 0, "b": 0, "c": 0, "d": before["d"]}
    return [failure for name, term in wanted.items() for failure in unequal(after[name], term, f"term ({name})")]


def product_failures(shape: tuple[int, int]) -> list[str]:
    """Whether R^T t is a number for R and t of this shape."""
    found = (sympy.MatrixSymbol("R", *shape).T * sympy.MatrixSymbol("t", *shape)).shape
    return [] if found == (1, 1) else [f"R^T t has shape {found}"]


def constant_failures(constants: Callable[[Expr], tuple[Expr, Expr]]) -> list[str]:
    """Whether eq. (16) with b = 0 and these a and c is eq. (11)."""
    alpha, x1, x2, m1, m2 = sympy.symbols("alpha x1 x2 mu1 mu2", real=True)
    a, c = constants(alpha)
    general = -(a * (x1 - m1) ** 2 + c * (x2 - m2) ** 2) / 2
    return unequal(general, -alpha * ((x1 - m1) ** 2 + (x2 - m2) ** 2), "eq. (16) minus eq. (11)")


class Typo(NamedTuple):
    """A typo of the draft, as ``readings`` takes it."""

    holds: Callable[[Any], list[str]]
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

    - The taps of eq. (1): for $m, n = {=typos["taps"].printed(K)[0]}, \dots, {=typos["taps"].printed(K)[1]}$ read
      $m, n = {=typos["taps"].corrected(K)[0]}, \dots, {=typos["taps"].corrected(K)[1]}$. There are to be $K^2$.
    - The names of eq. (2)-(4): declared are ${=", ".join(DECLARED)}$, used ${=", ".join(USED)}$. Read
      ${=", ".join(NAMES)}$ for query, key, value and output, each once, as in the article.
    - The heads of eq. (3): for $H = \sum_k A_k X W^P_k$, which has no shape that $W^O$ takes, read
      $H = [A_1 X W^V_1 \ \cdots \ A_K X W^V_K]$.
    - The parameters before eq. (8), which keeps term $(d)$: for $W_{k,E} = W_{k,R} = 0$, which removes it, read
      $W_q = W_{k,E} = 0$ (`position-alone`).
    - The vectors of eq. (14) and (15): for rows, which make $R_x^\top t_h$ a matrix, read columns.
    - The constants of eq. (16) that give eq. (11), beside $b = 0$: for
      $a = c = {=typos["constants"].printed(ALPHA)[0]}$ read $a = c = {=typos["constants"].corrected(ALPHA)[0]}$
      (`gaussian-isotropic`).
    """
    for what, typo in typos.items():
        yield from readings(*typo, what)
