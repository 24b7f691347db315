(** * The bound that certify returns for one-hot attention

    2 (A (gamma_m + u_out (1 + gamma_m)) + underflow), A = sum |W| max |x| + |b|: for every order of every sum on both sides,
    fused or not, with an output of the same or of a shorter format. Beside proofs/claims/certificate/rounding.py (claim
    rounded-sum) and proofs/claims/certificate/underflow.py (claim underflow-errors); the code is convert/bounds/rounding.py.

    Assumed of hardware, and nothing else: numbers are those of the format and results are rounded to nearest, so that
    nothing is flushed to zero and no TF32 is used; a product and a sum are rounded once or fused; sums are of the products
    themselves, as no Winograd or Fourier transform makes them; exp is an [exponential]; and no result is larger than the
    largest number, which [result_at_most] bounds. *)

From Coq Require Import ZArith Reals Lia Lra Psatz Permutation.
From Flocq Require Import Core.
From Conv2Attn Require Import Sums Encoding Softmax Grid Convolution Attention Box ConvolutionN Theta TheoremN SmoothedKernel.
From Conv2Attn Require Import Summation Rounding Binary OneHot Certificate.
Open Scope R_scope.
Local Notation power := (bpow radix2).

(** ** One side *)

(** A sum is computed in one format and given out in it, or in a shorter one. *)
Definition outcome (f fo : format) (Hf : (0 < precision f)%Z) (shorter : bool) (t : tree) (y : R) : Prop :=
  exists z, computes (ieee f Hf) t z /\ y = if shorter then nearest fo z else z.

(** What the code adds for underflow, [flushed] for subnormal weights among it, with s = sum |W|. *)
Definition underflow_part (f fo : format) (shorter : bool) (m : nat) (s flushed : R) : R :=
  (1 + gamma m (roundoff f)) * flushed + (1 + s) * power (lowest f + 2 * precision f + 7)
  + if shorter then (2 + s) * power (lowest fo) else 0.

Definition side (f fo : format) (shorter : bool) (m : nat) (a s flushed : R) : R :=
  a * (gamma m (roundoff f) + if shorter then roundoff fo * (1 + gamma m (roundoff f)) else 0)
  + underflow_part f fo shorter m s flushed.

Section Side.
Variables (f fo : format) (Hf : (0 < precision f)%Z) (Hfo : (0 < precision fo)%Z) (shorter : bool) (m : nat).
Hypothesis Hm : INR m * roundoff f <= / 2.
Variables (l : list (R * R)) (a s flushed : R).
Hypothesis Hlive : (live l <= m)%nat.
Hypothesis Ha : Sum q in l, Rabs (value q) <= a.
Hypothesis Hs : 0 <= s.
Hypothesis Hflushed : 0 <= flushed.

Lemma gamma_at_most_1 : 0 <= gamma m (roundoff f) <= 1.
Proof.
  pose proof (roundoff_positive f). pose proof (pos_INR m).
  assert (0 <= INR m * roundoff f) by (apply Rmult_le_pos; lra). unfold gamma. split.
  - apply Rmult_le_pos; [assumption|left; apply Rinv_0_lt_compat; lra].
  - apply Rmult_le_reg_r with (1 - INR m * roundoff f); [lra|].
    replace (INR m * roundoff f / (1 - INR m * roundoff f) * (1 - INR m * roundoff f)) with (INR m * roundoff f) by (field; lra).
    lra.
Qed.

Lemma underflow_at_most : underflow (ieee f Hf) m <= power (lowest f + precision f - 1).
Proof.
  unfold underflow. cbn [unit tiny ieee]. pose proof gamma_at_most_1. pose proof (pos_INR m).
  pose proof (half_smallest_nonneg f). pose proof (roundoff_positive f).
  apply Rle_trans with (2 * INR m * half_smallest f).
  { apply Rmult_le_compat_r; [assumption|]. apply Rmult_le_compat_r; lra. }
  assert (E : power (lowest f + precision f - 1) * roundoff f = half_smallest f).
  { unfold roundoff, half_smallest. rewrite <- bpow_plus. f_equal. lia. }
  apply Rmult_le_reg_r with (roundoff f); [assumption|]. rewrite E. nra.
Qed.

Lemma sum_error t y :
  computes (ieee f Hf) t y -> single t -> Permutation (terms t) l ->
  Rabs (y - Sum q in l, value q) <= gamma m (roundoff f) * a + power (lowest f + precision f - 1).
Proof.
  intros Hc Hsingle Hl. eapply Rle_trans.
  { apply (rounded_sum (ieee f Hf) t y l m); auto. cbn [unit ieee]. lra. }
  cbn [unit ieee]. pose proof underflow_at_most. pose proof gamma_at_most_1.
  apply Rplus_le_compat; [apply Rmult_le_compat_l; lra|assumption].
