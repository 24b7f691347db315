"""tau between two fractions: ``proofs/formal/Enclosure.v`` once more, for a program.

    theta_partial(q, N) = 1 + 2 sum_{n=1..N} q^(n^2)  <=  theta_3(q)  <=  theta_partial(q, N) + 2 q^((N+1)^2) / (1 - q)

so tau = 1 - theta_3(q)^-2 lies between what the two give; the theorem ``tau_enclosed`` says so. These are the formulas
that ``convert.bounds.tail.tail_fraction`` is tested against, and ``proofs/formal/coq/ask.py`` has Coq evaluate its own.
"""

from __future__ import annotations

from fractions import Fraction

# Values of q and numbers of terms at which Coq's formulas and these are compared.
POINTS = ((Fraction(1, 10), 1), (Fraction(1, 2), 4), (Fraction(2, 3), 5), (Fraction(99, 100), 2), (Fraction(1, 7), 1))


def theta_partial(q: Fraction, terms: int) -> Fraction:
    """The series of theta_3 cut after q^(terms^2)."""
    return 1 + 2 * sum((q ** (n * n) for n in range(1, terms + 1)), Fraction(0))


def theta_upper(q: Fraction, terms: int) -> Fraction:
    """The same, plus what is left at most."""
    return theta_partial(q, terms) + 2 * q ** ((terms + 1) ** 2) / (1 - q)


def tau_lower(q: Fraction, terms: int) -> Fraction:
    """At most tau, for 0 < q = exp(-alpha) < 1; grows with q and with the number of terms."""
    return 1 - 1 / theta_partial(q, terms) ** 2


def tau_upper(q: Fraction, terms: int) -> Fraction:
    """At least tau, likewise; grows with q."""
    return 1 - 1 / theta_upper(q, terms) ** 2
