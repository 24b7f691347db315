(** * Scores and softmax with a largest number

    Where alpha is a power of two that is not too large, scores are finite, and so are differences of them, their
    exponentials, the sum of these and the quotients, in numbers with infinities and NaN. Beside
    proofs/claims/computing/exact_scores.py (claim exact-scores); the code is convert/heads/encoding.py. *)

From Coq Require Import ZArith Reals Lia Lra Psatz Permutation.
From Flocq Require Import Core IEEE754.BinarySingleNaN.
From Conv2Attn Require Import Sums Encoding Grid Box ConvolutionN TheoremN.
From Conv2Attn Require Import Summation Rounding Binary OneHot ExactScores Certificate ExactRegime Overflow.
Import ListNotations.
Open Scope R_scope.
Local Notation power := (bpow radix2).

Section Softmax.
Variable f : format.
Hypothesis Hf : (0 < precision f)%Z.
Hypothesis Hmax : (precision f < emax f)%Z.
Local Instance softmax_precision : Prec_gt_0 (precision f) := Hf.
Local Instance softmax_range : Prec_lt_emax (precision f) (emax f) := Hmax.

(** ** Scores *)

Lemma scores_stay_finite e t :
  (lowest f <= e)%Z -> (precision f + e < emax f)%Z -> score_tree e t -> absolute t <= power (precision f + e) ->
  leaves_finite f t -> stays_finite f Hf t.
