"""Justifies ``ContentTerms.is_off``: which parameters must vanish for attention to ignore the image.

The draft sets W_{k,E} and W_{k,R} to zero before eq. (8), which removes the positional term as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, combinations
from typing import Any

import sympy as sp

from ...prover.claim import Check, Claim, Formula, Kind, Step
from ...prover.decide import is_zero
from ...prover.formula import lines, show
from ..common.checks import inequalities
from .decomposition import RELATIVE, D_p, E_i, E_j, R, W_kE, W_kR, W_q, d, d_k, total, u, v

PARAMETERS = {str(symbol): symbol for symbol in (W_q, W_kE, W_kR, u, v)}
POSITION_ALONE = (frozenset({"W_q", "W_kE"}), frozenset({"W_q", "u"}))
Positions = tuple[tuple[int, int], ...]
FOUR_POSITIONS: Positions = ((0, 0), (1, 0), (2, 0), (0, 1))
_SIZES = ((1, 1, 1), (2, 2, 3), (3, 2, 3), (2, 3, 3))  # (d, d_k, D_p)


def claims() -> list[Claim]:
    """The claims of this file."""
    return [position_alone()]


def position_alone(
    *,
    vanishing: tuple[frozenset[str], ...] = POSITION_ALONE,
    terms: Mapping[str, Any] = RELATIVE,
    positions: Positions = FOUR_POSITIONS,
) -> Claim:
    """Exactly which parameters must vanish for the positional term alone."""
    content = Formula(
        r"W_q^{\top} W_{kE} = 0,\quad W_{kE}^{\top} u = 0,\quad W_q^{\top} W_{kR} = 0",
        "W_q^T W_kE = 0, W_kE^T u = 0, W_q^T W_kR = 0",
    )
    settings = [" = ".join([*sorted(names, key=list(PARAMETERS).index), "0"]) for names in vanishing]
    latex = [_in_latex(names) for names in vanishing]
    either = Formula(r"\quad\text{or}\quad ".join(latex), " or ".join(settings))
    return Claim(
        name="position-alone",
        title="Which parameters must vanish for the score to depend on the position alone",
        statement=lines(
            Formula(
                rf"A^{{\mathrm{{rel}}}}_{{i,j}} = \text{{(d) for all contents}} \iff {content.latex}",
                f"A_rel = (d) for all contents iff {content.text}",
            ),
            Formula(
                rf"\text{{by setting parameters to zero: }} {either.latex}",
                f"by setting parameters to zero: {either.text}",
            ),
        ),
        assumptions=(
            "As in `decomposition-relative`; the equality is to hold for all $E_i$ and $E_j$, and $(d)$ is to stay "
            "as it is.",
            "The condition on $W_kR$ is needed if the encodings $R$ of the keys span $R^D_p$; with attention in the "
            "place of scores, if their differences do: those of the quadratic encoding do on three pixels along one "
            "axis and two along the other.",
        ),
        steps=_steps(content, either),
        checks=(
            Check(
                "the listed sets of parameters leave $(d)$ and nothing else",
                Kind.SYMBOLIC,
                lambda: _left_over(vanishing, terms),
            ),
            Check("they are the minimal ones", Kind.EXACT, lambda: _not_minimal(vanishing, terms)),
            Check(
                "the coefficients of $(a) + (b) + (c)$ are the entries of the three products",
                Kind.INSTANCES,
                lambda: [failure for size in _SIZES for failure in _other_coefficients(terms, *size)],
                cases=tuple(f"$d = {d}$, $d_k = {d_k}$, $D_p = {D_p}$" for d, d_k, D_p in _SIZES),
            ),
            Check(
                "the differences of the quadratic encodings of four positions span $R^3$",
                Kind.EXACT,
                lambda: _flat(positions),
            ),
        ),
        justifies=(
            "conv2attn.convert.heads.content.ContentTerms.is_off",
            "conv2attn.convert.attention.layer.SelfAttention.add_content",
        ),
        source="draft, before eq. (8), corrected",
        tests=("proofs.claims.test_decomposition.test_the_minimal_sets_turn_the_layers_content_off",),
    )


def _steps(content: Formula, either: Formula) -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"(a) + (b) + (c) = E_i^{\top} (W_q^{\top} W_{kE}) E_j + E_i^{\top} (W_q^{\top} W_{kR}) R"
                r" + (W_{kE}^{\top} u)^{\top} E_j",
                "(a) + (b) + (c) = E_i^T (W_q^T W_kE) E_j + E_i^T (W_q^T W_kR) R + (W_kE^T u)^T E_j",
            ),
            "What must vanish is a polynomial in $E_i$, $E_j$ and $R$, of degree at most 1 in each.",
        ),
        Step(
            content,
            "$E_i = 0$ leaves $(c)$, so $W_kE^T u = 0$. Then $E_j = 0$ leaves $(b)$, so $W_q^T W_kR = 0$ on the span "
            "of $R$. Then $(a)$ is left for all $E_i$ and $E_j$. Conversely, the three conditions make all three "
            "terms zero.",
        ),
        Step(
            Formula(
                r"E_i^{\top} W_q^{\top} W_{kR} (R_{\delta} - R_{\delta'}) = 0",
                "E_i^T W_q^T W_kR (R_delta - R_delta') = 0",
            ),
            "The same for the softmax, which ignores what all keys share: $(a)$ and $(c)$ are not shared unless they "
            "are zero, because every key has its own content; $(b)$ must be the same for all keys.",
        ),
        Step(
            either,
            "The minimal sets of parameters that do it, of all 32 sets. The first is the paper's choice, the second "
            "is how `ContentTerms` starts, and leaves the keys free to learn.",
        ),
        Step(
            Formula(r"W_{kE} = W_{kR} = 0 \implies A^{\mathrm{rel}}_{i,j} = 0", "W_kE = W_kR = 0 implies A_rel = 0"),
            "So what the draft sets to zero before eq. (8) removes $(d)$ as well, and attention is uniform.",
        ),
    )


def _in_latex(names: frozenset[str]) -> str:
    ordered = sorted(names, key=list(PARAMETERS).index)
    return " = ".join([*(show(PARAMETERS[name]).latex for name in ordered), "0"])


def _at_zero(term: Any, names: frozenset[str]) -> Any:
    return term.subs({PARAMETERS[name]: sp.ZeroMatrix(*PARAMETERS[name].shape) for name in names}).doit()


def _leaves_position(names: frozenset[str], terms: Mapping[str, Any]) -> bool:
    """Whether setting these parameters to zero leaves term (d) and nothing else."""
    return all(is_zero(_at_zero(term, names)) == (name != "d") for name, term in terms.items())


def _left_over(vanishing: tuple[frozenset[str], ...], terms: Mapping[str, Any]) -> list[str]:
    pairs = {f"{set(names)} = 0": (_at_zero(total(terms), names), RELATIVE["d"]) for names in vanishing}
    return inequalities(pairs)


def _not_minimal(vanishing: tuple[frozenset[str], ...], terms: Mapping[str, Any]) -> list[str]:
    sufficient = [names for names in _subsets() if _leaves_position(names, terms)]
    minimal = {names for names in sufficient if not any(other < names for other in sufficient)}
    if minimal == set(vanishing):
        return []
    return [f"the minimal sets are {sorted(map(sorted, minimal))}, not {sorted(map(sorted, vanishing))}"]


def _subsets() -> Iterator[frozenset[str]]:
    sizes = range(len(PARAMETERS) + 1)
    return map(frozenset, chain.from_iterable(combinations(PARAMETERS, size) for size in sizes))


def _other_coefficients(terms: Mapping[str, Any], size: int, key_size: int, encoding_size: int) -> list[str]:
    """Coefficients of (a) + (b) + (c) that are not the entries of the three products, for one choice of sizes."""
    values = {d: size, d_k: key_size, D_p: encoding_size}
    explicit = {
        name: sp.Matrix(symbol.subs(values)) for name, symbol in {**PARAMETERS, "i": E_i, "j": E_j, "R": R}.items()
    }
    content = [terms[name].subs(values).as_explicit()[0] for name in "abc"]
    polynomial = sp.Poly(sp.expand(sum(content)), *explicit["i"], *explicit["j"], *explicit["R"])
    key, query = explicit["W_kE"], explicit["W_q"]
    products = (query.T * key, query.T * explicit["W_kR"], key.T * explicit["u"])
    entries = {sp.expand(entry) for product in products for entry in product}
    found = set(map(sp.expand, polynomial.coeffs()))
    return [] if found == entries else [f"{size, key_size, encoding_size}: {found ^ entries} on one side only"]


def _flat(positions: Positions) -> list[str]:
    """Returns a failure unless the differences of the quadratic encodings at these positions span R^3."""
    encoded = [sp.Matrix([row**2 + column**2, row, column]) for row, column in positions]
    differences = sp.Matrix.hstack(*(vector - encoded[0] for vector in encoded[1:]))
    return [] if differences.rank() == 3 else [f"the differences have rank {differences.rank()}, not 3"]
