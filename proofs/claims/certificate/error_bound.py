"""From the tail to the certificate: how far soft attention can be from the convolution in exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from ...prover.checks import Expr, not_nonnegative, unequal
from ...prover.claim import Check, Checks, Status, claim

OTHER_KEYS = (1, 2, 3, 5, 8)


def read_error(probabilities: Iterable[Expr], differences: Iterable[Expr], target_value: Expr) -> Expr:
    """sum_k p_k x_k - x_t, with p_t = 1 - (the other probabilities) and x_k = x_t + difference."""
    p = list(probabilities)
    others = sum(p_k * (target_value + d_k) for p_k, d_k in zip(p, differences, strict=True))
    return (1 - sum(p)) * target_value + others - target_value


def lemma_failures(counts: Iterable[int] = OTHER_KEYS, *, factor: Expr = 1) -> list[str]:
    """Whether sum_k p_k x_k - x_t <= factor (1 - p_t) osc, with equality for some x; so it is with -x for x."""
    failures = []
    x_t, osc = sympy.Symbol("x_t", real=True), sympy.Symbol("osc", positive=True)
    for count in counts:
        p, slack = (sympy.symbols(f"{name}1:{count + 1}", nonnegative=True) for name in "ps")
        bound = factor * sum(p) * osc
        error = read_error(p, [osc - s for s in slack], x_t)  # x_k - x_t <= osc
        failures += not_nonnegative(bound - error, f"{count} other keys: bound minus error")
        failures += unequal(bound, error.subs(dict.fromkeys(slack, 0)), f"{count} other keys: the extreme case")
    return failures


def sum_failures(*, tail: Expr | None = None) -> list[str]:
    """Whether |sum w_i e_i| <= tail sum |w_i| osc_i if |e_i| <= tau osc_i: heads and channels, one after the other."""
    tau, size, osc, slack, before, before_slack = sympy.symbols("tau w osc s R r", nonnegative=True)
    so_far = tau * before - before_slack  # R: the sum of |w_i| osc_i so far
    pushed = size * (tau * osc - slack)  # w e, where e has the sign of w
    bound = (tau if tail is None else tail) * (before + size * osc)
    return not_nonnegative(bound - (so_far + pushed), "bound minus sum")


@claim(
    status=Status.COQ,
    scope=r"Exact arithmetic. The layer of `head-assembly`, with an $\alpha_h > 0$ for each head; the keys are all "
    r"pixels of the padded input, along $n$ axes. The input $X$ is finite, and $\mathrm{osc}_c$ is the largest "
    r"minus the smallest value of channel $c$ of the padded input: zeros of the padding count.",
    justifies=("convert/bounds/tail.py: softmax_tail, tail_per_unit",),
    coq=(
        "TheoremN.v: theorem_1_n_per_head, theorem_1_n",
        "Theorem1.v: theorem_1_per_head, theorem_1",
        "Softmax.v: softmax_read",
    ),
    tests=(
        "proofs/claims/test_factorisation.py: test_the_error_is_within_the_bound_in_exact_arithmetic",
        "convert/engines/test_equivalence.py: test_soft_attention_differs_by_at_most_the_certificate",
        "proofs/formal/test_formal_bridge.py: test_the_certificate_of_one_tap_is_at_least_the_bound_that_coq_proves",
    ),
)
def error_bound() -> Checks:
    r"""Soft attention is at most its tail away from the convolution.

    With the tail $\tau_n$ of `tail-bound`, for every output channel $o$ and at every query,

    ```math
    \bigl|\operatorname{Attention}_\alpha(X) - \operatorname{Conv}_W(X)\bigr|_o
    \le \sum_c \operatorname{osc}_c \sum_h \tau_n(\alpha_h)\, |W_{o, c, \Delta_h}| .
    ```

    **Proof.** The biases cancel, and the convolution reads the target $t_h = q + \Delta_h$ of each head, so the
    difference is the sum over heads and channels of $W_{o, c, \Delta_h}$ times what the head misreads. Its
    probabilities $p_k$ sum to 1; hence

    ```math
    \Bigl|\sum_k p_k x_k - x_t\Bigr| = \Bigl|\sum_{k \ne t} p_k (x_k - x_t)\Bigr|
    \le (1 - p_t) \operatorname{osc} \le \tau_n \operatorname{osc} ,
    ```

    where the first inequality is an equality if $x_k - x_t = \mathrm{osc}$ for all $k \ne t$. The triangle inequality
    over heads and channels gives the bound. If all heads share $\alpha$, then $\tau_n(\alpha)$ comes out of the sum.
    """
    keys = ", ".join(str(count + 1) for count in OTHER_KEYS)
    yield Check(
        "what a head misreads is at most $(1 - p_t)$ times $\\mathrm{osc}$, attained", lemma_failures, f"{keys} keys"
    )
    yield Check("one more head or channel adds at most $\\tau |w|$ times its $\\mathrm{osc}$", sum_failures)
