"""What is made of Coq's answers: nothing but a complete and clean one is a proof. A stand-in plays Coq here.

``tests/kernel_faults.py`` plants faults for the true one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conv2attn.convert.errors import ToolError
from conv2attn.proofs.formal import coq as kernel
from conv2attn.proofs.formal.coq import FOLDER, POINTS, PROJECT, check_formal, sources, statements, tau_lower, tau_upper
from tests.command import exit_code

REALS = """Axioms:
ClassicalDedekindReals.sig_not_dec : forall P : Prop, {~ ~ P} + {~ P}
ClassicalDedekindReals.sig_forall_dec
  : forall P : nat -> Prop,
    (forall n : nat, {P n} + {~ P n}) ->
    {n : nat | ~ P n} + {forall n : nat, P n}
Classical_Prop.classic : forall P : Prop, P \\/ ~ P
"""
SUMMARY = """
CONTEXT SUMMARY
===============

* Theory: Set is predicative

* Axioms:
    Coq.Logic.Classical_Prop.classic
    Coq.Reals.Rdefinitions.RbaseSymbolsImpl.Rplus

* Constants/Inductives relying on type-in-type: <none>

* Constants/Inductives relying on unsafe (co)fixpoints: <none>

* Inductives whose positivity is assumed: <none>
"""
VALUES = (
    "     = ["
    + "; ".join(
        f"{bound(q, n).numerator} # {bound(q, n).denominator}" for q, n in POINTS for bound in (tau_lower, tau_upper)
    )
    + "]%list\n     : list Q\n"
)
HONEST = {
    "version": "8.16.1 4.13.1",
    "axioms": REALS,
    "summary": SUMMARY,
    "values": VALUES,
    "refuses": "no file",
    "sleeps": "no file",
}

# A shell's, since each check calls it for every file: an interpreter of Python would take most of the time.
STAND_IN = """#!/bin/sh
for last; do :; done
case "$0 $*" in
    *--print-version*) /bin/cat {answers}/version;;
    *coqchk*) /bin/cat {answers}/summary;;
    *"$(/bin/cat {answers}/sleeps)") exec /bin/sleep 60;;
    *"$(/bin/cat {answers}/refuses)") echo "Error: This is false." >&2; exit 1;;
    *) for name in $(/bin/sed -n 's/^Redirect "\\([^"]*\\)".*/\\1/p' "$last"); do
        case $name in values) /bin/cp {answers}/values values.out;; *) /bin/cp {answers}/axioms "$name.out";; esac
    done;;
esac
"""


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, **answers: str) -> None:
    """Puts a coqc and a coqchk on the path that give these answers, and honest ones to all else."""
    (folder / "answers").mkdir()
    for name, answer in (HONEST | answers).items():
        (folder / "answers" / name).write_text(answer)
    for tool in kernel.TOOLS:
        script = folder / tool
        script.write_text(STAND_IN.format(answers=folder / "answers"))
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.fixture
def two_files(tmp_path: Path) -> Path:
    """A library of two files: each check calls Coq for every file."""
    folder = tmp_path / "library"
    folder.mkdir()
    for name in ("Sums.v", "Theorem1.v"):
        (folder / name).write_bytes((FOLDER / name).read_bytes())
    (folder / PROJECT).write_text("Sums.v\nTheorem1.v\n")
    return folder


def test_a_clean_answer_is_a_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path)
    calls: list[int] = []
    before = sorted(FOLDER.iterdir())
    result = check_formal(progress=calls.append)
    assert result.is_proved, result.failures
    assert result.coq == "8.16.1"
    assert [theorem.statement for theorem in result.theorems] == statements()
    assert sum(calls) == len(sources())
    assert sorted(FOLDER.iterdir()) == before  # nothing is written where conv2attn is installed


@pytest.mark.fault
@pytest.mark.parametrize(
    ("answers", "objection"),
    [
        ({"axioms": "Axioms:\nTheorem1.step : 0 = 1\n"}, "rests on Theorem1.step"),
        ({"axioms": REALS + "ProofIrrelevance.proof_irrelevance\n  : forall P\n"}, "rests on ProofIrrelevance"),
        ({"axioms": REALS + "loop is assumed to be guarded.\n"}, "rests on loop"),
        ({"axioms": ""}, "not understood"),
        ({"axioms": "Theory: type in type\n"}, "not understood"),
        (
            {"summary": SUMMARY.replace("Coq.Logic.Classical_Prop.classic", "Conv2Attn.Sums.step")},
            "Conv2Attn.Sums.step",
        ),
        ({"summary": SUMMARY.replace("type-in-type: <none>", "type-in-type: T")}, "type-in-type"),
        (
            {"summary": SUMMARY.replace("(co)fixpoints: <none>", "(co)fixpoints:\n   loop")},
            "unsafe (co)fixpoints: loop",
        ),
        ({"summary": ""}, "coqchk: its answer was not understood"),
        ({"values": VALUES.replace("11 # 36", "12 # 36")}, "tau: Coq evaluates"),
        ({"values": ""}, "tau: Coq evaluates"),
        ({"refuses": "Theorem1.v"}, "coqc refused: Error: This is false."),
        ({"refuses": "Assumptions.v"}, "coqc refused"),
    ],
)
def test_every_other_answer_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, two_files: Path, answers: dict[str, str], objection: str
) -> None:
    install(monkeypatch, tmp_path, **answers)
    result = check_formal(folder=two_files)
    assert not result.is_proved
    assert any(objection in failure for failure in result.failures), result.failures


def test_a_file_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, sleeps="Sums.v")
    result = check_formal(limit=1)
    assert result.failures == ("coqc -q -Q . Conv2Attn Sums.v: stopped after 1 s",)
    assert not result.is_proved


def test_without_coq_the_command_says_what_to_install_and_exits_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError):
        check_formal()
    assert exit_code("formal") == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "apt-get install coq libcoq-flocq" in printed.err


def test_the_command_exits_with_1_if_coq_refuses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, refuses=sources()[0].name)
    assert exit_code("formal", "--json") == 1
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (data["proved"], len(data["failures"])) == (False, 1)
