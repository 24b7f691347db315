"""The proofs as documents: every form holds every claim, and what is committed is current."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from conv2attn.convert.errors import OutputError
from conv2attn.proofs import Claim, Formula, Result, Status, prove
from conv2attn.proofs.claims.common.notation import NOTATION
from conv2attn.proofs.prover.document import RENDERERS, document_file, render
from conv2attn.proofs.prover.prose import latex, plain
from conv2attn.proofs.prover.registry import Entry, entries
from tests.command import exit_code

THEOREM = Path(__file__).parents[3] / "docs" / "theorem.md"


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """What proving everything says."""
    return prove()


def test_the_committed_document_is_current(results: list[Result]) -> None:
    current = THEOREM.read_text(encoding="utf-8") == render(results, "markdown")
    assert current, "renew it: conv2attn prove --format markdown --out docs/theorem.md"


@pytest.mark.parametrize("form", RENDERERS)
def test_every_form_holds_every_claim(results: list[Result], form: str) -> None:
    document = render(results, form)
    for result in results:
        assert result.claim.name in document
        assert all(name.replace("_", r"\_" if form == "latex" else "_") in document for name in result.claim.justifies)


def test_only_json_holds_timings(results: list[Result]) -> None:
    later = [Result(r.claim, r.status, r.seconds + 1, r.failures, r.passed) for r in results]
    assert [form for form in RENDERERS if render(results, form) != render(later, form)] == ["json"]


def test_latex_is_balanced_and_plain(results: list[Result]) -> None:
    document = render(results, "latex")
    assert document.isascii()
    opened, closed = (re.findall(rf"\\{word}{{(\w+\*?)}}", document) for word in ("begin", "end"))
    assert sorted(opened) == sorted(closed)
    assert document.count("{") == document.count("}")
    assert all(line.count("$") % 2 == 0 for line in document.splitlines())


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.claim.name)
def test_every_formula_is_balanced(entry: Entry) -> None:
    for formula in (entry.claim.statement, *(step.formula for step in entry.claim.steps)):
        latex = formula.latex.replace(r"\{", "").replace(r"\}", "")
        assert latex.count("{") == latex.count("}")
        assert "$" not in latex
        assert latex.count(r"\begin") == latex.count(r"\end")
        assert len(re.findall(r"\\left\b", latex)) == len(re.findall(r"\\right\b", latex))


def test_json_says_what_was_checked(results: list[Result]) -> None:
    data = json.loads(render(results, "json"))
    assert (data["version"], data["command"], data["proved"]) == (1, "prove", True)
    first: dict[str, Any] = data["claims"][0]
    assert first["status"] == "proved"
    assert {check["verdict"] for check in first["checks"]} == {"holds"}
    assert first["steps"][0]["formula"]["latex"]


@pytest.mark.parametrize("form", RENDERERS)
def test_a_failed_claim_is_shown_with_what_was_found(results: list[Result], form: str) -> None:
    claim = results[0].claim
    failed = Result(claim, Status.FAILED, 1.0, (f"{claim.checks[0].name}: it is 7",), ())
    document = render([failed], form)
    assert "it is 7" in document
    assert "not shown" in document
    assert "holds" not in document.replace("that one holds", "")


def texts(claim: Claim) -> list[str]:
    """All that a claim says in sentences with marks."""
    checks = [text for check in claim.checks for text in (check.name, *check.cases)]
    return [claim.title, claim.source, *claim.assumptions, *(step.rule for step in claim.steps), *checks]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("R_x^T t_h", r"R_{x}^{T} t_{h}"),
        ("2 x / pi <= sin x <= x", r"2 x / \pi \le \sin x \le x"),
        ("x_0 >= 0 != alpha -> infinity", r"x_{0} \ge 0 \ne \alpha \to \infty"),
        ("Z^2, R^D_p, R^((K d) x d)", r"\mathbb{Z}^{2}, \mathbb{R}^{D_{p}}, \mathbb{R}^{(K d) \times d}"),
        ("W_Delta: C_out x C_in", r"W_{\Delta}: C_{\mathrm{out}} \times C_{\mathrm{in}}"),
        ("3 x 3", r"3 \times 3"),
        ("x - x_h", r"x - x_{h}"),
        ("v_h . r_delta", r"v_{h} \cdot r_{\delta}"),
        ("A_h (x) W_h + f(x)", r"A_{h} \otimes W_{h} + f(x)"),
        ("2^-150, q^(m^2 + n^2), d^*", r"2^{-150}, q^{m^{2} + n^{2}}, d^{*}"),
        ("W_{k,R} W^P_k W_kR", r"W_{k,R} W^{P}_{k} W_{kR}"),
        ("1, ..., a*c - a*(b)", r"1, \dots, a c - a (b)"),
        ("sum_{k != t} osc |W|", r"\sum_{k \ne t} \operatorname{osc} |W|"),
        ("SiLU'(x) + sqrt 2 + hat A", r"\operatorname{SiLU}'(x) + \sqrt 2 + \hat A"),
    ],
)
def test_a_formula_is_translated_sign_by_sign(formula: str, expected: str) -> None:
    assert latex(formula) == expected


def test_marks_tell_mathematics_code_and_claims_from_words() -> None:
    assumption = 'If $Z^2 < 1$, "a" `forward` is not `a-claim`_'
    claim = Claim("a-claim", "$n$ of _", Formula("x", "x"), (assumption,), (), ())
    result = Result(claim, Status.ERROR, 0.0, (), ())
    assert r'- If $\mathbb{Z}^{2} < 1$, "a" `forward` is not [a-claim](#a-claim)\_' in render([result], "markdown")
    shown = r"\item If $\mathbb{Z}^{2} < 1$, ``a'' \code{forward} is not \hyperref[a-claim]{a-claim}~\S\ref{a-claim}\_"
    assert shown in render([result], "latex")
    assert r"\section{\texorpdfstring{$n$ of \_}{n of \_}}" in render([result], "latex")
    assert plain(assumption) == 'If Z^2 < 1, "a" forward is not a-claim_'
    assert f"- {plain(assumption)}\n" in render([result], "text")
    (shown_as_data,) = json.loads(render([result], "json"))["claims"]
    assert (shown_as_data["title"], shown_as_data["assumptions"]) == ("n of _", [plain(assumption)])


def test_json_is_ascii_and_holds_every_reason_whole() -> None:
    reason = "the process ended: \u03b1\u202e\ud800"
    claim = Claim("a-claim", "title", Formula("x", "x"), (), (), ())
    text = render([Result(claim, Status.ERROR, 0.0, (reason,), ())], "json")
    assert text.isascii()
    assert json.loads(text)["claims"][0]["failures"] == [reason]


OPERATORS = {"fl", "floor", "op", "osc", "rank", "softmax", "vec", "GELU", "SiLU"}
# A sign, an index, a Greek letter or a single letter is mathematics; "1->2", "n-D" and "a" may be words.
UNMARKED = re.compile(
    r"[\^=<|*$`]|>(?<!\d->)|\w_|(?<![\w-])(?:alpha|beta|[dD]elta|epsilon|gamma|lambda|tau|theta|osc|exp)(?!\w)"
    r"|(?<![\w'-])[b-zB-HJ-Z](?![\w'-])"
)


def unmarked(text: str) -> list[str]:
    """Mathematics in the words of a text."""
    return UNMARKED.findall(re.sub(r"\$[^$]+\$|`[^`]+`", "", text))


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.claim.name)
def test_all_mathematics_is_marked_and_nothing_else(entry: Entry) -> None:
    names = {other.claim.name for other in entries()}
    for text in (*texts(entry.claim), *(meaning for _, meaning in NOTATION)):
        assert unmarked(text) == [], text
        assert not names & set(re.findall(r"[\w-]+", re.sub(r"`[^`]+`", "", text))), f"{text}: a claim is not marked"
        for formula in re.findall(r"\$([^$]+)\$", text):
            assert set(re.findall(r"operatorname{(\w+)}", latex(formula))) <= OPERATORS, text
            assert (formula.count("("), formula.count("[")) == (formula.count(")"), formula.count("]")), text


def test_lines_of_a_formula_are_split_outside_of_environments_only() -> None:
    cases = Formula(r"f = \begin{cases} 1 \\ 0 \end{cases} \\ g = 0", "f, g")
    claim = Claim("name", "title", cases, (), (), ())
    document = render([Result(claim, Status.ERROR, 0.0, (), ())], "latex")
    assert r"\begin{gather*} f = \begin{cases} 1 \\ 0 \end{cases} \\ g = 0 \end{gather*}" in document


def test_a_document_replaces_only_a_document(tmp_path: Path, results: list[Result]) -> None:
    target = tmp_path / "proofs.tex"
    for form in RENDERERS:
        with document_file(target) as write:
            write(render(results, form))
    before = target.read_text()
    (tmp_path / "weights").write_text("precious")
    for path, reason in (
        (tmp_path / "weights", "did not write it"),
        (tmp_path, "is a folder"),
        (tmp_path / "a" / "b", "no folder"),
    ):
        with pytest.raises(OutputError, match=reason), document_file(path) as write:
            write(before)
    assert (tmp_path / "weights").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["proofs.tex", "weights"]


def test_the_command_prints_a_line_for_each_claim(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("prove", "--only", "softmax-shift", "--only", "exact-defaults") == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"proved +\d+\.\d\d s  softmax-shift: Softmax ignores constants", lines[0])
    assert [line.split()[3] for line in lines[:2]] == ["softmax-shift:", "exact-defaults:"]
    assert lines[2:] == ["2 of 2 claims proved."]


def test_the_command_exits_with_1_if_a_claim_is_not_proved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("prove", "--only", "position-alone", "--limit", "0.001") == 1
    out = capsys.readouterr().out
    assert "stopped after 0.001 s" in out
    assert "0 of 1 claims proved; not proved: position-alone (timed out)." in out


def test_the_command_lists_names_and_shows_one_derivation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("claims") == 0
    assert "softmax-shift" in capsys.readouterr().out
    assert exit_code("prove", "--show", "softmax-shift") == 0
    shown = capsys.readouterr()
    assert "Derivation" in shown.out
    assert "1 of 1 claims proved." in shown.err


def test_the_command_prints_nothing_but_the_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert exit_code("prove", "--only", "softmax-shift", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["proved"]
    target = tmp_path / "proofs.tex"
    assert exit_code("prove", "--only", "softmax-shift", "--format", "latex", "--out", str(target)) == 0
    assert target.read_text().rstrip().endswith(r"\end{document}")
    assert capsys.readouterr().out.splitlines()[-1] == f"Wrote {target}"


def test_the_command_refuses_an_unknown_name_as_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("prove", "--only", "softmax-shfit") == 2
    assert capsys.readouterr().err.startswith(
        "conv2attn: there is no claim 'softmax-shfit'; the claims are softmax-shift, "
    )


def test_the_document_says_of_each_claim_what_stands_behind_it() -> None:
    (listing,) = re.findall(r"^## Claims\n(.*?)^## ", THEOREM.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    found = {
        row[0]: row[1:] for row in re.findall(r"\(#([\w-]+)\) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", listing, re.M)
    }
    assert list(found) == [entry.claim.name for entry in entries()]
    assert found["encoding-identity"] == ("printed", "proved: symbolic", "1", "-")
    assert found["errata-limit"][0] == "printed, corrected here"
    assert found["dimension-assembly"] == ("new", "proved: instances", "-", "-")
    assert found["rounded-sum"][3] == "`certify`, `check`"
