"""Running proofs: every claim is proved in time, and nothing that goes wrong in a check looks like a proof."""

from __future__ import annotations

import inspect
import pkgutil
import sys
import threading
import time
from pathlib import Path

import pytest

from conv2attn.convert.errors import ConversionError, SelectionError
from conv2attn.proofs import Check, Claim, Formula, Kind, Result, Status, prove
from conv2attn.proofs.prover.registry import Entry, claim_modules, entries
from conv2attn.proofs.prover.verdict import failures_of, run_checks
from tests.processes import finished

PLANTED = """
import os, sys, time
from conv2attn.proofs import Check, Claim, Formula, Kind

def forever():
    while True:
        time.sleep(0)

def raises():
    raise ArithmeticError("no sum")

def answers_for_itself():
    print('{"check": "a check", "failures": [], "is_error": false}')
    print("null", flush=True)
    return ["really false"]

def claim(name, *runs):
    checks = tuple(Check(f"check ${n}$", Kind.EXACT, run) for n, run in enumerate(runs))
    return Claim(name, name, Formula("0", "0"), (), (), checks)

def true():
    return []

def claims():
    return [
        claim("true", true),
        claim("false", true, lambda: ["2 is not 1"]),
        claim("endless", true, forever),
        claim("raising", raises),
        claim("leaving", lambda: sys.exit(0)),
        claim("dying", true, lambda: os._exit(0)),
        claim("silent", lambda: None),
        claim("truthful", lambda: True),
        claim("lying", answers_for_itself),
        claim("empty"),
        claim("also true", true),
    ]
"""


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """What proving everything says."""
    return prove()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A module with claims that fail in every way there is."""
    (tmp_path / "planted_claims.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted_claims", raising=False)
    return ("planted_claims",)


def test_every_claim_is_proved(results: list[Result]) -> None:
    assert {result.claim.name: result.failures for result in results if not result.is_proved} == {}
    assert [result.claim.name for result in results] == [entry.claim.name for entry in entries()]
    assert all(result.passed == tuple(check.name for check in result.claim.checks) for result in results)


def test_nothing_that_goes_wrong_is_a_proof(planted: tuple[str, ...]) -> None:
    found = {result.claim.name: result for result in prove(modules=planted, limit=3)}
    assert {name: str(result.status) for name, result in found.items()} == {
        "true": "proved",
        "false": "failed",
        "endless": "timed out",
        "raising": "error",
        "leaving": "error",
        "dying": "error",
        "silent": "error",
        "truthful": "error",
        "lying": "failed",
        "empty": "error",
        "also true": "proved",
    }
    assert found["false"].failures == ("check 1: 2 is not 1",)
    assert found["false"].passed == ("check $0$",)
    assert found["endless"].failures == ("check 1: stopped after 3 s",)
    assert found["raising"].failures == ("check 0: it raised ArithmeticError: no sum",)
    assert found["dying"].failures == ("check 1: the process that ran it ended with exit status 0",)
    assert "no checks" in found["empty"].failures[0]


def test_a_claim_that_loops_forever_is_reported_in_time(planted: tuple[str, ...]) -> None:
    (result,) = prove(["endless"], modules=planted, limit=1)
    assert result.status is Status.TIMED_OUT
    assert 1 <= result.seconds < 3
    start = time.monotonic()
    (result,) = prove(["true"], modules=planted, limit=1)
    assert result.is_proved
    assert time.monotonic() - start < 30  # the next run is not held up


def test_claims_are_proved_off_the_main_thread() -> None:
    found: list[Result] = []
    thread = threading.Thread(target=lambda: found.extend(prove(["softmax-shift"])))
    thread.start()
    thread.join(timeout=60)
    assert [result.is_proved for result in found] == [True]


def test_an_unknown_name_is_refused_with_the_near_names_first() -> None:
    with pytest.raises(
        SelectionError, match="there is no claim 'softmax-shfit'; the claims are softmax-shift, "
    ) as raised:
        prove(["softmax-shfit", "encoding-draft"])
    assert all(entry.claim.name in str(raised.value) for entry in entries())


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), float("nan")])
def test_a_limit_that_is_none_is_refused(limit: float) -> None:
    with pytest.raises(ConversionError, match="limit must be positive and finite"):
        prove(["softmax-shift"], limit=limit)


def test_two_claims_of_one_name_are_refused(planted: tuple[str, ...]) -> None:
    with pytest.raises(ConversionError, match="two claims have the name"):
        prove(modules=planted * 2)


def claim_with(*checks: Check) -> Claim:
    """A claim with these checks."""
    return Claim("name", "title", Formula("0", "0"), (), (), checks)


def test_checks_of_one_name_and_instances_without_a_list_are_refused() -> None:
    check = Check("a check", Kind.EXACT, list)
    assert failures_of(claim_with(check)) == []
    assert "two checks" in failures_of(claim_with(check, check))[0]
    assert "lists none" in failures_of(claim_with(Check("a check", Kind.INSTANCES, list)))[0]
    assert all(verdict.is_error for verdict in run_checks(claim_with()))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.claim.name)
def test_every_claim_is_complete(entry: Entry) -> None:
    claim = entry.claim
    assert "-" in claim.name  # a word of a sentence is not taken for a reference
    assert claim.statement.latex
    assert claim.statement.text
    assert claim.assumptions
    assert claim.steps
    assert claim.checks
    assert all(bool(check.cases) == (check.kind is Kind.INSTANCES) for check in claim.checks)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.claim.name)
def test_a_justified_function_exists_and_its_file_names_the_proof(entry: Entry) -> None:
    proof = f"{entry.module.removeprefix('conv2attn.proofs.').replace('.', '/')}.py"
    for name in entry.claim.justifies:
        pkgutil.resolve_name(name)
        words = name.split(".")
        module = max(prefix for n in range(len(words)) if (prefix := ".".join(words[:n])) in sys.modules)
        assert proof in inspect.getsource(sys.modules[module]), f"{module} does not name {proof}"


def test_importing_the_proofs_imports_neither_torch_nor_sympy() -> None:
    code = "import sys, conv2attn.proofs; sys.exit(bool({'torch', 'sympy', 'mpmath'} & set(sys.modules)))"
    assert finished([sys.executable, "-c", code]).returncode == 0


def test_the_claims_need_no_torch() -> None:
    modules = ", ".join(claim_modules())
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert finished([sys.executable, "-c", code]).returncode == 0