Qed.

Theorem side_error t y :
  outcome f fo Hf shorter t y -> single t -> Permutation (terms t) l ->
  Rabs (y - Sum q in l, value q) <= side f fo shorter m a s flushed.
Proof.
  intros (z & Hz & ->) Hsingle Hl. pose proof (sum_error t z Hz Hsingle Hl) as Herr.
  pose proof gamma_at_most_1 as Hgamma. set (v := Sum q in l, value q) in *.
  assert (Hv : Rabs v <= a) by (eapply Rle_trans; [apply sum_abs|assumption]).
  assert (Ha0 : 0 <= a) by (pose proof (Rabs_pos v); lra).
  set (U := power (lowest f + precision f - 1)) in *.
  assert (HU0 : 0 < U) by apply bpow_gt_0.
  assert (HU : 2 * U <= power (lowest f + 2 * precision f + 7)).
  { unfold U. replace 2 with (power 1) by reflexivity. rewrite <- bpow_plus. apply bpow_le. lia. }
  set (V := power (lowest f + 2 * precision f + 7)) in *.
  assert (H1 : V <= (1 + s) * V) by nra.
  assert (H2 : 0 <= (1 + gamma m (roundoff f)) * flushed) by (apply Rmult_le_pos; lra).
  unfold side, underflow_part. fold V. destruct shorter.
  - pose proof (nearest_error fo Hfo z) as Hn. pose proof (roundoff_positive fo) as Huo.
    assert (Huo1 : roundoff fo <= 1) by (unfold roundoff; change 1 with (power 0); apply bpow_le; lia).
    assert (Hhalf : half_smallest fo <= power (lowest fo)) by (unfold half_smallest; apply bpow_le; lia).
    assert (Hlow : 0 < power (lowest fo)) by apply bpow_gt_0.
    assert (H3 : 2 * power (lowest fo) <= (2 + s) * power (lowest fo)) by nra.
    assert (Hz' : Rabs z <= a * (1 + gamma m (roundoff f)) + U).
    { replace z with ((z - v) + v) by ring. eapply Rle_trans; [apply Rabs_triang|]. lra. }
    replace (nearest fo z - v) with ((nearest fo z - z) + (z - v)) by ring.
    eapply Rle_trans; [apply Rabs_triang|].
    assert (roundoff fo * Rabs z <= roundoff fo * (a * (1 + gamma m (roundoff f)) + U)) by (apply Rmult_le_compat_l; lra).
    assert (roundoff fo * U <= U) by nra. lra.
  - lra.
Qed.

(** No result is larger than this, so that whether something could overflow can be checked. *)
Theorem result_at_most t y :
  computes (ieee f Hf) t y -> single t -> Permutation (terms t) l ->
  Rabs y <= 2 * a + power (lowest f + precision f - 1).
Proof.
  intros Hc Hsingle Hl. pose proof (sum_error t y Hc Hsingle Hl) as Herr. pose proof gamma_at_most_1 as Hgamma.
  set (v := Sum q in l, value q) in *.
  assert (Hv : Rabs v <= a) by (eapply Rle_trans; [apply sum_abs|assumption]). pose proof (Rabs_pos v).
  replace y with ((y - v) + v) by ring. eapply Rle_trans; [apply Rabs_triang|]. nra.
Qed.
End Side.

(** ** Both sides *)

(** sum |W| r + |b| for inputs of at most r, and sum |W|. *)
Definition weight_sum (g : geometry_n) (W : kernel_n) (o : nat) : R :=
  Sum c in seq 0 (inputs g), Sum m in taps g, Rabs (W o c m).

Definition bound (f fo : format) (shorter : bool) (g : geometry_n) (W : kernel_n) (b : vector) (r flushed : R) (o : nat) : R :=
  2 * side f fo shorter (term_count g) (r * weight_sum g W o + Rabs (b o)) (weight_sum g W o) flushed.

Lemma absolute_sum_at_most g W b X sizes i o r :
  valid_n g -> is_output_n (axes g) sizes i -> (forall k c, In k (box sizes) -> Rabs (X k c) <= r) ->
  absolute_sum g W b X i o <= r * weight_sum g W o + Rabs (b o).
Proof.
  intros Hvalid Hout HX. unfold absolute_sum, weight_sum. rewrite Rplus_comm. apply Rplus_le_compat_r.
  rewrite <- sum_scale. apply sum_le; intros c _. rewrite <- sum_scale. apply sum_le; intros m Hm.
  rewrite Rmult_comm. apply Rmult_le_compat_r; [apply Rabs_pos|]. apply HX. now apply reads_in_box.
Qed.

(** Computed attention and computed convolution: each adds up its terms in some order, and the probabilities are computed
    by some softmax from scores that are -alpha |k - t|^2 plus what a head's keys share. *)
Theorem certificate_of_one_hot_attention f fo (Hf : (0 < precision f)%Z) (Hfo : (0 < precision fo)%Z) shorter
    (E : exponential f) g W b X sizes i o
    (p : position -> position -> R) (s : position -> position -> R) (alpha : position -> R) (shared : position -> R)
    t_attention t_conv y_attention y_conv r flushed :
  valid_n g -> is_output_n (axes g) sizes i -> INR (term_count g) * roundoff f <= / 2 ->
  (forall k c, In k (box sizes) -> Rabs (X k c) <= r) -> 0 <= flushed ->
  representable f 1 ->
  (forall m, In m (taps g) -> 0 < alpha m /\ representable f (alpha m) /\ growth E * exp (- alpha m) < half_smallest f) ->
  (forall m k, In m (taps g) -> In k (box sizes) -> s m k = - alpha m * distance2 k (target_n g i m) + shared m) ->
  (forall m, In m (taps g) -> computes_softmax f Hf E (box sizes) (s m) (target_n g i m) (p m)) ->
  single t_attention -> Permutation (terms t_attention) (attention_terms g W b X sizes o p) ->
  outcome f fo Hf shorter t_attention y_attention ->
  single t_conv -> Permutation (terms t_conv) (conv_terms g W b X i o) ->
  outcome f fo Hf shorter t_conv y_conv ->
  Rabs (y_attention - conv_n g W b X i o) <= bound f fo shorter g W b r flushed o / 2 /\
  Rabs (y_attention - y_conv) <= bound f fo shorter g W b r flushed o.
Proof.
  intros Hvalid Hout Hm HX Hflushed Hone Halpha Hscores Hsoftmax Hsa Hpa Hya Hsc Hpc Hyc.
  assert (Hp : one_hot_at g sizes i p).
  { intros m k Htap Hk. destruct (Halpha m Htap) as (H1 & H2 & H3). set (t := target_n g i m).
    assert (Ht : In t (box sizes)) by now apply target_in_box.
    pose proof (box_distinct sizes) as Hd. destruct (in_split _ _ Ht) as (before & after & Esplit).
    assert (Hnot : ~ In t (before ++ after)) by (apply NoDup_remove_2; rewrite <- Esplit; exact Hd).
    destruct (one_hot f Hf E (box sizes) before after (s m) t (p m) (alpha m) (Hsoftmax m Htap) Esplit) as [Hp1 Hp0]; auto.
    - intros k' Hk'. assert (Hin : In k' (box sizes)).
      { rewrite Esplit. apply in_app_or in Hk'. apply in_or_app. simpl. tauto. }
      rewrite (Hscores m k' Htap Hin), (Hscores m t Htap Ht). fold t. rewrite distance2_diagonal.
      assert (1 <= distance2 k' t).
      { assert (Hlen : length k' = length t) by (apply length_in_box in Hin; apply length_in_box in Ht; congruence).
        apply distance2_gap; [assumption|]. intros ->. contradiction. }
      nra.
    - unfold is_target. destruct (position_eq_dec k t) as [->|Hne]; [assumption|]. apply Hp0.
      rewrite Esplit in Hk. apply in_app_or in Hk. apply in_or_app. destruct Hk as [|[Hk|]]; auto. congruence. }
  destruct (attention_terms_are_the_convolutions g W b X sizes i o Hvalid Hout p Hp) as (Hla & Hva & Haa).
  pose proof (absolute_sum_at_most g W b X sizes i o r Hvalid Hout HX) as Ha.
  assert (Hw : 0 <= weight_sum g W o) by (apply sum_nonneg; intros; apply sum_nonneg; intros; apply Rabs_pos).
  assert (H1 : Rabs (y_attention - conv_n g W b X i o) <= bound f fo shorter g W b r flushed o / 2).
  { rewrite <- Hva. unfold bound.
    match goal with |- _ <= 2 * ?x / 2 => replace (2 * x / 2) with x by field end.
    apply (side_error f fo Hf Hfo shorter (term_count g) Hm (attention_terms g W b X sizes o p)) with (t := t_attention);
      auto. now rewrite Haa. }
  split; [assumption|].
  assert (H2 : Rabs (y_conv - conv_n g W b X i o) <= bound f fo shorter g W b r flushed o / 2).
  { rewrite <- (conv_terms_value g W b X i o). unfold bound.
    match goal with |- _ <= 2 * ?x / 2 => replace (2 * x / 2) with x by field end.
    apply (side_error f fo Hf Hfo shorter (term_count g) Hm (conv_terms g W b X i o)) with (t := t_conv);
      auto using conv_terms_live. now rewrite conv_terms_absolute. }
  replace (y_attention - y_conv) with ((y_attention - conv_n g W b X i o) - (y_conv - conv_n g W b X i o)) by ring.
  eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp. lra.
Qed.
