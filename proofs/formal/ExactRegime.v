(** * The bound that certify returns for one-hot attention

    2 (A (gamma_m + u_out (1 + gamma_m)) + underflow), A = sum |W| max |x| + |b|: for every order of every sum on both sides,
    fused or not, with an output of the same or of a shorter format. Beside proofs/claims/certificate/rounding.py (claim
    rounded-sum) and proofs/claims/certificate/underflow.py (claim underflow-errors), and of
    proofs/claims/computing/exact_scores.py (claim exact-scores), which makes attention one-hot; the code is
    convert/bounds/rounding.py.

    Assumed of hardware, and nothing else: numbers are those of the format and results are rounded to nearest, so that
    nothing is flushed to zero and no TF32 is used; a product and a sum are rounded once or fused; sums are of the products
    themselves, as no Winograd or Fourier transform makes them; exp is an [exponential]; and there is no largest number.
    Overflow.v, where there is one, takes from [result_at_most] that it is not reached. *)

From Coq Require Import ZArith Reals Lia Lra Psatz Permutation.
From Flocq Require Import Core.
From Conv2Attn Require Import Sums Encoding Softmax Grid Convolution Attention Box ConvolutionN Theta TheoremN SmoothedKernel.
From Conv2Attn Require Import Summation Rounding Binary OneHot ExactScores Certificate.
Import ListNotations.
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

(** ** Engines whose softmax is one-hot *)

