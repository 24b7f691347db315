"""From a claim to its derivation, its theorems in Coq, its tests and its code, and back."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

from conv2attn.proofs.formal.coq import FOLDER, sources, statements
from conv2attn.proofs.prover.claim import all_claims

ROOT = Path(__file__).parents[3]
THEOREMS = {(f"{statement.module}.v", statement.name) for statement in statements()}


def text_of(path: str) -> str:
    """A file of the project."""
    return (ROOT / path).read_text(encoding="utf-8")


def test_a_theorem_exists_and_its_file_names_the_claim_and_its_derivation() -> None:
    for claim in all_claims():
        for path, names in claim.coq:
            assert {(path, name) for name in names} <= THEOREMS, path
            text = text_of(f"proofs/formal/{path}")
            assert claim.name in text, path
            assert claim.file in text, path


def test_a_test_exists() -> None:
    for claim in all_claims():
        assert claim.tests, claim.name
        for path in claim.tests:
            assert "def test_" in text_of(f"tests/{path}"), path


def test_justified_code_exists_and_its_file_names_the_proof() -> None:
    for claim in all_claims():
        for path, names in claim.justifies:
            module = "conv2attn." + path.removesuffix(".py").replace("/", ".")
            assert all(pkgutil.resolve_name(f"{module}:{name}") is not None for name in names)
            assert claim.file.removeprefix("proofs/") in text_of(path), path


def test_every_theorem_belongs_to_a_claim() -> None:
    assert {(path, name) for claim in all_claims() for path, names in claim.coq for name in names} == THEOREMS


def test_every_file_of_the_library_is_compiled() -> None:
    assert {path.name for path in sources()} == {path.name for path in FOLDER.glob("*.v")}
    assert len(THEOREMS) > 20


def test_no_file_of_the_library_admits_anything() -> None:
    forbidden = re.compile(r"\b(Admitted|admit|Axiom|Parameter|Conjecture|Unset|bypass_check)\b")
    assert {path.name: forbidden.findall(path.read_text(encoding="utf-8")) for path in sources()} == {
        path.name: [] for path in sources()
    }
