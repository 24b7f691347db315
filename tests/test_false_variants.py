"""No check is one that cannot fail: for every check of every claim a false variant is planted that fails it."""

from __future__ import annotations

from functools import partial

import pytest

from conv2attn.proofs.claims.errata.erratum import corrected_failures, printed_failures
from conv2attn.proofs.prover.claim import Check
from conv2attn.proofs.prover.registry import Entry, entries
from tests import (
    test_claims_assembly,
    test_claims_decomposition,
    test_claims_dimensions,
    test_claims_encoding,
    test_claims_factorisation,
    test_claims_floating_point,
    test_claims_gaussian,
    test_claims_rounding,
    test_claims_sharper,
    test_claims_sinusoidal,
    test_claims_tail,
)
from tests.claims import rejecting_checks

# Some families plant false claims, others false arguments of the function that a check runs.
CLAIMS = [
    claim
    for family in (
        test_claims_encoding,
        test_claims_gaussian,
        test_claims_decomposition,
        test_claims_floating_point,
        test_claims_dimensions,
    )
    for claim in family.FALSE.values()
]
FUNCTIONS = {
    variant.func
    for family in (
        test_claims_tail,
        test_claims_assembly,
        test_claims_factorisation,
        test_claims_rounding,
        test_claims_sinusoidal,
        test_claims_sharper,
    )
    for variant in family.FALSE_VARIANTS.values()
}
ERRATA = {printed_failures, corrected_failures}  # test_claims_errata plants a false variant of each for every erratum


def is_planted_as_a_function(check: Check) -> bool:
    """Whether a test calls the function behind the check with false arguments."""
    run = check.run.func if isinstance(check.run, partial) else check.run
    return run in FUNCTIONS | ERRATA


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.claim.name)
def test_every_check_fails_for_a_false_variant(entry: Entry) -> None:
    checks = [check for check in entry.claim.checks if not is_planted_as_a_function(check)]
    variants = [claim for claim in CLAIMS if claim.name == entry.claim.name]
    rejecting = {name for variant in (variants if checks else ()) for name in rejecting_checks(variant)}
    assert [check.name for check in checks if check.name not in rejecting] == []