(** What one softmax gives where every other score is at least alpha below the target's. *)
Lemma one_hot_on {K : Type} f Hf (E : exponential f) (keys : list K) (s : K -> R) t (p : K -> R) alpha :
  computes_softmax f Hf E keys s t p -> NoDup keys -> In t keys ->
  (forall k, In k keys -> k <> t -> s k <= s t - alpha) ->
  0 < alpha -> representable f alpha -> representable f 1 -> growth E * exp (- alpha) < half_smallest f ->
  p t = 1 /\ forall k, In k keys -> k <> t -> p k = 0.
Proof.
  intros Hsoftmax Hd Ht Hgap Ha Halpha Hone Hsmall. destruct (in_split _ _ Ht) as (before & after & Esplit).
  assert (Hnot : ~ In t (before ++ after)) by (apply NoDup_remove_2; rewrite <- Esplit; exact Hd).
  destruct (one_hot f Hf E keys before after s t p alpha Hsoftmax Esplit) as [Hp1 Hp0]; auto.
  - intros k Hk. apply Hgap.
    + rewrite Esplit. apply in_app_or in Hk. apply in_or_app. simpl. tauto.
    + intros ->. contradiction.
  - split; [assumption|]. intros k Hk Hne. apply Hp0. rewrite Esplit in Hk. apply in_app_or in Hk.
    apply in_or_app. destruct Hk as [|[Hk|]]; auto. congruence.
Qed.

(** Scores of one head as an engine computes them: for each key some sum, in some order, of integers times 2^e and
    integers, whose exact value is -2^e |k - t|^2 and what all keys share, with absolute values that sum to at most
    2^(precision + e). The products v . r of the literal engine and those of one scaled dot product are such sums. *)
Definition computes_scores {K : Type} (f : format) (Hf : (0 < precision f)%Z) (e : Z) (keys : list K)
    (distance : K -> R) (shared : R) (s : K -> R) : Prop :=
  forall k, In k keys -> exists t, score_tree e t /\ absolute t <= power (precision f + e)
    /\ exact t = - power e * distance k + shared /\ computes (ieee f Hf) t (s k).

(** With alpha = 2^e they are computed without rounding, so one softmax over all keys is one-hot ... *)
Theorem joint_softmax_is_one_hot f (Hf : (0 < precision f)%Z) (E : exponential f) g sizes i
    (p s : position -> position -> R) (e : position -> Z) (shared : position -> R) :
  valid_n g -> is_output_n (axes g) sizes i -> representable f 1 ->
  (forall m, In m (taps g) -> (lowest f <= e m)%Z /\ representable f (power (e m))
    /\ growth E * exp (- power (e m)) < half_smallest f) ->
  (forall m, In m (taps g) ->
    computes_scores f Hf (e m) (box sizes) (fun k => distance2 k (target_n g i m)) (shared m) (s m)) ->
  (forall m, In m (taps g) -> computes_softmax f Hf E (box sizes) (s m) (target_n g i m) (p m)) ->
  one_hot_at g sizes i p.
Proof.
  intros Hvalid Hout Hone Halpha Hscores Hsoftmax m k Htap Hk. destruct (Halpha m Htap) as (He & Hrep & Hsmall).
  set (t := target_n g i m) in *. assert (Ht : In t (box sizes)) by now apply target_in_box.
  assert (Hs : forall k, In k (box sizes) -> s m k = - power (e m) * distance2 k t + shared m).
  { intros k' Hk'. destruct (Hscores m Htap k' Hk') as (tree & Htree & Habs & Hexact & Hc). fold t in Hexact.
    rewrite <- Hexact. now apply (scores_without_rounding f Hf (e m) He). }
  destruct (one_hot_on f Hf E (box sizes) (s m) t (p m) (power (e m)) (Hsoftmax m Htap) (box_distinct sizes) Ht) as [H1 H0];
    auto using bpow_gt_0.
  - intros k' Hk' Hne. rewrite (Hs k' Hk'), (Hs t Ht), distance2_diagonal.
    assert (1 <= distance2 k' t).
    { apply distance2_gap; [|assumption]. apply length_in_box in Hk'. apply length_in_box in Ht. congruence. }
    pose proof (bpow_gt_0 radix2 (e m)). nra.
  - unfold is_target. destruct (position_eq_dec k t) as [->|Hne]; auto.
Qed.

(** ... and so is a product of one softmax for each axis, as the separable engine's tables are. *)
Fixpoint table_product (tables : list (Z -> R)) (k : position) : R :=
  match tables, k with q :: tables', x :: k' => q x * table_product tables' k' | _, _ => 1 end.

Inductive computes_tables f Hf (E : exponential f) (e : Z) : list nat -> position -> list (Z -> R) -> Prop :=
  | Tables_nil : computes_tables f Hf E e [] [] []
  | Tables_cons n sizes t target q tables s shared :
      computes_scores f Hf e (range n) (fun x => IZR (x - t) ^ 2) shared s ->
      computes_softmax f Hf E (range n) s t q ->
      computes_tables f Hf E e sizes target tables ->
      computes_tables f Hf E e (n :: sizes) (t :: target) (q :: tables).

Lemma tables_are_one_hot f Hf (E : exponential f) e sizes target tables :
  (lowest f <= e)%Z -> representable f (power e) -> representable f 1 ->
  growth E * exp (- power e) < half_smallest f ->
  computes_tables f Hf E e sizes target tables -> In target (box sizes) ->
  forall k, In k (box sizes) -> table_product tables k = is_target target k.
Proof.
  intros He Hrep Hone Hsmall H. induction H as [|n sizes t target q tables s shared Hs Hq _ IH]; intros Ht k Hk.
  - apply in_box in Hk. inversion Hk. subst. unfold is_target. simpl. destruct (position_eq_dec [] []); congruence.
  - apply in_box in Ht, Hk. inversion Ht as [|? ? ? ? Ht1 Ht2]; subst. inversion Hk as [|? x ? k' Hk1 Hk2]; subst.
    assert (Hin : forall z, (0 <= z < Z.of_nat n)%Z -> In z (range n)) by (intros; now apply in_range).
    assert (Hexact : forall z, In z (range n) -> s z = - power e * IZR (z - t) ^ 2 + shared).
    { intros z Hz. destruct (Hs z Hz) as (tree & Htree & Habs & Hexact & Hc). rewrite <- Hexact.
      now apply (scores_without_rounding f Hf e He). }
    destruct (one_hot_on f Hf E (range n) s t q (power e) Hq (range_distinct n) (Hin t Ht1)) as [H1 H0];
      auto using bpow_gt_0.
    + intros z Hz Hne. rewrite (Hexact z Hz), (Hexact t (Hin t Ht1)), Z.sub_diag.
      assert (1 <= IZR (z - t) ^ 2).
      { replace (IZR (z - t) ^ 2) with (IZR ((z - t) * (z - t))) by (rewrite mult_IZR; ring). apply IZR_le. nia. }
      pose proof (bpow_gt_0 radix2 e). simpl in *. nra.
    + simpl. rewrite IH; [|now apply in_box|now apply in_box]. unfold is_target.
      destruct (Z.eq_dec x t) as [->|Hne].
      * rewrite H1, Rmult_1_l. destruct (position_eq_dec k' target), (position_eq_dec (t :: k') (t :: target)); congruence.
      * rewrite H0 by auto. rewrite Rmult_0_l. destruct (position_eq_dec (x :: k') (t :: target)); congruence.
Qed.

Theorem separable_softmax_is_one_hot f (Hf : (0 < precision f)%Z) (E : exponential f) g sizes i
    (tables : position -> list (Z -> R)) (e : position -> Z) :
  valid_n g -> is_output_n (axes g) sizes i -> representable f 1 ->
  (forall m, In m (taps g) -> (lowest f <= e m)%Z /\ representable f (power (e m))
    /\ growth E * exp (- power (e m)) < half_smallest f) ->
  (forall m, In m (taps g) -> computes_tables f Hf E (e m) sizes (target_n g i m) (tables m)) ->
  one_hot_at g sizes i (fun m => table_product (tables m)).
Proof.
  intros Hvalid Hout Hone Halpha Htables m k Htap Hk. destruct (Halpha m Htap) as (He & Hrep & Hsmall).
  apply (tables_are_one_hot f Hf E (e m) sizes); auto. now apply target_in_box.
Qed.

(** ** The certificate *)

(** One-hot attention and convolution, each computed by adding up its terms in some order. *)
Theorem certificate_of_one_hot_attention f fo (Hf : (0 < precision f)%Z) (Hfo : (0 < precision fo)%Z) shorter
    g W b X sizes i o (p : position -> position -> R) t_attention t_conv y_attention y_conv r flushed :
  valid_n g -> is_output_n (axes g) sizes i -> INR (term_count g) * roundoff f <= / 2 ->
  (forall k c, In k (box sizes) -> Rabs (X k c) <= r) -> 0 <= flushed ->
  one_hot_at g sizes i p ->
  single t_attention -> Permutation (terms t_attention) (attention_terms g W b X sizes o p) ->
  outcome f fo Hf shorter t_attention y_attention ->
  single t_conv -> Permutation (terms t_conv) (conv_terms g W b X i o) ->
  outcome f fo Hf shorter t_conv y_conv ->
  Rabs (y_attention - conv_n g W b X i o) <= bound f fo shorter g W b r flushed o / 2 /\
  Rabs (y_attention - y_conv) <= bound f fo shorter g W b r flushed o.
Proof.
  intros Hvalid Hout Hm HX Hflushed Hp Hsa Hpa Hya Hsc Hpc Hyc.
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

(** Nor is a result on either side larger than this, so a largest number above it is never reached. *)
Theorem one_hot_results_at_most f (Hf : (0 < precision f)%Z) g W b X sizes i o (p : position -> position -> R)
    t_attention t_conv y_attention y_conv r :
  valid_n g -> is_output_n (axes g) sizes i -> INR (term_count g) * roundoff f <= / 2 ->
  (forall k c, In k (box sizes) -> Rabs (X k c) <= r) ->
  one_hot_at g sizes i p ->
  single t_attention -> Permutation (terms t_attention) (attention_terms g W b X sizes o p) ->
  computes (ieee f Hf) t_attention y_attention ->
  single t_conv -> Permutation (terms t_conv) (conv_terms g W b X i o) -> computes (ieee f Hf) t_conv y_conv ->
  Rabs y_attention <= 2 * (r * weight_sum g W o + Rabs (b o)) + power (lowest f + precision f - 1) /\
  Rabs y_conv <= 2 * (r * weight_sum g W o + Rabs (b o)) + power (lowest f + precision f - 1).
Proof.
  intros Hvalid Hout Hm HX Hp Hsa Hpa Hya Hsc Hpc Hyc.
  destruct (attention_terms_are_the_convolutions g W b X sizes i o Hvalid Hout p Hp) as (Hla & _ & Haa).
  pose proof (absolute_sum_at_most g W b X sizes i o r Hvalid Hout HX) as Ha. split.
  - apply (result_at_most f Hf (term_count g) Hm (attention_terms g W b X sizes o p)) with (t := t_attention); auto.
    now rewrite Haa.
  - apply (result_at_most f Hf (term_count g) Hm (conv_terms g W b X i o)) with (t := t_conv);
      auto using conv_terms_live. now rewrite conv_terms_absolute.
Qed.
