"""Claim 12: every printed formula fails, every corrected one holds, and an entry that errs is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from conv2attn.proofs.claims.errata import convolution, gaussian, layer, positions, theorem
from conv2attn.proofs.claims.errata.erratum import (
    TRANSCRIBED,
    Erratum,
    Source,
    claim_of,
    corrected_failures,
    printed_failures,
)
from conv2attn.proofs.claims.errata.layer import output_failures
from conv2attn.proofs.claims.errata.positions import zeroed_failures
from conv2attn.proofs.prover.old.claim import Kind

ERRATA = [entry for family in (convolution, layer, positions, gaussian, theorem) for entry in family.entries()]
ENTRIES = [pytest.param(erratum, id=erratum.name) for erratum in ERRATA]


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
def test_an_entry_quotes_what_is_printed_with_its_place_and_its_premise(erratum: Erratum) -> None:
    assert erratum.source in Source
    assert re.search(r"section|eq\.|Theorem", erratum.place)
    assert erratum.quotation.text
    assert erratum.quotation != erratum.corrected
    assert erratum.premise.endswith(".")


@pytest.mark.parametrize("erratum", ENTRIES)
def test_the_claim_of_an_entry_shows_quotation_premise_finding_and_credit(erratum: Erratum) -> None:
    claim = claim_of(erratum)
    assert claim.source == erratum.where
    assert claim.assumptions == (erratum.premise, TRANSCRIBED)
    assert claim.steps[0].formula == erratum.quotation
    assert all(part in claim.steps[0].rule for part in (erratum.where, erratum.finding, erratum.reason, erratum.credit))
    assert all(check.cases for check in claim.checks if check.kind == Kind.INSTANCES)


def test_the_authors_own_note_is_credited() -> None:
    noted = {erratum.name for erratum in ERRATA if "check dimensions and readability" in erratum.credit}
    assert noted == {"parameter-names", "shapes"}


def test_a_residual_does_no_harm() -> None:
    assert not output_failures(lambda x, v, c: v * x + x + c)


@pytest.mark.parametrize(
    "what",
    ["heads", "query-key", "orientation", "nine-heads", "semi-definite", "output-channels"],
)
def test_a_convention_a_premise_and_a_true_theorem_are_no_errata(what: str) -> None:
    """Names, the sign of delta, heads that focus on one pixel each, a necessary condition, min(D_h, D_out)."""
    assert what not in {erratum.name for erratum in ERRATA}


def test_names_are_unique() -> None:
    names = [claim_of(entry).name for entry in ERRATA]
    assert len(set(names)) == len(names)


def test_all_other_choices_of_two_vanishing_parameters_fail() -> None:
    assert zeroed_failures(("W_q", "W_R"))
    assert zeroed_failures(("W_q",))
    assert zeroed_failures(())
