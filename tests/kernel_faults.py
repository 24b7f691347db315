"""Planted faults that Coq, or the check around it, must refuse. Needs Coq: only ``make formal`` runs it."""

from __future__ import annotations

import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from conv2attn.proofs.formal import coq as kernel
from conv2attn.proofs.formal.coq import FOLDER, LIBRARY, PROJECT, FormalResult, check_formal, sources, statements

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

# What a statement or a definition says, and what it must not say: module, text, false text.
FALSE_VARIANTS = {
    "a tail of n axes that is half as large": ("Box", "<= 2 * INR n * q / (1 + q)", "<= INR n * q / (1 + q)"),
    "a grid's tail with one axis less": ("Box", "<= tau_n (length sizes) alpha", "<= tau_n (length sizes - 1) alpha"),
    "a query beside the middle tap": (
        "ConvolutionN",
        "(y - Z.of_nat ((K a - 1) / 2))",
        "(y - Z.of_nat (K a / 2))",
    ),
    "reflection by the whole image": ("Padding", "(low < n /\\ high < n)%nat", "(low <= n /\\ high <= n)%nat"),
    "padding that may exceed the bound": ("Padding", "  0 <= B -> (forall k p", "  - 1 <= B -> (forall k p"),
    "circular padding the other way": ("Padding", "Some (p mod Z.of_nat n)", "Some ((- p) mod Z.of_nat n)"),
    "a chord of half the slope": ("Ranges", "((s + d) * q + s * p) / (p + q)", "((s + d) * q + s * p) / (2 * (p + q))"),
    "a quarter of what a chord leaves": ("Ranges", "d * (p * q / (p + q)) / 2 in", "d * (p * q / (p + q)) / 4 in"),
    "ranges of half the reach": ("Ranges", "(forall u, reach u <= D u)", "(forall u, reach u <= 2 * D u)"),
    "a backward pass whose error is taken off": (
        "Ranges",
        "+ Sum x in seq 0 n, h x * d x.",
        "- Sum x in seq 0 n, h x * d x.",
    ),
    "D_p = n": ("TheoremN", "(length (axes g) + 1 <= positional d)", "(length (axes g) <= positional d)"),
    "D_k = n": ("TheoremN", "(length (axes g) + 1 <= key_dim d)", "(length (axes g) <= key_dim d)"),
    "queries and keys of no dimension": (
        "TheoremN",
        "(1 <= key)%nat ->\n  enough d g -> extends_encoding",
        "(0 <= key)%nat ->\n  enough d g -> extends_encoding",
    ),
    "a position's matrix with ones below the identity": (
        "Attention",
        "if (i =? j)%nat then 1 else 0.",
        "if (i <=? j)%nat then 1 else 0.",
    ),
    "max(D_h, D_out) channels": ("TheoremN", "Nat.min (head_dim d) (out_dim d)", "Nat.max (head_dim d) (out_dim d)"),
    "one head less than taps": (
        "TheoremN",
        "(length (taps g) <= head_count d)",
        "(length (taps g) <= S (head_count d))",
    ),
    "spare heads whose W_out is 0 but for one": (
        "SpareHeads",
        "(forall j, (j < M * D_h L)%nat -> W j o = 0)",
        "(forall j, (j < M * D_h L - 1)%nat -> W j o = 0)",
    ),
    "a spare head that takes a row of W_out from the layer": (
        "SpareHeads",
        "if (j <? N_h L * D_h L)%nat then W_out L j o",
        "if (j <=? N_h L * D_h L)%nat then W_out L j o",
    ),
    "tokens whose channel of ones counts half": (
        "Tokens",
        "+ (- (2 * pairs) * read beta mq sq 1) * read beta mk sk 1) / root.",
        "+ (- pairs * read beta mq sq 1) * read beta mk sk 1) / root.",
    ),
    "tokens whose mean is not taken off": (
        "Tokens",
        "beta * (normed m s x - normed m s 0).",
        "beta * normed m s x.",
    ),
    "the tail of one axis": (
        "TheoremN",
        "%nat\n  * Sum m in taps g, tau_n (length (axes g)) (alpha m)",
        "%nat\n  * Sum m in taps g, tau_n 1 (alpha m)",
    ),
    "half of the weighted range": (
        "TheoremN",
        "<= tau_n (length (axes g)) alpha * weighted_range_n g W (box sizes) X o.",
        "<= tau_n (length (axes g)) alpha * weighted_range_n g W (box sizes) X o / 2.",
    ),
    "an alpha that is too small": ("TheoremN", "ln (2 + 4 * INR", "ln (2 + 1 * INR"),
    "values of 2 B": (
        "TheoremN",
        "Rabs (X k c) <= B) ->\n  is_output_n (axes g) sizes i -> "
        "(o < groups_n g * outputs g)%nat ->\n  Rabs (mhsa (attention_n",
        "Rabs (X k c) <= 2 * B) ->\n  is_output_n (axes g) sizes i -> "
        "(o < groups_n g * outputs g)%nat ->\n  Rabs (mhsa (attention_n",
    ),
    "a quarter of the kernel's change": ("SmoothedKernel", "(W o c) window / 2).", "(W o c) window / 4)."),
    "an osc that is counted from an end": (
        "SmoothedKernel",
        "<= osc keys X c / 2 * Sum k in keys, Rabs (g k).",
        "<= osc keys X c / 4 * Sum k in keys, Rabs (g k).",
    ),
    "a border that changes nothing": (
        "SmoothedKernel",
        "((1 - mass (alpha m) (offset_n l m) (span l)) + (1 - mass",
        "(0 * (1 - mass (alpha m) (offset_n l m) (span l)) + (1 - mass",
    ),
    "a window that leaves nothing out": (
        "SmoothedKernel",
        "+ (1 - mass (alpha m) (offset_n l m) window))",
        "+ 0 * (1 - mass (alpha m) (offset_n l m) window))",
    ),
    "a window without the taps": ("SmoothedKernel", "In (offset_n (axes g) m) window).", "length m = length m)."),
    "attention that sees zeros": (
        "PaddedKeys",
        "mhsa L keys (fun _ => x) q' o.",
        "mhsa L keys (fun _ c => x c + 1) q' o.",
    ),
    "a rounding less for each sum": (
        "Summation",
        "else if null r then depth l else S (Nat.max (depth l) (depth r))",
        "else if null r then depth l else Nat.max (depth l) (depth r)",
    ),
    "products that lose nothing by underflow": (
        "Summation",
        "else if is_one a then products t else 1",
        "else if is_one a then products t else 0",
    ),
    "a product and a sum that are not rounded": (
        "Summation",
        "computes (Plus (Scale a t) r) (rd (a * y + z))",
        "computes (Plus (Scale a t) r) (rd (a * y + z) + 1)",
    ),
    "gamma without its denominator": ("Rounding", "INR m * u / (1 - INR m * u).", "INR m * u / 1."),
    "a bound for one term less": (
        "Rounding",
        "(live l <= m)%nat -> INR m * unit A < 1 ->\n  Rabs",
        "(live l <= S m)%nat -> INR m * unit A < 1 ->\n  Rabs",
    ),
    "a sum of two terms without rounding": ("Rounding", "(live l <= 1)%nat", "(live l <= 2)%nat"),
    "half of the unit roundoff": (
        "Binary",
        "roundoff : R := power (- precision f).",
        "roundoff : R := power (- precision f - 1).",
    ),
    "zero from the smallest number on": (
        "Binary",
        "Rabs x < half_smallest -> nearest",
        "Rabs x <= 2 * half_smallest -> nearest",
    ),
    "integers of one bit more": (
        "Binary",
        "(Z.abs n <= 2 ^ precision f)%Z ->",
        "(Z.abs n <= 2 ^ (precision f + 1))%Z ->",
    ),
    "one-hot from alpha = 103 on": ("OneHot", "(104 <= alpha ->", "(103 <= alpha ->"),
    "one-hot without a gap": ("OneHot", "s k <= s t - alpha) ->", "s k <= s t) ->"),
    "double precision from 745 on": ("OneHot", "(746 <= alpha ->", "(745 <= alpha ->"),
    "scores of one bit more": (
        "ExactScores",
        "computes (ieee f Hf) t y -> score_tree e t -> absolute t <= bpow radix2 (precision f + e)",
        "computes (ieee f Hf) t y -> score_tree e t -> absolute t <= bpow radix2 (precision f + e + 1)",
    ),
    "a convolution without its bias's term": (
        "Certificate",
        "term_count : nat := S (length (taps g) * inputs g).",
        "term_count : nat := length (taps g) * inputs g.",
    ),
    "an output that is not rounded": ("ExactRegime", "if shorter then roundoff fo * (1 +", "if shorter then 0 * (1 +"),
    "one side for both": (
        "ExactRegime",
        "  2 * side f fo shorter (term_count g)",
        "  1 * side f fo shorter (term_count g)",
    ),
    "attention that need not be one-hot": (
        "ExactRegime",
        "0 <= flushed ->\n  one_hot_at g sizes i p ->",
        "0 <= flushed ->\n  (forall m k, 0 <= p m k <= 1) ->",
    ),
    "an alpha of any size": (
        "ExactRegime",
        "representable f 1 -> growth E * exp (- alpha) <",
        "representable f 1 -> 0 * growth E * exp (- alpha) <",
    ),
    "an axis that is not looked at": (
        "ExactRegime",
        "match tables, k with q :: tables', x :: k' => q x * table_product",
        "match tables, k with q :: tables', x :: k' => table_product",
    ),
    "alphas that are not those of the layer": (
        "Checker",
        "In (bpow radix2 (e m)) (map number (alphas s))) ->\n  (forall p scores",
        "In (bpow radix2 (e m)) [1; 128]) ->\n  (forall p scores",
    ),
    "a bound that forgets the bias": (
        "Checker",
        "let a := add (mul r total) (size b) in",
        "let a := mul r total in",
    ),
    "a bound for one side": (
        "Checker",
        "  mul (2, 0) (add (mul a (relative, 0))",
        "  mul (1, 0) (add (mul a (relative, 0))",
    ),
    "a comparison the other way": ("Checker", "fst (add x (opposite y)) <=? 0.", "0 <=? fst (add x (opposite y))."),
    "a threshold of 100": ("Checker", "then (746, 0) else (104, 0).", "then (746, 0) else (100, 0)."),
    "channels that are not looked at": (
        "Checker",
        "then Accepted else Too_small in",
        "then Accepted else Accepted in",
    ),
    "a largest number that is twice as large": (
        "Overflow",
        "emax (f : format) : Z := 3 - lowest f",
        "emax (f : format) : Z := 4 - lowest f",
    ),
    "sums up to twice the largest number": (
        "Overflow",
        "2 * B + power (lowest f + precision f - 1) < power (emax f).",
        "2 * B + power (lowest f + precision f - 1) < power (emax f + 1).",
    ),
    "a weight that multiplies a sum of pixels": (
        "Overflow",
        "picks l /\\ picks r /\\ (null l = true \\/ null r = true)",
        "picks l /\\ picks r /\\ (null l = true \\/ True)",
    ),
    "sums that may be four times as large": (
        "Overflow",
        "4 * (r * weight_sum g W o + Rabs (b o)) <= power E ->",
        "1 * (r * weight_sum g W o + Rabs (b o)) <= power E ->",
    ),
    "an output of any size": ("Overflow", "Rabs (B2R z) <= power E -> (lowest fo", "0 <= power E -> (lowest fo"),
    "an alpha whose scores overflow": (
        "FloatSoftmax",
        "(precision f + e <= emax f - 2)%Z -> runs_scores",
        "(precision f + e <= emax f)%Z -> runs_scores",
    ),
    "a softmax without a gap between finite scores": (
        "FloatSoftmax",
        "k <> t -> B2R (s k) <= B2R (s t) - alpha) ->",
        "k <> t -> B2R (s k) <= B2R (s t)) ->",
    ),
    "a dot product with half of the centre": (
        "Literal",
        "(- power e, squares) :: map (fun p => (2 * power e",
        "(- power e, squares) :: map (fun p => (1 * power e",
    ),
    "a grid that is measured without its centre": (
        "Literal",
        "(d * d + 2 * (Z.abs c * d) + farthest",
        "(d * d + 0 * (Z.abs c * d) + farthest",
    ),
    "values without a channel": (
        "Literal",
        "(X k (channel_of c)))) (seq 0 (inputs g))).",
        "(X k 0%nat))) (seq 0 (inputs g))).",
    ),
    "a channel's sum that is not judged by four": (
        "Checker",
        "(mul (4, 0) (add (mul r total)",
        "(mul (1, 0) (add (mul r total)",
    ),
    "half precision with single's largest number": (
        "Checker",
        "match dtype with 0 => 15 | 3 => 1023 | _ => 127 end.",
        "match dtype with 3 => 1023 | _ => 127 end.",
    ),
    "an alpha whose differences overflow": (
        "Checker",
        "(1, emax (sum_format dtype) - 2 - precision",
        "(1, emax (sum_format dtype) - precision",
    ),
    "probabilities whose sum does not err": (
        "SoftmaxRounding",
        "Rabs (computed k - p k) <= (1 + E) * (1 + u) / ((1 - E) * (1 - T)) - 1.",
        "Rabs (computed k - p k) <= (1 + E) * (1 + u) / (1 - E) - 1.",
    ),
    "quotients that are not rounded": (
        "SoftmaxRounding",
        "Rabs (computed k - p k) <= (1 + E) * (1 + u) / ((1 - E) * (1 - T)) - 1.",
        "Rabs (computed k - p k) <= (1 + E) / ((1 - E) * (1 - T)) - 1.",
    ),
    "bits with the other sign": (
        "StoredNumbers",
        "Some (if negative then Zneg m else Zpos m, e)",
        "Some (if negative then Zpos m else Zneg m, e)",
    ),
    "an infinity that is 0": ("StoredNumbers", "  | _ => None\n  end.", "  | _ => Some (0, 0)\n  end."),
    "a zero that is none": ("StoredNumbers", "F754_zero _ => Some (0, 0)", "F754_zero _ => Some (1, 0)"),
    "an error of 3 without padded keys": ("PaddedKeys", "  5 / 2 <= error 0%nat 0%nat", "  3 <= error 0%nat 0%nat"),
}


