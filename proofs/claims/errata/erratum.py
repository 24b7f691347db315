"""An erratum: a test of a passage that its words as printed fail and its corrected words pass.

So an erratum can be wrong in either direction, and is then refused. Conventions, names, and conditions that are called
necessary and are necessary, are no errata.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...prover.claim import Check, Checks, claim

erratum = partial(claim, tests=("proofs/claims/test_errata.py: test_a_false_erratum_is_rejected",), is_lemma=True)


def readings(
    holds: Callable[[Any], list[str]], printed: Any, corrected: Any, cases: str = "", what: str = "words"
) -> Checks:
    """The two checks of an erratum.

    Args:
        holds: What is wrong with a reading, empty if it holds.
        printed: The reading as printed.
        corrected: The corrected reading.
        cases: What the test of the corrected reading covers; empty if all.
        what: What is read, in the plural.
    """
    yield Check(f"the {what} as printed fail", lambda: [] if holds(printed) else ["what is printed passes the test"])
    yield Check(f"the {what} as corrected hold", partial(holds, corrected), cases)
