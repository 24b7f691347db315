"""From the tail to the certificate: how far soft attention can be from the convolution in exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from ...prover.decide import Expr, not_nonnegative, unequal
from ...prover.old.claim import Check, Claim, Formula, Kind, Step

KEY_COUNTS = (1, 2, 3, 5, 8)


def read_error(probabilities: Iterable[Expr], differences: Iterable[Expr], target_value: Expr) -> Expr:
    """sum_k p_k x_k - x_t, with p_t = 1 - (the other probabilities) and x_k = x_t + difference."""
    p = list(probabilities)
    others = sum(p_k * (target_value + d_k) for p_k, d_k in zip(p, differences, strict=True))
    return (1 - sum(p)) * target_value + others - target_value


def lemma_failures(counts: Iterable[int] = KEY_COUNTS, *, factor: Expr = 1) -> list[str]:
    """Whether |sum_k p_k x_k - x_t| <= factor (1 - p_t) osc, with equality for some x, for this many other keys."""
    failures = []
    x_t, osc = sympy.Symbol("x_t", real=True), sympy.Symbol("osc", positive=True)
    for count in counts:
        p = sympy.symbols(f"p1:{count + 1}", nonnegative=True)
        slack = sympy.symbols(f"s1:{count + 1}", nonnegative=True)
        bound = factor * sum(p) * osc
        for sign in (1, -1):  # |x_k - x_t| <= osc: sign (x_k - x_t) = osc - s_k with s_k >= 0
            error = sign * read_error(p, [sign * (osc - s) for s in slack], x_t)
            failures += not_nonnegative(bound - error, f"{count} other keys, sign {sign}: bound minus error")
            failures += unequal(bound, error.subs(dict.fromkeys(slack, 0)), f"{count} other keys: the extreme case")
    return failures


def sum_failures(*, tail: Expr | None = None) -> list[str]:
    """Whether |sum w_i e_i| <= tail sum |w_i| osc_i if |e_i| <= tau osc_i: heads and channels, one after the other."""
    tau, size, osc, slack, before, before_slack = sympy.symbols("tau w osc s R r", nonnegative=True)
    so_far = tau * before - before_slack  # R: the sum of |w_i| osc_i so far
    bound = (tau if tail is None else tail) * (before + size * osc)
    failures = []
    for sign in (1, -1):  # a weight of either sign, and an error that pushes upwards: sign e = tau osc - s
        weight, error = sign * size, sign * (tau * osc - slack)
        failures += not_nonnegative(bound - (so_far + weight * error), f"a weight of sign {sign}: bound minus sum")
    return failures


def claims() -> list[Claim]:
    """The claims of this file."""
    return [
        Claim(
            name="error-bound",
            title="How far soft attention is from the convolution",
            statement=Formula(
                r"\bigl|\operatorname{Attention}_\alpha(X) - \operatorname{Conv}_W(X)\bigr|_o \le"
                r" \sum_c \operatorname{osc}_c \sum_h \tau(\alpha_h)\, |W_{o, c, \Delta_h}|",
                "|Attention_alpha(X) - Conv_W(X)|_o <= sum_c osc_c sum_h tau(alpha_h) |W_{o,c,Delta_h}|, "
                "with osc_c = max - min of channel c over the padded input; tau comes out of the sum if all heads "
                "share "
                "alpha.",
            ),
            assumptions=(
                "$X$ is finite.",
                "The heads sit at the kernel's taps; every head may have its own $alpha_h > 0$.",
            ),
            steps=_steps(),
            checks=(
                Check(
                    "$|sum_k p_k x_k - x_t| <= (1 - p_t) osc$, attained, for all $p$ and $x$",
                    Kind.INSTANCES,
                    lemma_failures,
                    cases=tuple(f"{count + 1} keys" for count in KEY_COUNTS),
                ),
                Check("one more head or channel adds at most $tau |w| osc$ (induction)", Kind.SYMBOLIC, sum_failures),
            ),
            justifies=(
                "conv2attn.convert.bounds.tail.softmax_tail",
                "conv2attn.convert.bounds.tail.tail_per_unit",
            ),
            tests=(
                "proofs.claims.test_factorisation.test_the_error_is_within_the_bound_in_exact_arithmetic",
                "convert.engines.test_equivalence.test_soft_attention_differs_by_at_most_the_certificate",
                "proofs.formal.test_formal_bridge.test_the_certificate_of_one_tap_is_at_least_the_bound_that_coq_proves",
            ),
            formal=(
                "Softmax.softmax_read",
                "Theorem1.theorem_1_per_head",
                "Theorem1.theorem_1",
                "TheoremN.theorem_1_n_per_head",
                "TheoremN.theorem_1_n",
            ),
        )
    ]


def _steps() -> tuple[Step, ...]:
    return (
        Step(
            Formula(
                r"\sum_k p_k x_k - x_t = \sum_{k \ne t} p_k (x_k - x_t)",
                "sum_k p_k x_k - x_t = sum_{k != t} p_k (x_k - x_t)",
            ),
            "$sum_k p_k = 1$.",
        ),
        Step(
            Formula(
                r"\Bigl|\sum_{k \ne t} p_k (x_k - x_t)\Bigr| \le \operatorname{osc} \sum_{k \ne t} p_k"
                r" = (1 - p_t) \operatorname{osc} \le \tau \operatorname{osc}",
                "|sum_{k != t} p_k (x_k - x_t)| <= osc sum_{k != t} p_k = (1 - p_t) osc <= tau osc",
            ),
            "$|x_k - x_t| <= max - min$, $p_k >= 0$, and the claim `tail-bound`. Equality: $x_k - x_t = osc$ for all "
            "$k != t$.",
        ),
        Step(
            Formula(
                r"(\operatorname{Attention} - \operatorname{Conv})_o"
                r" = \sum_{h, c} W_{o, c, \Delta_h} \Bigl(\sum_k p^{(h)}_k x_{c, k} - x_{c, q + \Delta_h}\Bigr)",
                "(Attention - Conv)_o = sum_{h,c} W_{o,c,Delta_h} (sum_k p^(h)_k x_{c,k} - x_{c,q+Delta_h})",
            ),
            "The biases cancel; the convolution reads $x$ at the target of each head (claim `head-assembly`).",
        ),
        Step(
            Formula(
                r"|\cdot| \le \sum_{h, c} |W_{o, c, \Delta_h}|\, \tau(\alpha_h) \operatorname{osc}_c",
                "|(Attention - Conv)_o| <= sum_{h,c} |W_{o,c,Delta_h}| tau(alpha_h) osc_c",
            ),
            "The triangle inequality, term by term.",
        ),
    )
