"""Errata of the draft's introduction and section 3: scores and positions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sympy

from ...prover.decide import Expr, unequal
from ...prover.old.claim import Claim, Formula, Kind
from .erratum import Erratum, Finding, Source, claim_of, words


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


def claims() -> list[Claim]:
    """The entries, as claims."""
    return [claim_of(erratum) for erratum in entries()]


def entries() -> list[Erratum]:
    """The entries, in the order of the text."""
    return [_relative(), _zeroed()]


def _relative() -> Erratum:
    return Erratum(
        name="relative",
        title="Positions need not be relative",
        source=Source.DRAFT,
        place="section 1",
        quotation=words("(i) positional encoding must be relative to the position of the computed value"),
        premise="One of the conditions under which attention has the expressive power to encode CNN layers.",
        finding=Finding.SCOPE,
        corrected=Formula(
            r"(|k|^2, k, 1)\, M\, (|q|^2, q, 1)^\top = -\alpha |k - q - \Delta|^2 + \alpha |q + \Delta|^2",
            "(|k|^2, k, 1) M (|q|^2, q, 1)^T = -alpha |k - q - Delta|^2 + alpha |q + Delta|^2 for a matrix M",
        ),
        reason="It is enough, but not necessary: absolute encodings with second-order terms have the same scores, up "
        "to a constant per query.",
        consequence="Relative positions are convenient, not necessary (claim `absolute-positions`).",
        holds=absolute_failures,
        as_printed=False,
        as_corrected=True,
        credit="The author notes of another of these conditions that it is not shown to be necessary.",
    )


def _zeroed() -> Erratum:
    return Erratum(
        name="zeroed-parameters",
        title="Which parameters vanish for term $(d)$ alone",
        source=Source.DRAFT,
        place="section 3, before eq. (8)",
        quotation=words(
            "we set W_{k,E} and W_{k,R} to 0, leaving only the (d) term in equation 7",
            r"\text{``we set } W_{k,E} \text{ and } W_{k,R} \text{ to } 0 \text{, leaving only the (d) term in"
            r" equation 7''}",
        ),
        premise="Term $(d)$ of eq. (7) is $v^T W_{k,R} R$, and eq. (8) keeps it.",
        finding=Finding.MISPRINT,
        corrected=Formula(r"W_q = 0,\ W_{k, E} = 0", "W_q = 0 and W_{k,E} = 0"),
        reason="$W_{k,R} = 0$ removes term $(d)$ with the others.",
        consequence="$W_{k,R}$ stays, and may be the identity.",
        holds=zeroed_failures,
        as_printed=("W_E", "W_R"),
        as_corrected=("W_q", "W_E"),
        kind=Kind.INSTANCES,
        cases=("all dimensions 2, symbolic entries",),
    )