Proof.
  intros He Hlarge Ht. assert (Hlt : power (precision f + e) < power (emax f)) by (apply bpow_lt; lia).
  assert (Hnode : forall t, score_tree e t -> absolute t <= power (precision f + e) ->
    forall y, computes (ieee f Hf) t y -> Rabs y < power (emax f)).
  { intros t' Ht' Habs y Hy. rewrite (scores_without_rounding f Hf e He t' y Hy Ht' Habs).
    pose proof (exact_absolute t'). lra. }
  induction Ht as [m n|l r Hl IHl Hr IHr]; intros Habs Hleaves; (split; [now apply Hnode; [constructor|]|]).
  - split; [|exact I]. intros y Hy. inversion Hy; subst. exact Hleaves.
  - simpl in Habs, Hleaves. destruct Hleaves. pose proof (absolute_nonneg l). pose proof (absolute_nonneg r).
    split; [apply IHl|apply IHr]; auto; lra.
Qed.

(** The scores of one head, as [computes_scores] has them, in these numbers. *)
Definition runs_scores {K : Type} (e : Z) (keys : list K) (distance : K -> R) (shared : R) (s : K -> float f) : Prop :=
  forall k, In k keys -> exists t, score_tree e t /\ absolute t <= power (precision f + e)
    /\ exact t = - power e * distance k + shared /\ runs f Hf Hmax t (s k).

Theorem scores_are_finite {K : Type} e (keys : list K) distance shared s :
  (lowest f <= e)%Z -> (precision f + e <= emax f - 2)%Z -> runs_scores e keys distance shared s ->
  (forall k, In k keys -> is_finite (s k) = true /\ Rabs (B2R (s k)) <= power (emax f - 2)) /\
  computes_scores f Hf e keys distance shared (fun k => B2R (s k)).
Proof.
  intros He Hlarge Hs.
  assert (H : forall k, In k keys -> exists t, score_tree e t /\ absolute t <= power (precision f + e)
    /\ exact t = - power e * distance k + shared /\ is_finite (s k) = true /\ computes (ieee f Hf) t (B2R (s k))).
  { intros k Hk. destruct (Hs k Hk) as (t & Ht & Habs & Hexact & Hrun). exists t. do 3 (split; [assumption|]).
    apply (finite_runs f Hf Hmax); [assumption|]. apply (scores_stay_finite e); auto; [lia|now apply runs_leaves in Hrun]. }
  split.
  - intros k Hk. destruct (H k Hk) as (t & Ht & Habs & _ & Hfin & Hc). split; [assumption|].
    rewrite (scores_without_rounding f Hf e He t _ Hc Ht Habs). pose proof (exact_absolute t).
    assert (power (precision f + e) <= power (emax f - 2)) by (apply bpow_le; lia). lra.
  - intros k Hk. destruct (H k Hk) as (t & Ht & Habs & Hexact & _ & Hc). exists t. auto.
Qed.

(** ** Softmax *)

(** exp of these numbers: of a finite one that is not positive it is finite, and what OneHot.v assumes. *)
Record float_exponential := FloatExponential {
  float_exp : float f -> float f;
  on_numbers : exponential f;
  float_exp_of_number : forall x, is_finite x = true -> B2R x <= 0 ->
    is_finite (float_exp x) = true /\ B2R (float_exp x) = computed_exp on_numbers (B2R x)
}.

(** What a machine may find for softmax: [computes_softmax] in these numbers. *)
Definition runs_softmax {K : Type} (E : float_exponential) (keys : list K) (s : K -> float f) (t : K)
    (p : K -> float f) : Prop :=
  let e := fun k => float_exp E (Bminus mode_NE (s k) (s t)) in
  exists total order,
    Permutation (terms order) (map (fun k => (1, B2R (e k))) keys) /\ plain order /\ runs f Hf Hmax order total /\
    forall k, In k keys -> p k = Bdiv mode_NE (e k) total.

Lemma terms_of_something t : exists q, In q (terms t).
Proof.
  induction t as [x|a t [q Hq]|l [q Hq] r _]; simpl; [eexists; now left| |exists q; apply in_or_app; now left].
  eexists. apply (in_map (fun p => (a * fst p, snd p))). exact Hq.
Qed.

(** A sum of which one number at most is not zero only picks it. *)
Lemma sum_of_one_picks t :
  (forall q, In q (terms t) -> fst q = 1) -> plain t -> (live (terms t) <= 1)%nat -> picks t.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; [auto| |].
  - intros Hone [Ha Hp] Hlive. destruct (terms_of_something t) as [q0 Hq0].
    assert (Ha1 : a = 1).
    { destruct Ha as [-> |]; [exfalso|assumption].
      specialize (Hone _ (in_map (fun p => (0 * fst p, snd p)) _ _ Hq0)). simpl in Hone. lra. }
    subst a. split; [now right|]. apply IH; [|assumption|].
    + intros q Hq. specialize (Hone _ (in_map (fun p => (1 * fst p, snd p)) _ _ Hq)). simpl in Hone. lra.
    + rewrite live_scaled in Hlive. unfold is_zero in Hlive. destruct (Req_EM_T 1 0); [lra|assumption].
  - intros Hone [Hl Hr] Hlive. rewrite live_app in Hlive.
    repeat split; [apply IHl|apply IHr|]; auto; try (intros q Hq; apply Hone, in_or_app; auto); try lia.
    rewrite !null_live. destruct (live (terms l)), (live (terms r)); auto; lia.
Qed.

Theorem softmax_is_finite {K : Type} (E : float_exponential) (keys : list K) (s p : K -> float f) t alpha :
  runs_softmax E keys s t p -> NoDup keys -> In t keys ->
  (forall k, In k keys -> is_finite (s k) = true /\ Rabs (B2R (s k)) <= power (emax f - 2)) ->
  (forall k, In k keys -> k <> t -> B2R (s k) <= B2R (s t) - alpha) ->
  0 < alpha -> representable f alpha -> growth (on_numbers E) * exp (- alpha) < half_smallest f ->
  (forall k, In k keys -> is_finite (p k) = true) /\
  computes_softmax f Hf (on_numbers E) keys (fun k => B2R (s k)) t (fun k => B2R (p k)).
Proof.
  intros (total & order & Horder & Hplain & Htotal & Hp) Hd Ht Hs Hgap Ha Halpha Hsmall.
  set (e := fun k => float_exp E (Bminus mode_NE (s k) (s t))) in *.
  destruct (in_split _ _ Ht) as (before & after & Ekeys).
  assert (Hnot : ~ In t (before ++ after)) by (apply NoDup_remove_2; rewrite <- Ekeys; exact Hd).
  assert (Hcases : forall k, In k keys -> k = t \/ k <> t).
  { intros k Hk. rewrite Ekeys in Hk. apply in_app_or in Hk. simpl in Hk.
    destruct Hk as [Hk|[Hk|Hk]]; [right|now left|right]; intros ->; apply Hnot, in_or_app; auto. }
  assert (Hle : forall k, In k keys -> B2R (s k) - B2R (s t) <= 0).
  { intros k Hk. destruct (Hcases k Hk) as [->|Hne]; [lra|]. specialize (Hgap k Hk Hne). lra. }
  assert (He : forall k, In k keys ->
    is_finite (e k) = true /\ B2R (e k) = computed_exp (on_numbers E) (nearest f (B2R (s k) - B2R (s t)))).
  { intros k Hk. destruct (Hs k Hk) as [Hfk Hsk], (Hs t Ht) as [Hft Hst].
    assert (Hlt : Rabs (nearest f (B2R (s k) - B2R (s t))) < power (emax f)).
    { apply Rle_lt_trans with (power (emax f - 1)); [|apply bpow_lt; lia]. apply nearest_at_most; [assumption| |].
      - unfold representable, exponents. apply generic_format_FLT_bpow; [exact Hf|]. unfold emax in *. lia.
      - replace (emax f - 1)%Z with (emax f - 2 + 1)%Z by lia. rewrite bpow_plus. simpl (power 1).
        unfold Rminus. eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_Ropp. lra. }
    rewrite <- (nearest_in_flocq f) in Hlt |- *.
    pose proof (Bminus_correct _ _ _ _ mode_NE (s k) (s t) Hfk Hft) as H. rewrite Rlt_bool_true in H by exact Hlt.
    destruct H as (E1 & E2 & _). unfold e. rewrite <- E1. apply float_exp_of_number; [assumption|].
    rewrite E1, (nearest_in_flocq f). rewrite <- (nearest_of_representable f 0) by apply zero_representable.
    apply nearest_le; auto. }
  assert (Hzero : forall k, In k keys -> k <> t -> B2R (e k) = 0).
  { intros k Hk Hne. destruct (He k Hk) as [_ ->]. apply (exponential_vanishes f Hf _ _ alpha); auto.
    specialize (Hgap k Hk Hne). lra. }
  assert (Hothers : forall l, incl l (before ++ after) -> live (map (fun k => (1, B2R (e k))) l) = 0%nat
    /\ Sum q in map (fun k => (1, B2R (e k))) l, value q = 0).
  { induction l as [|k l IH]; intros Hl; [split; reflexivity|]. destruct IH as [H1 H2]; [intros x Hx; apply Hl; now right|].
    assert (Hk : In k (before ++ after)) by (apply Hl; now left).
    assert (Ek : B2R (e k) = 0).
    { apply Hzero; [|intros ->; contradiction]. rewrite Ekeys. apply in_app_or in Hk. apply in_or_app. simpl. tauto. }
    unfold live in *. simpl. unfold value in *. simpl in *. rewrite Ek, Rmult_1_l. unfold is_zero at 1.
    destruct (Req_EM_T 0 0); [|congruence]. simpl. split; [assumption|]. rewrite H2. ring. }
  destruct (Hothers before) as [Hb1 Hb2]; [intros x Hx; apply in_or_app; auto|].
  destruct (Hothers after) as [Ha1 Ha2]; [intros x Hx; apply in_or_app; auto|].
  assert (Hlive : Nat.le (live (map (fun k => (1, B2R (e k))) keys)) 1).
  { rewrite Ekeys, map_app, live_app, Hb1. change (map (fun k => (1, B2R (e k))) (t :: after))
      with ([(1, B2R (e t))] ++ map (fun k => (1, B2R (e k))) after). rewrite live_app, Ha1. unfold live. simpl.
    destruct (is_zero (value (1, B2R (e t)))); simpl; lia. }
  destruct (finite_runs f Hf Hmax order total Htotal) as [Hfin Hc].
  { apply picks_stays_finite; [|now apply runs_leaves in Htotal]. apply sum_of_one_picks; [|assumption|].
    - intros q Hq. apply (Permutation_in _ Horder), in_map_iff in Hq. now destruct Hq as (k & <- & _).
    - now rewrite (live_permutation _ _ Horder). }
  assert (Etotal : B2R total = B2R (e t)).
  { apply (single_term_is_exact (ieee f Hf) order (B2R total) (map (fun k => (1, B2R (e k))) keys)); auto.
    rewrite Ekeys, map_app, sum_app, Hb2. simpl. rewrite Ha2. unfold value. simpl. ring. }
  destruct (He t Ht) as [_ Et].
  rewrite Rminus_diag_eq, nearest_of_representable in Et by (reflexivity || apply zero_representable).
  pose proof (exp_at_0 f (on_numbers E)) as Hpos.
  assert (Hquotient : forall k, In k keys -> is_finite (p k) = true /\ B2R (p k) = nearest f (B2R (e k) / B2R total)).
  { intros k Hk. destruct (He k Hk) as [Hfe _]. rewrite (Hp k Hk). fold (e k).
    assert (Hlt : Rabs (nearest f (B2R (e k) / B2R total)) < power (emax f)).
    { apply Rle_lt_trans with (power 0); [|apply bpow_lt; lia]. apply nearest_at_most; [assumption| |].
      - unfold representable, exponents. apply generic_format_FLT_bpow; [exact Hf|]. unfold emax in *. lia.
      - rewrite Etotal. simpl (power 0). destruct (Hcases k Hk) as [->|Hne].
        + unfold Rdiv. rewrite Rinv_r by lra. rewrite Rabs_R1. lra.
        + rewrite (Hzero k Hk Hne). unfold Rdiv. rewrite Rmult_0_l, Rabs_R0. lra. }
    rewrite <- (nearest_in_flocq f) in Hlt |- *.
    pose proof (Bdiv_correct _ _ _ _ mode_NE (e k) total ltac:(lra)) as H. rewrite Rlt_bool_true in H by exact Hlt.
    destruct H as (E1 & E2 & _). now rewrite E1, E2. }
  split; [intros k Hk; now apply Hquotient|]. exists (B2R total), order. split; [|split; [assumption|split; [assumption|]]].
  - etransitivity; [exact Horder|]. rewrite (map_ext_in _ (fun k => (1, computed_exp (on_numbers E)
      (nearest f (B2R (s k) - B2R (s t)))))); [reflexivity|].
    intros k Hk. destruct (He k Hk) as [_ E2]. unfold e in E2. now rewrite E2.
  - intros k Hk. destruct (Hquotient k Hk) as [_ E1], (He k Hk) as [_ E2]. now rewrite E1, E2.
Qed.

(** ** Engines *)

(** One softmax over all keys ... *)
Theorem joint_softmax_is_finite (E : float_exponential) g sizes i (p s : position -> position -> float f)
    (e : position -> Z) (shared : position -> R) :
  valid_n g -> is_output_n (axes g) sizes i ->
  (forall m, In m (taps g) -> (lowest f <= e m)%Z /\ (precision f + e m <= emax f - 2)%Z /\ representable f (power (e m))
    /\ growth (on_numbers E) * exp (- power (e m)) < half_smallest f) ->
  (forall m, In m (taps g) -> runs_scores (e m) (box sizes) (fun k => distance2 k (target_n g i m)) (shared m) (s m)) ->
  (forall m, In m (taps g) -> runs_softmax E (box sizes) (s m) (target_n g i m) (p m)) ->
  forall m, In m (taps g) ->
  (forall k, In k (box sizes) -> is_finite (p m k) = true) /\
  computes_scores f Hf (e m) (box sizes) (fun k => distance2 k (target_n g i m)) (shared m) (fun k => B2R (s m k)) /\
  computes_softmax f Hf (on_numbers E) (box sizes) (fun k => B2R (s m k)) (target_n g i m) (fun k => B2R (p m k)).
Proof.
  intros Hvalid Hout Halpha Hscores Hsoftmax m Htap. destruct (Halpha m Htap) as (He & Hlarge & Hrep & Hsmall).
  set (t := target_n g i m). assert (Ht : In t (box sizes)) by now apply target_in_box.
  destruct (scores_are_finite _ _ _ _ _ He Hlarge (Hscores m Htap)) as [Hfin Hc]. fold t in Hc.
  assert (Hs : forall k, In k (box sizes) -> B2R (s m k) = - power (e m) * distance2 k t + shared m).
  { intros k Hk. destruct (Hc k Hk) as (tree & Htree & Habs & Hexact & Hc').
    rewrite <- Hexact. now apply (scores_without_rounding f Hf (e m) He). }
  destruct (softmax_is_finite E (box sizes) (s m) (p m) t (power (e m)) (Hsoftmax m Htap) (box_distinct sizes) Ht Hfin);
    auto using bpow_gt_0.
  intros k Hk Hne. rewrite (Hs k Hk), (Hs t Ht), distance2_diagonal.
  assert (1 <= distance2 k t).
  { apply distance2_gap; [|assumption]. apply length_in_box in Hk. apply length_in_box in Ht. congruence. }
  pose proof (bpow_gt_0 radix2 (e m)). nra.
Qed.

(** ... and one for each axis. *)
Inductive runs_tables (E : float_exponential) (e : Z) : list nat -> position -> list (Z -> float f) -> Prop :=
  | Runs_nil : runs_tables E e [] [] []
  | Runs_cons n sizes t target q tables s shared :
      runs_scores e (range n) (fun x => IZR (x - t) ^ 2) shared s ->
      runs_softmax E (range n) s t q ->
      runs_tables E e sizes target tables ->
      runs_tables E e (n :: sizes) (t :: target) (q :: tables).

Theorem tables_are_finite (E : float_exponential) e sizes target tables :
  (lowest f <= e)%Z -> (precision f + e <= emax f - 2)%Z -> representable f (power e) ->
  growth (on_numbers E) * exp (- power e) < half_smallest f ->
  runs_tables E e sizes target tables -> In target (box sizes) ->
  computes_tables f Hf (on_numbers E) e sizes target (map (fun q z => B2R (q z)) tables).
Proof.
  intros He Hlarge Hrep Hsmall. induction 1 as [|n sizes t target q tables s shared Hs Hq _ IH]; intros Ht; [constructor|].
  apply in_box in Ht. inversion Ht as [|? ? ? ? Ht1 Ht2]; subst.
  assert (Hin : In t (range n)) by (now apply in_range).
  destruct (scores_are_finite _ _ _ _ _ He Hlarge Hs) as [Hfin Hc].
  assert (Hexact : forall z, In z (range n) -> B2R (s z) = - power e * IZR (z - t) ^ 2 + shared).
  { intros z Hz. destruct (Hc z Hz) as (tree & Htree & Habs & Hexact & Hc'). rewrite <- Hexact.
    now apply (scores_without_rounding f Hf e He). }
  simpl. apply Tables_cons with (s := fun z => B2R (s z)) (shared := shared); [assumption| |apply IH; now apply in_box].
  destruct (softmax_is_finite E (range n) s q t (power e) Hq (range_distinct n) Hin Hfin); auto using bpow_gt_0.
  intros z Hz Hne. rewrite (Hexact z Hz), (Hexact t Hin), Z.sub_diag.
  assert (1 <= IZR (z - t) ^ 2).
  { replace (IZR (z - t) ^ 2) with (IZR ((z - t) * (z - t))) by (rewrite mult_IZR; ring). apply IZR_le. nia. }
  pose proof (bpow_gt_0 radix2 e). simpl in *. nra.
Qed.
End Softmax.
Arguments float_exp {f}. Arguments on_numbers {f}.
