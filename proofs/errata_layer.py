"""Errata of the draft's section 2.2: the attention layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import sympy
from sympy.matrices.exceptions import ShapeError

from conv2attn.proofs.claim import Formula, Kind
from conv2attn.proofs.decide import Expr, unequal
from conv2attn.proofs.erratum import Erratum

T, D, D_HEAD, HEADS = 7, 5, 2, 3  # different numbers, so that a mix-up shows

Alternative = tuple[tuple[int, int], Callable[[list[Expr]], Expr]]


def name_failures(lists: tuple[Sequence[str], Sequence[str]]) -> list[str]:
    """Whether every parameter is declared once, and exactly the declared ones are used."""
    declared, used = lists
    failures = [
        f"{name} is declared {declared.count(name)} times" for name in set(declared) if declared.count(name) > 1
    ]
    failures += [f"{name} is used and not declared" for name in set(used) - set(declared)]
    return failures + [f"{name} is declared and not used" for name in set(declared) - set(used)]


def logit_failures(logits: Callable[[Expr, Expr, Expr], Expr]) -> list[str]:
    """Whether entry (t, s) is the query of t times the key of s: row t then holds what t gives to each s."""
    X = sympy.Matrix(2, 2, sympy.symbols("x:2:2"))
    W_Q, W_K = (sympy.Matrix(2, 1, sympy.symbols(f"{name}:2")) for name in ("q", "k"))
    found = logits(X, W_Q, W_K)
    failures = []
    for t, s in product(range(2), repeat=2):
        wanted = (X.row(t) * W_Q).dot(X.row(s) * W_K)
        failures += unequal(found[t, s], wanted, f"entry ({t}, {s})")
    return failures


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


def output_failures(layer: Callable[[Expr, Expr, Expr], Expr]) -> list[str]:
    """Whether some v and c make layer(x, v, c) the 1 x 1 convolution w x + b, whatever w and b."""
    x, v, c, w, b = sympy.symbols("x v c w b")
    equations = sympy.Poly(layer(x, v, c) - (w * x + b), x).all_coeffs()
    solutions = sympy.solve(equations, [v, c], dict=True)
    solved = any(all(sympy.expand(equation.subs(s)) == 0 for equation in equations) for s in solutions)
    return [] if solved else [f"{layer(x, v, c)} = w x + b for all x has no solution in v and c"]


def entries() -> list[Erratum]:
    """The entries, in the order of the text."""
    return [_names(), _query_key(), _shapes(), _residual()]


def _names() -> Erratum:
    return Erratum(
        name="parameter-names",
        title="Parameters declared twice, or never",
        where="draft, section 2.2",
        printed=Formula(
            r"W^Q\text{ (query)}, W^V\text{ (key)}, W^V\text{ (value)}, W^Q\text{ (projection)}, W^O;"
            r" \\ W^K, W^Q, W^P, W^O \text{ in eq. (2)-(4)}",
            "declared: W^Q (query), W^V (key), W^V (value), W^Q (projection), W^O; in eq. (2)-(4): W^K, W^Q, W^P, W^O",
        ),
        corrected=Formula(
            r"W^Q, W^K, W^V \in \mathbb{R}^{K \times d \times d_h},\ W^O \in \mathbb{R}^{(K d_h) \times d}",
            "W^Q, W^K, W^V in R^(K x d x d_h) and W^O in R^((K d_h) x d), each used once in eq. (2)-(4)",
        ),
        reason="W^V and W^Q are declared twice, W^K and W^P never; the value layer is not used.",
        consequence="Eq. (3) uses W^V; no further projection is needed beside W^O.",
        holds=name_failures,
        as_printed=(("W^Q", "W^V", "W^V", "W^Q", "W^O"), ("W^K", "W^Q", "W^P", "W^O")),
        as_corrected=(("W^Q", "W^K", "W^V", "W^O"), ("W^Q", "W^K", "W^V", "W^O")),
        kind=Kind.EXACT,
    )


def _query_key() -> Erratum:
    return Erratum(
        name="query-key",
        title="Queries and keys change places",
        where="draft, eq. (2)",
        printed=Formula(r"(X W^K_k)(X W^Q_k)^\top", "(X W^K) (X W^Q)^T"),
        corrected=Formula(r"(X W^Q_k)(X W^K_k)^\top", "(X W^Q) (X W^K)^T"),
        reason="Row t of A_k mixes the values for output t, so t is the query. As printed it holds t's key, and the "
        "softmax over all dimensions but the first adds over queries.",
        consequence="The softmax runs over keys.",
        holds=logit_failures,
        as_printed=lambda X, W_Q, W_K: (X * W_K) * (X * W_Q).T,
        as_corrected=lambda X, W_Q, W_K: (X * W_Q) * (X * W_K).T,
        kind=Kind.INSTANCES,
        cases=("T = d = 2, d_h = 1, symbolic entries",),
    )


def _shapes() -> Erratum:
    return Erratum(
        name="shapes",
        title="Heads are concatenated, not added",
        where="draft, eq. (3)-(4)",
        printed=Formula(
            r"H_{t, :} = \sum_k A_k X W^P_k,\quad Y_{t, :} = H_{t, :} W^O,\quad W^O \in \mathbb{R}^{(K d_h) \times d}",
            "H_t = sum_k A_k X W^P_k, Y_t = H_t W^O, W^O in R^((K d_h) x d)",
        ),
        corrected=Formula(
            r"H = \bigl[ A_1 X W^V_1 \ \cdots \ A_K X W^V_K \bigr] \in \mathbb{R}^{T \times K d_h},\quad Y = H W^O",
            "H = [A_1 X W^V_1 ... A_K X W^V_K] in R^(T x K d_h), Y = H W^O",
        ),
        reason="A sum of heads has d_h columns if W^P is d x d_h, and X W^P does not exist if it is d_h x d, as the "
        "projection is declared. Besides, a row stands on the left and a matrix on the right.",
        consequence="With W^O cut into K blocks, Y = sum_k A_k X W^V_k W^O_k.",
        holds=shape_failures,
        as_printed=(((D, D_HEAD), added), ((D_HEAD, D), added)),
        as_corrected=(((D, D_HEAD), concatenated),),
        kind=Kind.INSTANCES,
        cases=(f"T = {T}, d = {D}, d_h = {D_HEAD}, K = {HEADS}",),
    )


def _residual() -> Erratum:
    return Erratum(
        name="residual",
        title="A residual and no bias",
        where="draft, eq. (4); the article's list of parameters has no output bias either",
        printed=Formula(r"Y_{t, :} = H_{t, :} W^O + X_{t, :}", "Y_t = H_t W^O + X_t"),
        corrected=Formula(r"Y_{t, :} = H_{t, :} W^O + b_{out}", "Y_t = H_t W^O + b_out"),
        reason="X = 0 gives Y = 0, but the convolution of eq. (1) gives b. And X can only be added if C_in = C_out.",
        consequence="The bias of the output projection is the convolution's.",
        holds=output_failures,
        as_printed=lambda x, v, c: v * x + x,
        as_corrected=lambda x, v, c: v * x + c,
        kind=Kind.INSTANCES,
        cases=("one pixel, one channel, symbolic w and b",),
    )
