"""The proofs as a document: what is printed is what is checked; ``test_prove.py`` has what is committed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import sympy as sp

from conv2attn.commands.prove import proved
from conv2attn.proofs import Check, Checks, Status, claim
from conv2attn.proofs.prover.checks import equal
from conv2attn.proofs.prover.claim import all_claims
from conv2attn.proofs.prover.document import fill
from conv2attn.proofs.prover.run import Outcome, Result, Verdict
from tests.command import exit_code

a, b = sp.symbols("a b")


@claim(status=Status.ALGEBRA, scope="Numbers.", justifies=("convert/spec.py: ConvSpec",))
def a_square(*, middle: sp.Expr = 2 * a * b) -> Checks:
    r"""A square is a sum.

    $(a + b)^2 = {=square}$, as `a-square` says of `ConvSpec`.
    """
    square = a**2 + middle + b**2
    yield equal("it is the square", (a + b) ** 2, square)
    yield Check("nothing", list)


def test_what_is_printed_is_what_is_checked() -> None:
    for claim_, printed in ((a_square, "2 a b"), (a_square(middle=3 * a * b), "3 a b")):
        assert printed in fill(claim_.text, claim_.names)
    assert (a_square.name, a_square.title) == ("a-square", "A square is a sum")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{=a - b} x", r"\left(a - b\right) x"),
        ("x {=a - b}", r"x \left(a - b\right)"),
        (r"\frac{{=a - b}}{2}", r"\frac{a - b}{2}"),
        ("{=a + b}^2", r"\left(a + b\right)^2"),
        ("1 - {=a + b}", r"1 - \left(a + b\right)"),
        (r"u\, \alpha\, {=a - b}", r"u\, \alpha\, \left(a - b\right)"),
        ("{a}", "{a}"),
    ],
)
def test_a_sum_in_a_field_has_brackets_where_it_needs_them(text: str, expected: str) -> None:
    assert fill(text, {"a": a, "b": b}) == expected


# Markdown takes these backslashes out of a formula in a line; a fence keeps them.
EATEN = re.compile(r"\\[{}\\,;!_*]")


def test_every_formula_is_balanced_and_survives_markdown() -> None:
    for made in all_claims():
        text = fill(made.text, made.names)
        fenced = re.findall(r"```math\n(.*?)\n *```", text, re.DOTALL)
        inline = re.findall(r"\$([^$]+)\$", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        assert text.count("```") % 2 == 0
        assert "$" not in "".join(fenced)
        for formula in (*fenced, *inline):
            bare = formula.replace(r"\{", "").replace(r"\}", "")
            assert bare.count("{") == bare.count("}"), formula
            assert bare.count(r"\begin") == bare.count(r"\end"), formula
            assert len(re.findall(r"\\left\b", bare)) == len(re.findall(r"\\right\b", bare)), formula
        assert [formula for formula in inline if EATEN.search(formula)] == []


def test_a_claim_is_found_by_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("theorem-1", "Theorem 1: multi-head"):
        assert exit_code("prove", "--only", name) == 2
        told = capsys.readouterr().err
        assert "near it: head-assembly (Theorem 1: multi-head self-attention expresses every convolution)" in told
    assert exit_code("prove", "--only", "softmax-shif", "--show", "nope") == 2
    told = capsys.readouterr().err
    assert "'softmax-shif'; near it: softmax-shift (Softmax ignores constants), 'nope'; conv2attn claims lists" in told


def test_the_outcome_counts_claims_by_what_stands_behind_them_and_being_late_is_not_being_wrong() -> None:
    known, verdict = {each.name: each for each in all_claims()}, Verdict("a", Outcome.HOLDS)
    one = Result(known["head-assembly"], (verdict, verdict))
    assert proved([one]).parts == ["1 claim: 1 proved (in Coq; conv2attn formal checks the proof)."]
    algebra = next(each for each in known.values() if each.status is Status.ALGEBRA)
    tested = next(each for each in known.values() if each.status is Status.INSTANCES)
    all_kinds = proved([one, Result(algebra, (verdict,)), Result(tested, (verdict,))])
    assert all_kinds.data["counts"] == {"proved": 1, "proved by algebra": 1, "tested": 1}
    assert all_kinds.exit_code == 0
    late, failed = (
        Result(known["position-alone"], (Verdict("b", outcome, ("why",)),))
        for outcome in (Outcome.TIMED_OUT, Outcome.FAILS)
    )
    assert [proved(each).exit_code for each in ([one, late], [late, failed])] == [5, 1]
    (told,) = proved([one, failed, late]).parts
    assert str(told).startswith("3 claims: 1 proved (in Coq")
    assert "; 1 not holding: position-alone; 1 out of time" in str(told)


@pytest.mark.slow
def test_the_command_exits_with_5_if_a_check_runs_out_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("prove", "--only", "position-alone", "--limit", "0.0001") == 5
    out = capsys.readouterr().out
    assert "stopped after 0.0001 s of the processor" in out
    assert "out of time, which a larger --limit may decide: position-alone." in out


@pytest.mark.slow
def test_the_command_lists_names_and_shows_one_derivation(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("claims") == 0
    assert "softmax-shift" in capsys.readouterr().out
    assert exit_code("prove", "--show", "softmax-shift") == 0
    shown = capsys.readouterr()
    assert "Softmax ignores constants" in shown.out
    assert "1 claim: 1 proved" in shown.err


@pytest.mark.slow
def test_the_command_prints_nothing_but_the_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert exit_code("prove", "--only", "softmax-shift", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["holds"]
    target = tmp_path / "proofs.md"
    assert exit_code("prove", "--only", "softmax-shift", "--format", "markdown", "--out", str(target)) == 0
    assert "Softmax ignores constants" in target.read_text()
    assert capsys.readouterr().out.splitlines()[-1] == f"Wrote {target}"
