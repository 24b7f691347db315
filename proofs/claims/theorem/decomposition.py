"""Justifies ``convert/heads/content.py``: the attention scores are sums of four terms.

Matrices and vectors are symbols with symbolic dimensions, so the identities hold for every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from ...prover.claim import Claim, Formula, Step
from ...prover.formula import lines, relate, show
from ..common.checks import identities, identity

d, d_k, D_p = sp.symbols("d d_k D_p", integer=True, positive=True)
E_i, E_j, U_i, U_j = (sp.MatrixSymbol(name, d, 1) for name in ("E_i", "E_j", "U_i", "U_j"))
W_q, W_k, W_kE = (sp.MatrixSymbol(name, d_k, d) for name in ("W_q", "W_k", "W_kE"))
W_kR, R = sp.MatrixSymbol("W_kR", d_k, D_p), sp.MatrixSymbol("R", D_p, 1)
u, v = sp.MatrixSymbol("u", d_k, 1), sp.MatrixSymbol("v", d_k, 1)
PARAMETERS = {str(symbol): symbol for symbol in (W_q, W_kE, W_kR, u, v)}

ABSOLUTE = {
    "a": E_i.T * W_q.T * W_k * E_j,
    "b": E_i.T * W_q.T * W_k * U_j,
    "c": U_i.T * W_q.T * W_k * E_j,
    "d": U_i.T * W_q.T * W_k * U_j,
}
RELATIVE = {
    "a": E_i.T * W_q.T * W_kE * E_j,
    "b": E_i.T * W_q.T * W_kR * R,
    "c": u.T * W_kE * E_j,
    "d": v.T * W_kR * R,
}
_ABS, _REL = Formula(r"A^{\mathrm{abs}}_{i,j}", "A_abs"), Formula(r"A^{\mathrm{rel}}_{i,j}", "A_rel")


def claims() -> list[Claim]:
    """The claims of this file."""
    return [absolute_terms(), relative_terms()]


def absolute_terms(*, terms: Mapping[str, Any] = ABSOLUTE) -> Claim:
    """Queries and keys that are sums of content and position score with four terms, eq. (5)."""
    product = (E_i + U_i).T * W_q.T * W_k * (E_j + U_j)
    return Claim(
        name="decomposition-absolute",
        title="The score is a sum of four terms",
        statement=lines(relate(_ABS, product), _sum_of(terms)),
        assumptions=(
            "$E_i$ and $E_j$ are the contents of query $i$ and key $j$, $U_i$ and $U_j$ their absolute positions, in "
            "$R^d$.",
            "$W_q$ and $W_k$ are any $d_k x d$ matrices, for any $d$ and $d_k$.",
        ),
        steps=(
            Step(relate(_ABS, product), "The definition: the projected query times the projected key."),
            Step(
                _sum_of(terms),
                "The product is linear in its first and in its last factor: terms $(a)$, $(b)$, $(c)$, $(d)$.",
            ),
        ),
        checks=(identity("multiplied out, the product is the four terms", product, total(terms)),),
        justifies=("conv2attn.convert.heads.content.ContentTerms.scores",),
        source="draft, eq. (5)",
        tests=("proofs.claims.test_decomposition.test_the_true_claims_are_proved",),
    )


def relative_terms(*, terms: Mapping[str, Any] = RELATIVE) -> Claim:
    """Eq. (7) is eq. (5) with relative positions, and is computed as two products."""
    position = U_i.T * W_q.T
    replaced = {
        "a": ABSOLUTE["a"].subs(W_k, W_kE),
        "b": _replace(ABSOLUTE["b"], {W_k * U_j: W_kR * R}),
        "c": _replace(ABSOLUTE["c"].subs(W_k, W_kE), {position: u.T}),
        "d": _replace(ABSOLUTE["d"], {position: v.T, W_k * U_j: W_kR * R}),
    }
    computed = (W_q * E_i + u).T * W_kE * E_j + (W_q * E_i + v).T * W_kR * R
    t = sp.MatrixSymbol("t", D_p, 1)
    learned = terms["d"].subs({W_kR: sp.Identity(D_p), v: t}) if terms["d"].has(W_kR) else terms["d"]
    return Claim(
        name="decomposition-relative",
        title="The four terms with relative positions",
        statement=lines(_sum_of(terms, _REL), relate(Formula("", ""), computed)),
        assumptions=(
            "$R$ is the encoding of the relative position, in $R^D_p$; $W_kE$ is $d_k x d$, $W_kR$ is $d_k x D_p$.",
            "$u$ and $v$, in $R^d_k$, are parameters.",
        ),
        steps=_steps(terms, computed),
        checks=(
            identities(
                "each term of eq. (7) is that of eq. (5) after the replacement",
                lambda: {f"term ({name})": (terms[name], replaced[name]) for name in terms},
            ),
            identity("the two products are the four terms", computed, total(terms)),
            identity("with $W_kR = I$ and $v = t$, term $(d)$ is $t . R$", learned, t.T * R),
        ),
        justifies=("conv2attn.convert.heads.content.ContentTerms.scores",),
        source="draft, eq. (7) and (8)",
        tests=("proofs.claims.test_decomposition.test_the_content_terms_compute_the_proved_expressions",),
    )


def _steps(terms: Mapping[str, Any], computed: Any) -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"W_k E_j \to W_{kE} E_j,\quad W_k U_j \to W_{kR} R,\quad "
                r"U_i^{\top} W_q^{\top} \to u^{\top} \text{ in (c)},\ v^{\top} \text{ in (d)}",
                "W_k E_j -> W_kE E_j, W_k U_j -> W_kR R, U_i^T W_q^T -> u^T in (c), v^T in (d)",
            ),
            "What eq. (7) replaces in eq. (5): it is a new definition, term by term, not an identity.",
        ),
        Step(_sum_of(terms, _REL), "Eq. (7)."),
        Step(
            relate(Formula("", ""), computed),
            "$(a)$ and $(c)$ share the projected key, $(b)$ and $(d)$ the projected position.",
        ),
        Step(
            Formula(r"v_h = W_{kR}^{\top} v", "v_h = W_kR^T v"),
            "Term $(d)$ is $v_h . R$. With $W_kR = I$ every vector of $R^D_p$ is such a $v_h$, so one learns $v_h$ "
            "itself: the draft's $t_h$.",
        ),
    )


def total(terms: Mapping[str, Any]) -> Any:
    """The sum of the terms."""
    return sp.MatAdd(*terms.values())


def _sum_of(terms: Mapping[str, Any], left: Formula | None = None) -> Formula:
    """The terms with their names under them."""
    shown = {name: show(term) for name, term in terms.items()}
    latex = " + ".join(rf"\underbrace{{{term.latex}}}_{{({name})}}" for name, term in shown.items())
    text = " + ".join(f"{term.text} ({name})" for name, term in shown.items())
    start = left or Formula("", "")
    return Formula(f"{start.latex} = {latex}", f"{start.text} = {text}".strip())


def _replace(product: Any, replacements: Mapping[Any, Any]) -> Any:
    """A product with neighbouring factors replaced, such as W_k U_j by W_kR R."""
    factors = list(product.args)
    for old, new in replacements.items():
        length = len(old.args)
        at = next(n for n in range(len(factors)) if tuple(factors[n : n + length]) == old.args)
        factors[at : at + length] = [new]
    return sp.MatMul(*factors).doit()