def compiles(library: Path, folder: Path, module: str, text: str) -> tuple[bool, str]:
    """Whether Coq accepts a variant of a module beside the compiled library, and what it says."""
    (folder / f"{module}.v").write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["coqc", "-q", "-Q", str(library), LIBRARY, f"{module}.v"], cwd=folder, capture_output=True, encoding="utf-8"
    )
    return done.returncode == 0, done.stderr


@pytest.mark.fault
@pytest.mark.parametrize("variant", FALSE_VARIANTS)
def test_a_false_variant_of_a_statement_is_refused(library: Path, tmp_path: Path, variant: str) -> None:
    module, true, false = FALSE_VARIANTS[variant]
    text = (FOLDER / f"{module}.v").read_text(encoding="utf-8")
    assert text.count(true) == 1
    accepted, said = compiles(library, tmp_path, module, text.replace(true, false))
    assert not accepted
    assert "Syntax error" not in said, said
    assert "was not found in the current environment" not in said, said


def test_a_true_statement_is_accepted_there(library: Path, tmp_path: Path) -> None:
    assert compiles(library, tmp_path, "Padding", (FOLDER / "Padding.v").read_text(encoding="utf-8"))[0]


def test_the_library_is_proved(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``conv2attn formal`` checks it, with what ``make checker`` compiled of the same files.

    coqchk reads these files alone: those of Coq's own real numbers, which never change here, take it a minute more.
    """
    for source in sources():
        assert (library / source.name).read_bytes() == source.read_bytes()
    honest = kernel._Coq.compile

    def compile_what_is_new(coq: kernel._Coq, name: str) -> None:
        if not (coq.place / name).with_suffix(".vo").exists():
            honest(coq, name)

    monkeypatch.setattr(kernel._Coq, "compile", compile_what_is_new)
    result = check_formal(folder=library, limit=3600, whole=False)
    assert result.failures == ()
    assert [theorem.statement for theorem in result.theorems] == statements()


def checked(folder: Path, text: str, *, needed: tuple[str, ...] = ()) -> FormalResult:
    """What is said of a library with one file, after some of the true library's."""
    for name in needed:
        (folder / f"{name}.v").write_text((FOLDER / f"{name}.v").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "Planted.v").write_text(text, encoding="utf-8")
    (folder / PROJECT).write_text("\n".join(f"{name}.v" for name in (*needed, "Planted")), encoding="utf-8")
    return check_formal(folder=folder, whole=not needed)


@pytest.mark.fault
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
