"""Derivations for a terminal have no notation left, and say what their formulas say."""

from __future__ import annotations

import re

import pytest

from conv2attn.proofs.prover.claim import all_claims, claim_headings, select
from conv2attn.proofs.prover.document import sections
from conv2attn.proofs.prover.plain_text import formula, plain_text
from conv2attn.proofs.prover.run import Result

COQ = re.compile(r"^```coq.*?^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", [heading.name for heading in claim_headings()])  # what they say takes seconds to make
def test_no_claim_leaves_markdown_or_latex(name: str) -> None:
    (claim,) = select(all_claims(), [name])
    shown = plain_text(COQ.sub("", sections([Result(claim, ())])[0]))
    assert not {"$", "\\", "`", "&"} & set(shown)
    assert not any(mark in shown for mark in ("**", "](", "<a"))
    assert all(len(line) <= 104 or line.startswith("|") for line in shown.splitlines())


@pytest.mark.parametrize(
    ("tex", "expected"),
    [
        (r"e^{-\alpha} \le \frac{a + b}{2 c}", "e^(-\u03b1) \u2264 (a + b)/(2 c)"),
        (r"-\alpha |\delta - \Delta|^{2}", "-\u03b1 |\u03b4 - \u0394|\u00b2"),
        (r"\left(\delta_{1}^{2} + x_{10}\right)", "(\u03b4\u2081\u00b2 + x\u2081\u2080)"),
        (r"D_{out} \ne \operatorname{rank} U^{\top}", "D_out \u2260 rank U\u1d40"),
        (r"\begin{aligned} a &= b \\ &= c \end{aligned}", "a = b\n= c"),
        (r"\sqrt{2} \cos\bar{x} \in \mathbb{R}", "\u221a2 cosx\u0304 \u2208 \u211d"),
    ],
)
def test_a_formula_reads_as_it_is_written_by_hand(tex: str, expected: str) -> None:
    assert formula(tex) == expected


def test_marks_links_and_programs() -> None:
    text = "### A title\n\n**Bold** and *slanted*, [a link](../file.py) (`a*b*c`).\n```coq\nTheorem a * b.\n```\nAfter."
    assert plain_text(text) == "A title\n\nBold and slanted, a link (a*b*c).\n\n    Theorem a * b.\n\nAfter.\n"
