"""The proofs as documents: every form holds every claim, and what is committed is current."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from conv2attn import cli
from conv2attn.convert.errors import OutputError
from conv2attn.proofs import Claim, Formula, Result, Status, prove
from conv2attn.proofs.prover.document import RENDERERS, render
from conv2attn.proofs.prover.document import prose as prose_module
from conv2attn.proofs.prover.document.document import write_document
from conv2attn.proofs.prover.document.prose import Part, Sort, parts
from conv2attn.proofs.prover.registry import Entry, entries

THEOREM = Path(__file__).parent.parent / "docs" / "theorem.md"


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


def prose(text: str) -> str:
    """A sentence with its mathematics in dollar signs."""
    return "".join(f"${part.text}$" if part.sort is Sort.MATH else part.text for part in parts(text))


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("R_x^T t_h is a number", r"$R_{x}^{T} t_{h}$ is a number"),
        ("2 x / pi <= sin x <= x", r"$2 x / \pi \le \sin x \le x$"),
        ("If alpha > 0, a head looks.", r"If $\alpha > 0$, a head looks."),
        ("Points of Z^2 and R^D_p", r"Points of $\mathbb{Z}^{2}$ and $\mathbb{R}^{D_{p}}$"),
        ("W_Delta is a slice, C_out x C_in", r"$W_{\Delta}$ is a slice, $C_{\mathrm{out}} \times C_{\mathrm{in}}$"),
        ("eq. (9)-(11) with 3 components", "eq. (9)-(11) with 3 components"),
        ("a 3 x 3 kernel, one-hot", r"a $3 \times 3$ kernel, one-hot"),
        ("at p_i - (x_h, y_h), where", "at $p_{i} - ( x_{h} , y_{h} )$, where"),
        ("the softmax's scores, as positional_scores does", "the softmax's scores, as positional_scores does"),
        ("q -> 0 as alpha -> infinity", r"$q \to 0$ as $\alpha \to \infty$"),
        ("below 2^-150", "below $2^{- 150}$"),
        ("|delta|^2 is a sum", r"$| \delta | ^{2}$ is a sum"),
        ("a = c = 2 alpha", r"$a = c = 2 \alpha$"),
    ],
)
def test_mathematics_is_found_in_plain_sentences(plain: str, expected: str) -> None:
    assert prose(plain) == expected


SIGNS = re.compile(r"\\(?:mathrm|mathbb|le|ge|ne|to|dots|cdot|times)\b")  # LaTeX that stands for no word


def words(text: str) -> list[str]:
    """Words, names and numbers, in order; x may be a name or the sign of a product, and is left out."""
    found = re.findall(r"[A-Za-z]+|\d+", text.replace("infinity", "infty"))
    return [word for word in found if word != "x"]


def lost(text: str) -> bool:
    """Whether a sentence's parts hold other words than the sentence, or another number of them."""
    return words(SIGNS.sub(" ", " ".join(part.text for part in parts(text)))) != words(text)


def sentences(results: list[Result]) -> list[str]:
    claims = [result.claim for result in results]
    return [text for claim in claims for text in (*claim.assumptions, *(step.rule for step in claim.steps))]


def test_no_word_of_a_sentence_is_lost(results: list[Result]) -> None:
    assert [text for text in sentences(results) if lost(text)] == []


@pytest.mark.parametrize("sort", [Sort.WORDS, Sort.MATH])
@pytest.mark.parametrize("place", [0, -1])
def test_a_lost_part_of_any_sentence_is_seen(
    sort: Sort, place: int, results: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = prose_module._joined

    def without_one(found: list[Part]) -> list[Part]:
        kept = list(joined(found))
        candidates = [part for part in kept if part.sort is sort and words(SIGNS.sub(" ", part.text))]
        return [part for part in kept if part is not candidates[place]] if candidates else kept

    texts = [text for text in sentences(results) if any(part.sort is sort and words(part.text) for part in parts(text))]
    monkeypatch.setattr(prose_module, "_joined", without_one)
    assert texts
    assert [text for text in texts if not lost(text)] == []


def test_lines_of_a_formula_are_split_outside_of_environments_only() -> None:
    cases = Formula(r"f = \begin{cases} 1 \\ 0 \end{cases} \\ g = 0", "f, g")
    claim = Claim("name", "title", cases, (), (), ())
    document = render([Result(claim, Status.ERROR, 0.0, (), ())], "latex")
    assert r"\begin{gather*} f = \begin{cases} 1 \\ 0 \end{cases} \\ g = 0 \end{gather*}" in document


def test_a_document_replaces_only_a_document(tmp_path: Path, results: list[Result]) -> None:
    target = tmp_path / "proofs.tex"
    for form in RENDERERS:
        write_document(target, render(results, form))
    before = target.read_text()
    (tmp_path / "weights").write_text("precious")
    for path, reason in (
        (tmp_path / "weights", "did not write it"),
        (tmp_path, "is a folder"),
        (tmp_path / "a" / "b", "no folder"),
    ):
        with pytest.raises(OutputError, match=reason):
            write_document(path, before)
    assert (tmp_path / "weights").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["proofs.tex", "weights"]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of a command line."""
    monkeypatch.setattr(sys, "argv", ["conv2attn", "prove", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_the_command_prints_a_line_for_each_claim(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--only", "softmax-shift", "--only", "exact-defaults") == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"proved +\d+\.\d\d s  softmax-shift: Softmax ignores constants", lines[0])
    assert [line.split()[3] for line in lines[:2]] == ["softmax-shift:", "exact-defaults:"]
    assert lines[2:] == ["2 of 2 claims proved."]


def test_the_command_exits_with_1_if_a_claim_is_not_proved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--only", "position-alone", "--limit", "0.001") == 1
    out = capsys.readouterr().out
    assert "stopped after 0.001 s" in out
    assert "0 of 1 claims proved; not proved: position-alone (timed out)." in out


def test_the_command_lists_names_and_shows_one_derivation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--list") == 0
    assert "softmax-shift" in capsys.readouterr().out
    assert run(monkeypatch, "--show", "softmax-shift") == 0
    shown = capsys.readouterr()
    assert "Derivation" in shown.out
    assert "1 of 1 claims proved." in shown.err


def test_the_command_prints_nothing_but_the_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(monkeypatch, "--only", "softmax-shift", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["proved"]
    target = tmp_path / "proofs.tex"
    assert run(monkeypatch, "--only", "softmax-shift", "--format", "latex", "--out", str(target)) == 0
    assert target.read_text().rstrip().endswith(r"\end{document}")
    assert capsys.readouterr().out.splitlines()[-1] == f"Wrote {target}"


def test_the_command_refuses_an_unknown_name_as_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--only", "softmax-shfit") == 2
    assert capsys.readouterr().err.startswith(
        "conv2attn: there is no claim 'softmax-shfit'; the claims are softmax-shift, "
    )
