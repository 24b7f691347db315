"""From a claim to its derivation, its theorems in Coq, its tests and its code, and back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conv2attn.proofs.formal.coq.library import FOLDER, sources, statements
from conv2attn.proofs.prover.claim import Claim
from conv2attn.proofs.prover.registry import Entry, entries

ROOT = Path(__file__).parents[3]
THEOREMS = {str(statement) for statement in statements()}
ENTRIES = [pytest.param(entry.claim, id=entry.claim.name) for entry in entries()]


def text_of(path: str) -> str:
    """A file of the project."""
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("claim", ENTRIES)
def test_the_file_that_derives_a_claim_makes_it(claim: Claim) -> None:
    assert f'"{claim.name.removeprefix("errata-")}"' in text_of(claim.derived_in)


@pytest.mark.parametrize("claim", ENTRIES)
def test_a_theorem_exists_and_its_file_names_the_claim_and_its_derivation(claim: Claim) -> None:
    for theorem in claim.formal:
        assert theorem in THEOREMS
        text = text_of(f"proofs/formal/{theorem.split('.')[0]}.v")
        assert claim.name in text
        assert claim.derived_in in text


@pytest.mark.parametrize("claim", ENTRIES)
def test_a_test_exists(claim: Claim) -> None:
    assert claim.tests
    for test in claim.tests:
        module, _, function = test.rpartition(".")
        assert re.search(rf"^def {function}\(", text_of(f"tests/{module.replace('.', '/')}.py"), re.MULTILINE)


def test_every_theorem_belongs_to_a_claim() -> None:
    assert {theorem for entry in entries() for theorem in entry.claim.formal} == THEOREMS


def test_a_claim_is_found_wherever_its_file_lies() -> None:
    families = ROOT / "proofs" / "claims"
    making = [path for path in families.rglob("*.py") if re.search(r"^def claims\(", path.read_text(), re.MULTILINE)]
    assert {path.relative_to(ROOT).as_posix() for path in making} == {entry.claim.derived_in for entry in entries()}


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
    listed = [item for items in entry.claim.references.values() for item in items]
    assert [item for item in (*listed, *entry.claim.justifies) if f"- `{item}`" not in document] == []
