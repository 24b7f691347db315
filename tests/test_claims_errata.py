"""Claim 12: every printed formula fails, every corrected one holds, and an entry that errs is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conv2attn.proofs.claim import Kind
from conv2attn.proofs.errata import claims, errata
from conv2attn.proofs.errata_positions import zeroed_failures
from conv2attn.proofs.erratum import Erratum, claim_of, corrected_failures, printed_failures

ENTRIES = [pytest.param(erratum, id=erratum.name) for erratum in errata()]


@pytest.mark.parametrize("erratum", ENTRIES)
def test_the_printed_formula_fails_and_the_corrected_one_holds(erratum: Erratum) -> None:
    assert erratum.holds(erratum.as_printed)
    assert not erratum.holds(erratum.as_corrected)


@pytest.mark.parametrize("erratum", ENTRIES)
def test_an_entry_that_finds_fault_with_a_true_formula_is_refused(erratum: Erratum) -> None:
    assert printed_failures(replace(erratum, as_printed=erratum.as_corrected))


@pytest.mark.parametrize("erratum", ENTRIES)
def test_an_entry_whose_correction_is_false_is_refused(erratum: Erratum) -> None:
    assert corrected_failures(replace(erratum, as_corrected=erratum.as_printed))


@pytest.mark.parametrize("erratum", ENTRIES)
def test_an_entry_names_its_place_and_its_cases(erratum: Erratum) -> None:
    claim = claim_of(erratum)
    assert claim.source.startswith(("draft", "article", "theorem"))
    assert all(check.cases for check in claim.checks if check.kind == Kind.INSTANCES)


def test_names_are_unique() -> None:
    names = [claim.name for claim in claims()]
    assert len(set(names)) == len(names)


def test_all_other_choices_of_two_vanishing_parameters_fail() -> None:
    assert zeroed_failures(("W_q", "W_R"))
    assert zeroed_failures(("W_q",))
    assert zeroed_failures(())
