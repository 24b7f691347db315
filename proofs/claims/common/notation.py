"""The symbols that several claims share, and what they mean."""

from __future__ import annotations

import sympy as sp

from ...prover.claim import Formula

alpha = sp.Symbol("alpha", real=True)
delta_1, delta_2, Delta_1, Delta_2 = sp.symbols("delta_1 delta_2 Delta_1 Delta_2", real=True)

SCORE = Formula(r"v_h \cdot r_{\delta}", "v_h . r_delta")

NOTATION = (
    (Formula("q, k", "q, k"), "positions of a query and of a key on the padded input, a number for each axis"),
    (Formula(r"\delta = k - q", "delta = k - q"), "relative position"),
    (Formula(r"\Delta_h", "Delta_h"), "centre of attention of head $h$: the offset of the kernel tap that it plays"),
    (Formula(r"\alpha_h", "alpha_h"), "locality strength of head $h$; the index is left out where one head is meant"),
    (Formula(r"r_{\delta} \in \mathbb{R}^{D_p}", "r_delta in R^D_p"), "relative positional encoding"),
    (Formula(r"v_h \in \mathbb{R}^{D_p}", "v_h in R^D_p"), "the vector that head $h$ compares $r_delta$ with"),
    (Formula(r"W_{\Delta}", "W_Delta"), "slice of the kernel at tap $Delta$, $C_out x C_in$"),
)
