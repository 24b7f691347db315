"""From a claim to its derivation, its theorems in Coq, its tests and its code, and back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conv2attn.proofs.formal.coq.library import FOLDER, sources, statements
from conv2attn.proofs.prover.references import REFERENCES
from conv2attn.proofs.prover.registry import Entry, entries

ROOT = Path(__file__).parents[1]
THEOREMS = {str(statement) for statement in statements()}
NAMES = list(REFERENCES)


def text_of(path: str) -> str:
    """A file of the project."""
    return (ROOT / path).read_text(encoding="utf-8")


def test_every_claim_has_references_and_nothing_else_has() -> None:
    assert set(REFERENCES) == {entry.claim.name for entry in entries()}


@pytest.mark.parametrize("name", NAMES)
def test_the_file_that_derives_a_claim_makes_it(name: str) -> None:
    assert f'"{name.removeprefix("errata-")}"' in text_of(f"proofs/claims/{REFERENCES[name].proof}.py")


@pytest.mark.parametrize("name", NAMES)
def test_a_theorem_exists_and_its_file_names_the_claim_and_its_derivation(name: str) -> None:
    for theorem in REFERENCES[name].formal:
        assert theorem in THEOREMS
        text = text_of(f"proofs/formal/{theorem.split('.')[0]}.v")
        assert name in text
        assert f"proofs/claims/{REFERENCES[name].proof}.py" in text


@pytest.mark.parametrize("name", NAMES)
def test_a_test_exists(name: str) -> None:
    assert REFERENCES[name].tests
    for test in REFERENCES[name].tests:
        file, function = test.split(".")
        assert re.search(rf"^def {function}\(", text_of(f"tests/{file}.py"), re.MULTILINE)


def test_every_theorem_belongs_to_a_claim() -> None:
    assert {theorem for references in REFERENCES.values() for theorem in references.formal} == THEOREMS


def test_every_file_of_the_library_is_compiled() -> None:
    assert {path.name for path in sources()} == {path.name for path in FOLDER.glob("*.v")}
    assert len(THEOREMS) > 20


def test_no_file_of_the_library_admits_anything() -> None:
    forbidden = re.compile(r"\b(Admitted|admit|Axiom|Parameter|Conjecture|Unset|bypass_check)\b")
    assert {path.name: forbidden.findall(path.read_text(encoding="utf-8")) for path in sources()} == {
        path.name: [] for path in sources()
    }


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.claim.name)
def test_code_that_relies_on_a_claim_leads_to_it(entry: Entry) -> None:
    document = text_of("docs/theorem.md").partition(f"\n## {entry.claim.name}\n")[2].partition("\n## ")[0]
    listed = [item for items in REFERENCES[entry.claim.name].listed.values() for item in items]
    assert [item for item in (*listed, *entry.claim.justifies) if f"- `{item}`" not in document] == []
