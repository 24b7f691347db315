"""Justifies ``convert/heads/content.py``: the attention scores are sums of four terms.

Matrices and vectors are symbols with symbolic dimensions, so the identities hold for every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from ...prover.checks import all_equal, equal
from ...prover.claim import Checks, Status, claim
from ...prover.document import latex

d, d_k, D_p = sp.symbols("d d_k D_p", integer=True, positive=True)
E_i, E_j, U_i, U_j = (sp.MatrixSymbol(name, d, 1) for name in ("E_i", "E_j", "U_i", "U_j"))
W_q, W_k, W_kE = (sp.MatrixSymbol(name, d_k, d) for name in ("W_q", "W_k", "W_kE"))
W_kR, R = sp.MatrixSymbol("W_kR", d_k, D_p), sp.MatrixSymbol("R", D_p, 1)
u, v = sp.MatrixSymbol("u", d_k, 1), sp.MatrixSymbol("v", d_k, 1)

ABSOLUTE = {
    "a": E_i.T * W_q.T * W_k * E_j,
    "b": E_i.T * W_q.T * W_k * U_j,
    "c": U_i.T * W_q.T * W_k * E_j,
    "d": U_i.T * W_q.T * W_k * U_j,
}
RELATIVE = {"a": E_i.T * W_q.T * W_kE * E_j, "b": E_i.T * W_q.T * W_kR * R, "c": u.T * W_kE * E_j, "d": v.T * W_kR * R}


def total(terms: Mapping[str, Any]) -> Any:
    """The sum of the terms."""
    return sp.MatAdd(*terms.values())


def named(terms: Mapping[str, Any]) -> str:
    """The LaTeX of the sum, each term with its name under it."""
    return " + ".join(rf"\underbrace{{{latex(term)}}}_{{({name})}}" for name, term in terms.items())


@claim(
    status=Status.ALGEBRA,
    scope=r"Contents $E_i$, $E_j$ and positions $U_i$, $U_j$ in $\mathbb{R}^d$; any $d_k \times d$ matrices.",
    source="draft, eq. (5)",
    justifies=("convert/heads/content.py: ContentTerms.scores",),
    tests=("proofs/claims/test_false_variants.py",),
    is_lemma=True,
)
def decomposition_absolute(*, terms: Mapping[str, Any] = ABSOLUTE) -> Checks:
    r"""With absolute positions, the score is a sum of four terms.

    The projected query times the projected key is linear in both, so

    ```math
    A^{\mathrm{abs}}_{i,j} = {=product} = {=named(terms)} .
    ```
    """
    product = (E_i + U_i).T * W_q.T * W_k * (E_j + U_j)
    yield equal("multiplied out, the product is the four terms", product, total(terms))


@claim(
    status=Status.ALGEBRA,
    scope=r"The encoding $R$ of a relative position in $\mathbb{R}^{D_p}$; parameters $u$, $v$ in $\mathbb{R}^{d_k}$.",
    source="draft, eq. (7) and (8)",
    justifies=("convert/heads/content.py: ContentTerms.scores",),
    tests=("proofs/claims/test_decomposition.py",),
    is_lemma=True,
)
def decomposition_relative(*, terms: Mapping[str, Any] = RELATIVE) -> Checks:
    r"""With relative positions, the four terms are two products.

    Eq. (7) puts $W_{kE} E_j$ for the projected content of the key, $W_{kR} R$ for its projected position, and $u$ in
    $(c)$, $v$ in $(d)$ for the projected position of the query. This is a definition, not an identity. It gives

    ```math
    A^{\mathrm{rel}}_{i,j} = {=named(terms)} = {=computed} .
    ```

    Term $(d)$ is $v_h \cdot R$ with $v_h = W_{kR}^\top v$; with $W_{kR} = I$, every vector is such a $v_h$.
    """
    position = U_i.T * W_q.T
    replaced = {
        "a": ABSOLUTE["a"].subs(W_k, W_kE),
        "b": _replace(ABSOLUTE["b"], {W_k * U_j: W_kR * R}),
        "c": _replace(ABSOLUTE["c"].subs(W_k, W_kE), {position: u.T}),
        "d": _replace(ABSOLUTE["d"], {position: v.T, W_k * U_j: W_kR * R}),
    }
    computed = (W_q * E_i + u).T * W_kE * E_j + (W_q * E_i + v).T * W_kR * R
    any_vector = sp.MatrixSymbol("t", D_p, 1)
    learned = terms["d"].subs({W_kR: sp.Identity(D_p), v: any_vector}) if terms["d"].has(W_kR) else terms["d"]
    yield all_equal(
        "each term of eq. (7) is that of eq. (5) after the replacement",
        {f"term ({name})": (terms[name], replaced[name]) for name in terms},
    )
    yield equal("the two products are the four terms", computed, total(terms))
    yield equal("with $W_{kR} = I$ and $v = t$, term $(d)$ is $t \\cdot R$", learned, any_vector.T * R)


def _replace(product: Any, replacements: Mapping[Any, Any]) -> Any:
    """A product with neighbouring factors replaced, such as W_k U_j by W_kR R."""
    factors = list(product.args)
    for old, new in replacements.items():
        length = len(old.args)
        at = next(n for n in range(len(factors)) if tuple(factors[n : n + length]) == old.args)
        factors[at : at + length] = [new]
    return sp.MatMul(*factors).doit()
