(** * Scores that are computed without rounding

    With alpha a power of two, the scores v . r are integers times alpha, and every product and partial sum of them is a
    number of the format as long as it stays below 2^precision times alpha. Beside
    proofs/claims/computing/exact_scores.py (claim exact-scores); the code is [scores_are_exact] in
    convert/heads/encoding.py. *)

From Coq Require Import ZArith Reals Lia Lra Psatz.
From Flocq Require Import Core.
From Conv2Attn Require Import Sums Summation Rounding Binary.
Open Scope R_scope.

(** Sums of products of an integer times 2^e with an integer, in some order. *)
Inductive score_tree (e : Z) : tree -> Prop :=
  | Score_product m n : score_tree e (Scale (IZR m * bpow radix2 e) (Leaf (IZR n)))
  | Score_sum l r : score_tree e l -> score_tree e r -> score_tree e (Plus l r).

Lemma score_tree_value e t : score_tree e t -> exists n, exact t = IZR n * bpow radix2 e.
Proof.
  induction 1 as [m n|l r _ [a Ha] _ [b Hb]].
  - exists (m * n)%Z. simpl. rewrite mult_IZR. ring.
  - exists (a + b)%Z. simpl. rewrite Ha, Hb, plus_IZR. ring.
Qed.

Section Scores.
Variables (f : format) (Hf : (0 < precision f)%Z) (e : Z).
Hypothesis He : (lowest f <= e)%Z.

(** An integer times 2^e that is not too large is a number. *)
Lemma small_value t :
  score_tree e t -> absolute t <= bpow radix2 (precision f + e) -> representable f (exact t).
Proof.
  intros Ht Hsmall. destruct (score_tree_value e t Ht) as [n Hn].
  pose proof (exact_absolute t) as Habs. rewrite Hn in *. apply integers_representable; [assumption| |assumption].
  pose proof (bpow_gt_0 radix2 e). rewrite Rabs_mult, (Rabs_pos_eq (bpow radix2 e)) in Habs by lra.
  rewrite bpow_plus in Hsmall. rewrite <- abs_IZR in Habs.
  assert (H1 : IZR (Z.abs n) <= bpow radix2 (precision f)).
  { apply Rmult_le_reg_r with (bpow radix2 e); [assumption|]. lra. }
  rewrite <- IZR_Zpower in H1 by lia. now apply le_IZR in H1.
Qed.

(** However a machine adds up a score, it finds the score itself. *)
Theorem scores_without_rounding t y :
  computes (ieee f Hf) t y -> score_tree e t -> absolute t <= bpow radix2 (precision f + e) -> y = exact t.
Proof.
  induction 1 as [x Hx|a t y H IH|l r y z Hl IHl Hr IHr|a t r y z Ht' IHt Hr IHr|l r y H IH];
    intros Ht Hsmall; pose proof (small_value _ Ht Hsmall) as Hn.
  - inversion Ht.
  - inversion Ht as [m n E|]; subst. inversion H; subst. simpl. now apply nearest_of_representable.
  - inversion Ht as [|? ? H1 H2]; subst. pose proof (absolute_nonneg l). pose proof (absolute_nonneg r). simpl in Hsmall.
    rewrite IHl, IHr by (assumption || lra). now apply nearest_of_representable.
  - inversion Ht as [|? ? H1 H2]; subst. inversion H1 as [m n E|]; subst. inversion Ht'; subst.
    pose proof (absolute_nonneg r). pose proof (absolute_nonneg (Scale (IZR m * bpow radix2 e) (Leaf (IZR n)))).
    change (absolute (Plus (Scale (IZR m * bpow radix2 e) (Leaf (IZR n))) r))
      with (absolute (Scale (IZR m * bpow radix2 e) (Leaf (IZR n))) + absolute r) in Hsmall.
    rewrite IHr by (assumption || lra). simpl. now apply nearest_of_representable.
  - inversion Ht as [|? ? H1 H2]; subst. simpl in Hsmall |- *. rewrite Rplus_comm. apply IH.
    + now constructor.
    + simpl. lra.
Qed.
End Scores.
