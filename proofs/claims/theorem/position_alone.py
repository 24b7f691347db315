"""Justifies ``ContentTerms.is_off``: which parameters must vanish for attention to ignore the image."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations
from typing import Any

import sympy as sp

from ...prover.checks import all_equal, is_zero
from ...prover.claim import Check, Checks, Failures, Status, claim
from ...prover.document import latex
from ..common.scores import encoding, minus
from .decomposition import RELATIVE, D_p, E_i, E_j, R, W_kE, W_kR, W_q, d, d_k, total, u, v

PARAMETERS = {str(symbol): symbol for symbol in (W_q, W_kE, W_kR, u, v)}
POSITION_ALONE = (frozenset({"W_q", "W_kE"}), frozenset({"W_q", "u"}))
Positions = tuple[tuple[int, int], ...]
FOUR_POSITIONS: Positions = ((0, 0), (1, 0), (2, 0), (0, 1))
_SIZES = ((1, 1, 1), (2, 2, 3), (3, 2, 3), (2, 3, 3))  # (d, d_k, D_p)


@claim(
    status=Status.INSTANCES,
    scope=r"Scores as in `decomposition-relative`, equal to $(d)$ for all contents $E_i$ and $E_j$, with $(d)$ as it "
    r"is. The condition on $W_{kR}$ is needed if the encodings of the keys span $\mathbb{R}^{D_p}$; for "
    r"attention in the place of scores, if their differences do.",
    source="draft, before eq. (8), corrected",
    justifies=("convert/heads/content.py: ContentTerms.is_off", "convert/layer/layer.py: SelfAttention.add_content"),
    tests=("proofs/claims/test_decomposition.py",),
)
def position_alone(
    *,
    vanishing: tuple[frozenset[str], ...] = POSITION_ALONE,
    terms: Mapping[str, Any] = RELATIVE,
    positions: Positions = FOUR_POSITIONS,
) -> Checks:
    r"""Which parameters must vanish for the score to depend on the position alone.

    ```math
    A^{\mathrm{rel}}_{i,j} = (d) \text{ for all contents}
    \iff W_q^\top W_{kE} = 0,\quad W_{kE}^\top u = 0,\quad W_q^\top W_{kR} = 0 .
    ```

    By setting parameters to zero: ${=either}$, and no smaller set does it. The first is the paper's choice; the second
    is how `ContentTerms` starts, and leaves the keys free to learn.

    **Proof.** What must vanish is a polynomial in $E_i$, $E_j$ and $R$, of degree at most 1 in each:

    ```math
    (a) + (b) + (c) = E_i^\top (W_q^\top W_{kE}) E_j + E_i^\top (W_q^\top W_{kR}) R + (W_{kE}^\top u)^\top E_j .
    ```

    $E_i = 0$ leaves $(c)$, so $W_{kE}^\top u = 0$; then $E_j = 0$ leaves $(b)$, so $W_q^\top W_{kR} = 0$ on the span
    of $R$; then $(a)$ is left for all contents. The converse is clear. The softmax ignores what all keys share: $(a)$
    and $(c)$ are not shared unless they are zero, because every key has its own content, and $(b)$ must not depend on
    the key, so $R$ is replaced by differences. Those of the quadratic encoding span $\mathbb{R}^3$ on three pixels
    along one axis and two along the other. So $W_{kE} = W_{kR} = 0$, which the draft sets before eq. (8), removes
    $(d)$ as well: attention is uniform.
    """
    either = r"\ \text{or}\ ".join(
        " = ".join([*(latex(PARAMETERS[name]) for name in sorted(names, key=list(PARAMETERS).index)), "0"])
        for names in vanishing
    )
    yield all_equal(
        "the listed sets of parameters leave $(d)$ and nothing else",
        lambda: {f"{set(names)} = 0": (_at_zero(total(terms), names), RELATIVE["d"]) for names in vanishing},
    )
    yield Check("they are the minimal ones of all 32 sets", lambda: _not_minimal(vanishing, terms))
    yield Check(
        "the coefficients of $(a) + (b) + (c)$ are the entries of the three products",
        lambda: [failure for size in _SIZES for failure in _other_coefficients(terms, *size)],
        f"{len(_SIZES)} choices of $d$, $d_k$ and $D_p$",
    )
    yield Check("the differences of the encodings of four positions span $\\mathbb{R}^3$", lambda: _flat(positions))


def _at_zero(term: Any, names: frozenset[str]) -> Any:
    return term.subs({PARAMETERS[name]: sp.ZeroMatrix(*PARAMETERS[name].shape) for name in names}).doit()


def _not_minimal(vanishing: tuple[frozenset[str], ...], terms: Mapping[str, Any]) -> Failures:
    """Fails unless these are the smallest sets of parameters that, set to zero, leave term (d) and nothing else."""
    sizes = range(len(PARAMETERS) + 1)
    subsets = map(frozenset, chain.from_iterable(combinations(PARAMETERS, size) for size in sizes))
    sufficient = [
        names
        for names in subsets
        if all(is_zero(_at_zero(term, names)) == (name != "d") for name, term in terms.items())
    ]
    minimal = {names for names in sufficient if not any(other < names for other in sufficient)}
    if minimal == set(vanishing):
        return []
    return [f"the minimal sets are {sorted(map(sorted, minimal))}, not {sorted(map(sorted, vanishing))}"]


def _other_coefficients(terms: Mapping[str, Any], size: int, key_size: int, encoding_size: int) -> Failures:
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


def _flat(positions: Positions) -> Failures:
    first, *others = map(encoding, positions)
    differences = sp.Matrix([minus(vector, first) for vector in others])
    return [] if differences.rank() == 3 else [f"the differences have rank {differences.rank()}, not 3"]
