"""The claims of the construction's families hold, and are presentable."""

from __future__ import annotations

import importlib
from operator import attrgetter

import pytest

from conv2attn.proofs import assembly, errata, factorisation, sharper, sinusoidal, tail
from conv2attn.proofs.claim import Claim, Kind

CLAIMS = [claim for family in (tail, assembly, factorisation, sinusoidal, sharper, errata) for claim in family.claims()]


@pytest.mark.parametrize("claim", CLAIMS, ids=attrgetter("name"))
def test_the_claim_holds(claim: Claim) -> None:
    assert claim.checks
    assert [failure for check in claim.checks for failure in check.run()] == []


@pytest.mark.parametrize("claim", CLAIMS, ids=attrgetter("name"))
def test_checks_of_instances_list_them_next_to_the_argument(claim: Claim) -> None:
    assert claim.steps
    for check in claim.checks:
        assert bool(check.cases) == (check.kind == Kind.INSTANCES)


@pytest.mark.parametrize("claim", CLAIMS, ids=attrgetter("name"))
def test_what_the_claim_justifies_exists(claim: Claim) -> None:
    for dotted in claim.justifies:
        module, _, rest = dotted.partition("convert.")
        name, _, attribute = rest.rpartition(".")
        while name:
            try:
                owner = importlib.import_module(f"{module}convert.{name}")
            except ModuleNotFoundError:
                name, _, parent = name.rpartition(".")
                attribute = f"{parent}.{attribute}"
            else:
                assert attrgetter(attribute)(owner) is not None
                break
        else:
            pytest.fail(f"no module for {dotted}")


def test_names_are_unique() -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("claim", CLAIMS, ids=attrgetter("name"))
def test_braces_of_formulas_balance(claim: Claim) -> None:
    for formula in (claim.statement, *(step.formula for step in claim.steps)):
        latex = formula.latex.replace(r"\{", "").replace(r"\}", "")
        assert latex.count("{") == latex.count("}")
        assert "$" not in latex
        assert latex.count(r"\begin") == latex.count(r"\end")
        assert latex.count(r"\left") == latex.count(r"\right")
