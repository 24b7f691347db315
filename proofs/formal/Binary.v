(** * IEEE 754's binary formats, rounded to nearest, are an arithmetic

    With subnormal numbers, and without a largest number: Overflow.v has the numbers with one. Flocq has the formats and
    their rounding. Beside proofs/claims/computing/floating_point.py (claim one-hot-threshold) and
    proofs/claims/computing/exact_scores.py (claim exact-scores). *)

From Coq Require Import ZArith Reals Lia Lra Psatz.
From Flocq Require Import Core Plus_error Relative.
From Conv2Attn Require Import Sums Summation.
Open Scope R_scope.

(** Bits of the significand, and the exponent of the smallest positive number. *)
Record format := Format { precision : Z; lowest : Z }.

Definition binary16 := Format 11 (-24).
Definition bfloat16 := Format 8 (-133).
Definition binary32 := Format 24 (-149).
Definition binary64 := Format 53 (-1074).

Section Format.
Variable f : format.
Hypothesis Hprecision : (0 < precision f)%Z.

Local Instance precision_positive : Prec_gt_0 (precision f) := Hprecision.
Local Notation power := (bpow radix2).

Definition exponents : Z -> Z := FLT_exp (lowest f) (precision f).

(** The numbers m 2^e with |m| < 2^precision and e >= lowest; the nearest of them, and of two the even one. *)
Definition representable (x : R) : Prop := generic_format radix2 exponents x.
Definition nearest (x : R) : R := round radix2 exponents ZnearestE x.

(** u = 2^-precision, and half of the smallest positive number. *)
Definition roundoff : R := power (- precision f).
Definition half_smallest : R := power (lowest f - 1).

Lemma half_power e : / 2 * power (e + 1) = power e.
Proof. rewrite bpow_plus. simpl (power 1). lra. Qed.

Lemma nearest_error x : Rabs (nearest x - x) <= roundoff * Rabs x + half_smallest.
Proof.
  destruct (error_N_FLT radix2 (lowest f) (precision f) Hprecision (fun n => negb (Z.even n)) x)
    as (eps & eta & Heps & Heta & _ & E).
  unfold nearest, exponents. fold ZnearestE in E. rewrite E.
  replace (x * (1 + eps) + eta - x) with (x * eps + eta) by ring.
  rewrite half_power in Heps. unfold roundoff, half_smallest.
  replace (/ 2 * power (lowest f)) with (power (lowest f - 1)) in Heta.
  2: { rewrite <- (half_power (lowest f - 1)). do 2 f_equal. lia. }
  eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat; [|assumption].
  rewrite Rabs_mult, Rmult_comm. apply Rmult_le_compat_r; [apply Rabs_pos|assumption].
Qed.

Lemma nearest_sum_error x y :
  representable x -> representable y -> Rabs (nearest (x + y) - (x + y)) <= roundoff * Rabs (x + y).
Proof.
  intros Hx Hy.
  destruct (FLT_plus_error_N_ex radix2 (lowest f) (precision f) (fun n => negb (Z.even n)) x y Hx Hy)
    as (eps & Heps & E).
  unfold nearest, exponents. fold ZnearestE in E. rewrite E.
  replace ((x + y) * (1 + eps) - (x + y)) with (eps * (x + y)) by ring. rewrite Rabs_mult.
  apply Rmult_le_compat_r; [apply Rabs_pos|]. eapply Rle_trans; [exact Heps|].
  unfold u_ro. rewrite half_power. unfold roundoff. pose proof (bpow_gt_0 radix2 (- precision f)).
  apply Rmult_le_reg_r with (1 + power (- precision f)); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. nra.
Qed.

Lemma roundoff_positive : 0 < roundoff.
Proof. apply bpow_gt_0. Qed.

Lemma half_smallest_nonneg : 0 <= half_smallest.
Proof. apply bpow_ge_0. Qed.

Lemma zero_representable : representable 0.
Proof. apply generic_format_0. Qed.

Lemma nearest_representable x : representable (nearest x).
Proof. apply generic_format_round; [apply FLT_exp_valid; exact Hprecision|apply valid_rnd_N]. Qed.

Lemma nearest_of_representable x : representable x -> nearest x = x.
Proof. intros Hx. apply round_generic; [apply valid_rnd_N|assumption]. Qed.

Definition ieee : arithmetic := {|
  is_number := representable; fl := nearest; unit := roundoff; tiny := half_smallest;
  unit_positive := roundoff_positive; tiny_nonneg := half_smallest_nonneg; zero_is_number := zero_representable;
  fl_is_number := nearest_representable; fl_of_number := nearest_of_representable;
  fl_error := nearest_error; fl_sum_error := nearest_sum_error
|}.

(** Rounding keeps the order. *)
Lemma nearest_le x y : x <= y -> nearest x <= nearest y.
Proof. apply round_le; [apply FLT_exp_valid; exact Hprecision|apply valid_rnd_N]. Qed.

(** What is nearer to 0 than to the smallest positive number rounds to 0. *)
Theorem rounds_to_zero x : Rabs x < half_smallest -> nearest x = 0.
Proof.
  intros Hx. destruct (Req_dec x 0) as [->|Hne]; [apply nearest_of_representable, zero_representable|].
  unfold nearest. apply round_N_small with (ex := mag radix2 x).
  - pose proof (bpow_mag_gt radix2 x). split; [now apply bpow_mag_le|assumption].
  - pose proof (mag_le_bpow radix2 x (lowest f - 1) Hne Hx). unfold exponents, FLT_exp. lia.
Qed.

(** Integers up to 2^precision, times a power of two that is not too small, are numbers of the format. *)
Theorem integers_representable n e :
  (Z.abs n <= 2 ^ precision f)%Z -> (lowest f <= e)%Z -> representable (IZR n * power e).
Proof.
  intros Hn He. unfold representable, exponents.
  destruct (Z.eq_dec (Z.abs n) (2 ^ precision f)) as [E|Hne].
  - assert (Habs : Rabs (IZR n * power e) = power (precision f + e)).
    { rewrite Rabs_mult, (Rabs_pos_eq (power e)) by apply bpow_ge_0. rewrite <- abs_IZR, E, bpow_plus. f_equal.
      rewrite <- IZR_Zpower by lia. reflexivity. }
    apply generic_format_abs_inv. rewrite Habs. apply generic_format_FLT_bpow; [exact Hprecision|lia].
  - apply generic_format_FLT. exists (Float radix2 n e); simpl; [reflexivity| |assumption].
    change (2 ^ precision f)%Z with (Zpower radix2 (precision f)) in *. lia.
Qed.
End Format.

Example units : roundoff binary32 = / 16777216 /\ half_smallest binary32 = / 2 ^ 150.
Proof.
  split; unfold roundoff, half_smallest; simpl bpow; [reflexivity|]. rewrite pow_IZR. reflexivity.
Qed.
