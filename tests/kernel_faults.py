"""Planted faults that Coq, or the check around it, must refuse. Needs Coq: only ``make formal`` runs it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from conv2attn.proofs.formal.coq import ask as kernel
from conv2attn.proofs.formal.coq.ask import FormalResult, check_formal
from conv2attn.proofs.formal.coq.library import FOLDER, PROJECT

SOUND = "Theorem true_enough : 1 + 1 = 2.\nProof. reflexivity. Qed.\n"
FAULTS = {
    "an admitted lemma": (
        "Lemma step : 0 = 1. Admitted.\nTheorem fault : 1 = 0.\nProof. now rewrite <- step. Qed.",
        "step",
    ),
    "an admitted theorem": ("Theorem fault : 0 = 1.\nProof.\nAdmitted.", "fault"),
    "an admitted lemma that nothing uses": ("Lemma unused : 0 = 1. Admitted.", "unused"),
    "an axiom": ("Axiom extra : 0 = 1.\nTheorem fault : 0 = 1.\nProof. exact extra. Qed.", "extra"),
    "a parameter": ("Parameter anything : False.", "anything"),
    "a variable outside of a section": ("Variable anything : False.", "anything"),
    "an axiom of another library": (
        "From Coq Require Import ProofIrrelevance.\nTheorem fault (P : Prop) (p q : P) : p = q.\n"
        "Proof. apply proof_irrelevance. Qed.",
        "ProofIrrelevance",
    ),
    "recursion without an end": (
        "Unset Guard Checking.\nFixpoint loop (n : nat) : False := loop n.\nTheorem fault : False.\n"
        "Proof. exact (loop 0). Qed.",
        "loop",
    ),
    "a type that holds itself": (
        "Unset Universe Checking.\nDefinition T : Type := Type.\nDefinition x : T := T.",
        "type-in-type",
    ),
    "a false proof": ("Theorem fault : 0 = 1.\nProof. reflexivity. Qed.", "coqc refused"),
}


def checked(folder: Path, text: str, *, needed: tuple[str, ...] = ()) -> FormalResult:
    """What is said of a library with one file, after some of the true library's."""
    for name in needed:
        (folder / f"{name}.v").write_text((FOLDER / f"{name}.v").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "Planted.v").write_text(text, encoding="utf-8")
    (folder / PROJECT).write_text("\n".join(f"{name}.v" for name in (*needed, "Planted")), encoding="utf-8")
    return check_formal(folder=folder)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_refused(tmp_path: Path, fault: str) -> None:
    text, named = FAULTS[fault]
    result = checked(tmp_path, SOUND + text + "\n")
    assert not result.is_proved
    assert any(named in failure for failure in result.failures), result.failures


def test_a_sound_theorem_is_accepted_and_a_formula_restated_wrongly_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "tau_upper", lambda q, terms: Fraction(q) / (terms + 1))
    result = checked(tmp_path, SOUND, needed=("Sums", "Encoding", "Theta", "Enclosure"))
    assert {str(theorem.statement): theorem.axioms for theorem in result.theorems}["Planted.true_enough"] == ()
    (failure,) = result.failures
    assert failure.startswith("tau: Coq evaluates")
