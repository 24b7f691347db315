"""Running checks: every claim's hold in time, and nothing that goes wrong in a check looks like a proof."""

from __future__ import annotations

import sys
from itertools import count
from pathlib import Path

import pytest

from conv2attn.proofs import Outcome, Status, prove
from conv2attn.proofs.prover.claim import Check, all_claims, claim_headings, claim_modules
from conv2attn.proofs.prover.document import render_markdown
from conv2attn.proofs.prover.run import Result, decide
from tests.processes import finished

THEOREM = Path(__file__).parents[3] / "docs" / "theorem.md"
PLANTED = """
import os, sys, time
from conv2attn.proofs import Check, Status, claim

def forever():
    while True:
        time.sleep(0)

def raises():
    raise ArithmeticError("no sum")

def planted(name, *runs):
    def body():
        yield from (Check(f"check {n}", run) for n, run in enumerate(runs))
    body.__name__ = name
    return claim(status=Status.ALGEBRA, scope="Nothing.")(body)

def true():
    return []

CLAIMS = [
    planted("true", true),
    planted("false", true, lambda: ["2 is not 1"]),
    planted("endless", true, forever),
    planted("raising", raises),
    planted("leaving", lambda: sys.exit(0)),
    planted("dying", true, lambda: os._exit(3)),
    planted("vanishing", true, lambda: os._exit(0)),
    planted("silent", lambda: None),
    planted("truthful", lambda: True),
    planted("empty"),
    planted("also_true", true),
]
globals().update({made.body.__name__: made for made in CLAIMS})
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A module with claims that fail in every way there is."""
    (tmp_path / "planted_claims.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted_claims", raising=False)
    return ("planted_claims",)


@pytest.mark.slow  # all claims
def test_every_check_of_every_claim_holds_and_the_committed_document_is_current() -> None:
    results = [Result(claim, tuple(map(decide, claim.checks))) for claim in all_claims()]
    assert {result.claim.name: result.failures for result in results if not result.holds} == {}
    is_current = THEOREM.read_text(encoding="utf-8") == render_markdown(results)
    assert is_current, "renew it: conv2attn prove --format markdown --out docs/theorem.md"


@pytest.mark.slow
def test_processes_decide_every_check_of_a_family_as_this_one_does() -> None:
    family = [module for module in claim_modules() if ".computing." in module]
    results, claims = prove(modules=family), all_claims(family)
    assert {result.claim.name: result.failures for result in results if not result.holds} == {}
    assert [result.claim.name for result in results] == [claim.name for claim in claims]
    named = {result.claim.name: [verdict.check for verdict in result.verdicts] for result in results}
    assert named == {claim.name: [check.name for check in claim.checks] for claim in claims}
    assert len(named) > 3


@pytest.mark.slow
def test_nothing_that_goes_wrong_is_a_proof(planted: tuple[str, ...]) -> None:
    found = {result.claim.name: result for result in prove(modules=planted, limit=1)}
    assert {name: str(result.outcome) for name, result in found.items()} == {
        "true": "holds",
        "false": "does not hold",
        "endless": "ran out of time",
        "raising": "error",
        "leaving": "error",
        "dying": "error",
        "vanishing": "ran out of time",
        "silent": "error",
        "truthful": "error",
        "empty": "error",
        "also-true": "holds",
    }
    assert found["false"].failures == ("check 1: 2 is not 1",)
    assert [verdict.outcome for verdict in found["false"].verdicts] == [Outcome.HOLDS, Outcome.FAILS]
    assert found["endless"].failures == ("check 1: stopped after 1 s of the processor",)
    assert found["raising"].failures == ("check 0: it raised ArithmeticError: no sum",)
    assert found["dying"].failures == ("check 1: the process that ran it ended with exit status 3",)


def test_a_check_is_stopped_at_its_fifth_failure() -> None:
    verdict = decide(Check("no number is a number", lambda: map(str, count())))
    assert (verdict.outcome, verdict.failures) == (Outcome.FAILS, ("0", "1", "2", "3", "4"))


def test_what_a_claim_says_of_itself_is_what_its_checks_can_show() -> None:
    names = [claim.name for claim in all_claims()]
    assert len(set(names)) == len(names)
    for claim in all_claims():
        checks = [check.name for check in claim.checks]
        assert 0 < len(set(checks)) == len(checks), claim.name
        assert claim.coq or claim.status is not Status.COQ, claim.name
        assert claim.status is not Status.ALGEBRA or not any(check.cases for check in claim.checks), claim.name


def test_headings_are_the_claims() -> None:
    assert sorted(claim_headings()) == sorted((claim.name, claim.title) for claim in all_claims())


@pytest.mark.slow
def test_the_claims_need_no_torch() -> None:
    modules = ", ".join(claim_modules())
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert finished([sys.executable, "-c", code]).returncode == 0
