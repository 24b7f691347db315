"""No check is one that cannot fail: for every check of every claim a false variant is planted that fails it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from conv2attn.proofs.prover.claim import Check, Claim, all_claims
from tests.claims import is_rejected

SUITES = [
    importlib.import_module(f"tests.proofs.claims.{path.stem}")
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    if "FALSE" in path.read_text(encoding="utf-8") and path != Path(__file__)
]
# Some suites plant false claims, others false arguments of the function that a check runs.
CLAIMS = [claim for suite in SUITES for claim in getattr(suite, "FALSE", {}).values()]
FUNCTIONS = {variant.func for suite in SUITES for variant in getattr(suite, "FALSE_VARIANTS", {}).values()}

VARIANTS: dict[str, Claim | Callable[[], Iterable[str]]] = {
    f"{suite.__name__.rpartition('.test_')[2]}: {name}": variant
    for suite in SUITES
    for table in ("FALSE", "FALSE_VARIANTS")
    for name, variant in getattr(suite, table, {}).items()
}


def is_planted_as_a_function(check: Check) -> bool:
    """Whether a test calls the function behind the check with false arguments."""
    run = check.run.func if isinstance(check.run, partial) else check.run
    return run in FUNCTIONS


@pytest.mark.parametrize("claim", all_claims(), ids=lambda claim: claim.name)
def test_every_check_fails_for_a_false_variant(claim: Claim) -> None:
    names = [check.name for check in claim.checks if not is_planted_as_a_function(check)]
    variants = [variant for variant in CLAIMS if variant.name == claim.name]
    assert [name for name in names if not any(is_rejected(variant, name) for variant in variants)] == []


@pytest.mark.fault
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_every_false_variant_is_rejected(variant: Claim | Callable[[], Iterable[str]]) -> None:
    assert is_rejected(variant) if isinstance(variant, Claim) else any(variant())
