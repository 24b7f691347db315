(** * Numbers with a largest one: what one-hot attention adds up does not overflow

    Binary.v rounds as if there were no largest number. Here sums are computed with the numbers of IEEE 754 as Flocq has
    them: there is a largest one, a result beyond it is infinite, and infinities make more of them, or NaN. If four times the
    sum of the absolute values is at most a power of two that is a number, then every result on the way is finite, and is
    the one of Binary.v. Beside proofs/claims/certificate/rounding.py (claim rounded-sum) and
    proofs/claims/certificate/underflow.py (claim underflow-errors); the code is convert/bounds/rounding.py. *)

From Coq Require Import Bool ZArith Reals Lia Lra Psatz Permutation.
From Flocq Require Import Core IEEE754.BinarySingleNaN.
From Conv2Attn Require Import Sums Encoding Attention Box ConvolutionN TheoremN.
From Conv2Attn Require Import Summation Rounding Binary Certificate ExactRegime.
Import ListNotations.
Open Scope R_scope.
Local Notation power := (bpow radix2).

(** 2 to this is the first power of two that is not a number: 2^16, 2^128 and 2^1024. *)
Definition emax (f : format) : Z := 3 - lowest f - precision f.

Example largest_exponents : map emax [binary16; bfloat16; binary32; binary64] = [16; 128; 128; 1024]%Z.
Proof. reflexivity. Qed.

(** The numbers of a format, infinities and NaN. *)
Definition float (f : format) : Type := binary_float (precision f) (emax f).

Section Floats.
Variable f : format.
Hypothesis Hf : (0 < precision f)%Z.
Hypothesis Hmax : (precision f < emax f)%Z.
Local Instance float_precision : Prec_gt_0 (precision f) := Hf.
Local Instance float_range : Prec_lt_emax (precision f) (emax f) := Hmax.

Lemma nearest_in_flocq x :
  round radix2 (SpecFloat.fexp (precision f) (emax f)) (round_mode mode_NE) x = nearest f x.
Proof.
  change (SpecFloat.fexp (precision f) (emax f)) with (FLT_exp (SpecFloat.emin (precision f) (emax f)) (precision f)).
  replace (SpecFloat.emin (precision f) (emax f)) with (lowest f) by (unfold SpecFloat.emin, emax; lia). reflexivity.
Qed.

Lemma float_is_number (x : float f) : representable f (B2R x).
Proof.
  pose proof (generic_format_B2R _ _ x) as H.
  change (SpecFloat.fexp (precision f) (emax f)) with (FLT_exp (SpecFloat.emin (precision f) (emax f)) (precision f)) in H.
  replace (SpecFloat.emin (precision f) (emax f)) with (lowest f) in H by (unfold SpecFloat.emin, emax; lia). exact H.
Qed.

(** What is at most a number that there is, rounds to at most it. *)
Lemma nearest_at_most x M : representable f M -> Rabs x <= M -> Rabs (nearest f x) <= M.
Proof.
  intros HM Hx. assert (Hneg : representable f (- M)) by now apply generic_format_opp.
  apply Rabs_le. apply Rabs_le_inv in Hx.
  rewrite <- (nearest_of_representable f _ HM) at 2. rewrite <- (nearest_of_representable f _ Hneg).
  split; apply nearest_le; tauto.
Qed.

(** What a machine may find, infinities and NaN included: the operations of [computes] on the numbers that there are. *)
Inductive runs : tree -> float f -> Prop :=
  | Runs_leaf x : is_finite x = true -> runs (Leaf (B2R x)) x
  | Runs_scale a t y : is_finite a = true -> runs t y -> runs (Scale (B2R a) t) (Bmult mode_NE a y)
  | Runs_plus l r y z : runs l y -> runs r z -> runs (Plus l r) (Bplus mode_NE y z)
  | Runs_fused a t r y z : is_finite a = true -> runs t y -> runs r z ->
      runs (Plus (Scale (B2R a) t) r) (Bfma mode_NE a y z)
  | Runs_swapped l r y : runs (Plus r l) y -> runs (Plus l r) y.

(** No result on the way reaches 2^emax. *)
Fixpoint stays_finite (t : tree) : Prop :=
  (forall y, computes (ieee f Hf) t y -> Rabs y < power (emax f)) /\
  match t with
  | Leaf _ => True
  | Scale _ t => stays_finite t
  | Plus l r => stays_finite l /\ stays_finite r
  end.

Lemma finite_runs t y : runs t y -> stays_finite t -> is_finite y = true /\ computes (ieee f Hf) t (B2R y).
Proof.
  induction 1 as [x Hx|a t y Ha H IH|l r y z Hl IHl Hr IHr|a t r y z Ha Ht IHt Hr IHr|l r y H IH]; intros [Hs Hsub].
  - split; [assumption|]. constructor. apply float_is_number.
  - destruct (IH Hsub) as [Hfin Hc]. assert (Hc' := Computes_scale (ieee f Hf) (B2R a) t (B2R y) Hc).
    pose proof (Hs _ Hc') as Hlt. cbn [fl ieee] in Hc', Hlt. rewrite <- nearest_in_flocq in Hc', Hlt.
    pose proof (Bmult_correct _ _ _ _ mode_NE a y) as H0. rewrite Rlt_bool_true in H0 by exact Hlt.
    destruct H0 as (E & Efin & _). rewrite E, Efin, Ha, Hfin. split; [reflexivity|exact Hc'].
  - destruct Hsub as [Hsl Hsr]. destruct (IHl Hsl) as [Hfl Hcl], (IHr Hsr) as [Hfr Hcr].
    assert (Hc' := Computes_plus (ieee f Hf) l r _ _ Hcl Hcr).
    pose proof (Hs _ Hc') as Hlt. cbn [fl ieee] in Hc', Hlt. rewrite <- nearest_in_flocq in Hc', Hlt.
    pose proof (Bplus_correct _ _ _ _ mode_NE y z Hfl Hfr) as H0. rewrite Rlt_bool_true in H0 by exact Hlt.
    destruct H0 as (E & Efin & _). rewrite E. now split.
  - destruct Hsub as [[_ Hst] Hsr]. destruct (IHt Hst) as [Hft Hct], (IHr Hsr) as [Hfr Hcr].
    assert (Hc' := Computes_fused (ieee f Hf) (B2R a) t r _ _ Hct Hcr).
    pose proof (Hs _ Hc') as Hlt. cbn [fl ieee] in Hc', Hlt. rewrite <- nearest_in_flocq in Hc', Hlt.
    pose proof (Bfma_correct _ _ _ _ mode_NE a y z Ha Hft Hfr) as H0. cbv zeta in H0.
    rewrite Rlt_bool_true in H0 by exact Hlt. destruct H0 as (E & Efin & _). rewrite E. now split.
  - destruct IH as [Hfin Hc].
    + split; [|tauto]. intros z Hz. apply Hs. now apply Computes_swapped.
    + split; [assumption|now apply Computes_swapped].
Qed.

(** What is added up are finite numbers. *)
Fixpoint leaves_finite (t : tree) : Prop :=
  match t with
  | Leaf x => Rabs x < power (emax f)
  | Scale _ t => leaves_finite t
  | Plus l r => leaves_finite l /\ leaves_finite r
  end.

Lemma runs_leaves t y : runs t y -> leaves_finite t.
Proof. induction 1; simpl in *; try tauto. apply abs_B2R_lt_emax. Qed.

(** ** Picking: of two numbers that are added up, one is zero *)

Fixpoint picks (t : tree) : Prop :=
  match t with
  | Leaf _ => True
  | Scale a t => (a = 0 \/ a = 1) /\ picks t
  | Plus l r => picks l /\ picks r /\ (null l = true \/ null r = true)
  end.

(** Then every result is 0 or one of the numbers. *)
Lemma picks_result t y : computes (ieee f Hf) t y -> picks t -> leaves_finite t -> Rabs y < power (emax f).
Proof.
  pose proof (bpow_gt_0 radix2 (emax f)) as Hpos.
  assert (H0 : Rabs (nearest f 0) < power (emax f)).
  { rewrite nearest_of_representable by apply zero_representable. now rewrite Rabs_R0. }
  assert (Hkept : forall t y, computes (ieee f Hf) t y -> nearest f y = y).
  { intros t' y' H. apply (fl_of_number (ieee f Hf)). now apply computes_number in H. }
  induction 1 as [x Hx|a t y H IH|l r y z Hl IHl Hr IHr|a t r y z Ht IHt Hr IHr|l r y H IH]; simpl; intros Hpicks Hleaves.
  - assumption.
  - destruct Hpicks as [[-> | ->] Hpicks]; [now rewrite Rmult_0_l|]. rewrite Rmult_1_l, (Hkept t y H). auto.
  - destruct Hpicks as (Hrl & Hrr & [Hn|Hn]).
    + rewrite (null_computes _ l y Hl Hn), Rplus_0_l, (Hkept r z Hr). tauto.
    + rewrite (null_computes _ r z Hr Hn), Rplus_0_r, (Hkept l y Hl). tauto.
  - destruct Hpicks as ([Ha Hrt] & Hrr & Hn).
    assert (Hay : a * y = 0 \/ a = 1) by (destruct Ha as [-> | ->]; [left; ring|now right]).
    destruct Hn as [Hn|Hn].
    + assert (E : a * y = 0).
      { apply orb_true_iff in Hn. destruct Hn as [Hn|Hn].
        - apply is_zero_true in Hn. subst. ring.
        - rewrite (null_computes _ t y Ht Hn). ring. }
      rewrite E, Rplus_0_l, (Hkept r z Hr). tauto.
    + rewrite (null_computes _ r z Hr Hn), Rplus_0_r. destruct Hay as [-> | ->]; [assumption|].
      rewrite Rmult_1_l, (Hkept t y Ht). tauto.
  - apply IH; simpl; tauto.
Qed.

Lemma picks_stays_finite t : picks t -> leaves_finite t -> stays_finite t.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; intros Hr Hl; (split; [intros y Hy; now apply (picks_result _ y Hy)|]);
    simpl in *; tauto.
Qed.

(** ** Sums of weighted numbers *)

(** A factor multiplies a number that is picked, or it is a probability and multiplies a sum of at most m products whose
    absolute values add up to at most B. *)
Fixpoint tame (m : nat) (B : R) (t : tree) : Prop :=
  match t with
  | Leaf _ => True
  | Scale a s => picks s \/ (a = 0 \/ a = 1) /\ (live (terms s) <= m)%nat /\ absolute s <= B /\ tame m B s
  | Plus l r => tame m B l /\ tame m B r
  end.

Section Sums.
Variables (m : nat) (B : R).
Hypothesis Hm : INR m * roundoff f <= / 2.
Hypothesis HB : 2 * B + power (lowest f + precision f - 1) < power (emax f).

Lemma tame_stays_finite t :
  single t -> tame m B t -> leaves_finite t -> (live (terms t) <= m)%nat -> absolute t <= B -> stays_finite t.
Proof.
  assert (Hnode : forall t, single t -> (live (terms t) <= m)%nat -> absolute t <= B ->
    forall y, computes (ieee f Hf) t y -> Rabs y < power (emax f)).
  { intros t' Hs Hl Ha y Hy. eapply Rle_lt_trans; [|exact HB].
    apply (result_at_most f Hf m Hm (terms t') B) with (t := t'); auto. now rewrite <- absolute_terms. }
  induction t as [x|a t IH|l IHl r IHr]; intros Hs Ht Hleaves Hlive Habs; (split; [now apply Hnode|]).
  - exact I.
  - destruct Ht as [Hpicks|(Ha & Hl & Hb & Ht)]; [now apply picks_stays_finite|]. apply IH; auto.
    simpl in Hs. unfold is_zero, is_one in Hs.
    destruct Ha as [-> | ->]; [destruct (Req_EM_T 0 0)|destruct (Req_EM_T 1 1); [rewrite orb_true_r in Hs|]];
      try congruence; assumption.
  - simpl in *. destruct Hs, Ht, Hleaves. rewrite live_app in Hlive.
    pose proof (absolute_nonneg l). pose proof (absolute_nonneg r).
    split; [apply IHl|apply IHr]; auto; lia || lra.
Qed.

Theorem small_sums_are_finite l t (y : float f) :
  (live l <= m)%nat -> Sum q in l, Rabs (value q) <= B ->
  single t -> Permutation (terms t) l -> tame m B t -> runs t y ->
  is_finite y = true /\ computes (ieee f Hf) t (B2R y).
Proof.
  intros Hlive Habs Hs Hl Ht Hy. apply finite_runs; [assumption|]. apply tame_stays_finite; auto.
  - now apply runs_leaves in Hy.
  - now rewrite (live_permutation _ _ Hl).
  - rewrite absolute_terms. now rewrite (sum_permutation _ _ _ Hl).
Qed.
End Sums.
End Floats.

(** ** What is given out in a shorter format *)

Definition converted {f : format} (fo : format) (Hfo : (0 < precision fo)%Z) (Hmax : (precision fo < emax fo)%Z)
    (z : float f) : float fo :=
  match z with
  | B754_zero s => B754_zero s
  | B754_infinity s => B754_infinity s
  | B754_nan => B754_nan
  | B754_finite s m e _ =>
      binary_normalize (precision fo) (emax fo) (float_precision fo Hfo) (float_range fo Hmax) mode_NE
        (cond_Zopp s (Zpos m)) e s
  end.

Lemma converted_is_nearest {f : format} fo Hfo Hmax (z : float f) E :
  is_finite z = true -> Rabs (B2R z) <= power E -> (lowest fo <= E < emax fo)%Z ->
  is_finite (converted fo Hfo Hmax z) = true /\ B2R (converted fo Hfo Hmax z) = nearest fo (B2R z).
Proof.
  intros Hfin Hz HE. assert (Hrep : representable fo (power E)).
  { unfold representable, exponents. apply generic_format_FLT_bpow; [exact Hfo|lia]. }
  assert (Hlt : Rabs (nearest fo (B2R z)) < power (emax fo)).
  { apply Rle_lt_trans with (power E); [now apply nearest_at_most|apply bpow_lt; lia]. }
  destruct z as [sign|sign| |sign m e H]; try discriminate.
  - split; [reflexivity|]. simpl B2R. now rewrite nearest_of_representable by apply zero_representable.
  - pose proof (binary_normalize_correct (precision fo) (emax fo) (float_precision fo Hfo) (float_range fo Hmax) mode_NE
      (cond_Zopp sign (Zpos m)) e sign) as H0.
    cbv zeta in H0. rewrite (nearest_in_flocq fo) in H0. rewrite Rlt_bool_true in H0 by exact Hlt.
    destruct H0 as (E1 & E2 & _). split; [exact E2|exact E1].
Qed.

(** ** The layers *)

Section Orders.
Variables (g : geometry_n) (W : kernel_n) (b : vector) (X : position -> vector) (sizes : list nat) (o : nat) (r : R).
Local Notation channel_of c := (o / outputs g * inputs g + c)%nat.

Definition live_terms (l : list (R * R)) : list (R * R) := filter (fun p => negb (is_zero (value p))) l.

(** What weights make of one pixel: tap m's weights times channels of pixel k, none of them twice. *)
Definition weighs (m k : position) (s : tree) : Prop :=
  exists rest,
    Permutation (live_terms (terms s) ++ rest) (map (fun c => (W o c m, X k (channel_of c))) (seq 0 (inputs g))).

(** The orders of the engines: a weight multiplies one pixel, as it is or as probabilities pick it, and never a sum of
    several; a probability multiplies a pixel, or what weights make of one pixel. *)
Inductive in_order : tree -> Prop :=
  | Order_number x : in_order (Leaf x)
  | Order_read a s : picks s -> in_order (Scale a s)
  | Order_weighed a m k s : a = 0 \/ a = 1 -> In m (taps g) -> In k (box sizes) -> weighs m k s -> in_order s ->
      in_order (Scale a s)
  | Order_sum l r : in_order l -> in_order r -> in_order (Plus l r).

Hypothesis HX : forall k c, In k (box sizes) -> Rabs (X k c) <= r.

Lemma weighs_at_most m k s :
  In m (taps g) -> In k (box sizes) -> weighs m k s ->
  (live (terms s) <= term_count g)%nat /\ absolute s <= r * weight_sum g W o.
Proof.
  intros Hm Hk [rest Hs]. assert (Hr : 0 <= r) by (pose proof (HX k 0%nat Hk); pose proof (Rabs_pos (X k 0%nat)); lra).
  assert (Htap : (1 <= length (taps g))%nat) by (destruct (taps g); [contradiction|simpl; lia]). split.
  - apply Permutation_length in Hs. rewrite app_length, map_length, seq_length in Hs.
    unfold live. fold (live_terms (terms s)). unfold term_count. nia.
  - rewrite absolute_terms. assert (E : Sum q in terms s, Rabs (value q) = Sum q in live_terms (terms s), Rabs (value q)).
    { clear Hs. unfold live_terms. induction (terms s) as [|q l IH]; [reflexivity|]. simpl. rewrite IH.
      destruct (is_zero (value q)) eqn:Hz; simpl; [|reflexivity]. apply is_zero_true in Hz. rewrite Hz, Rabs_R0. ring. }
    rewrite E. apply Rle_trans with (Sum q in live_terms (terms s) ++ rest, Rabs (value q)).
    + rewrite sum_app. assert (0 <= Sum q in rest, Rabs (value q)) by (apply sum_nonneg; intros; apply Rabs_pos). lra.
    + rewrite (sum_permutation _ _ _ Hs), sum_map. unfold value, weight_sum. cbn [fst snd]. rewrite <- sum_scale.
      apply sum_le; intros c _. rewrite Rabs_mult, Rmult_comm.
      apply Rmult_le_compat; try apply Rabs_pos; [now apply HX|].
      apply (term_le_sum (taps g) (fun m => Rabs (W o c m))); [intros; apply Rabs_pos|assumption].
Qed.

Lemma in_order_tame t : in_order t -> tame (term_count g) (r * weight_sum g W o + Rabs (b o)) t.
Proof.
  induction 1 as [x|a s Hs|a m k s Ha Hm Hk Hs _ IH|l r' _ IHl _ IHr]; simpl; auto.
  right. destruct (weighs_at_most m k s Hm Hk Hs). pose proof (Rabs_pos (b o)). repeat split; auto. lra.
Qed.
End Orders.

(** If 4 (r sum |W| + |b|) is at most 2^E, and 2^E a number, then neither one-hot attention nor the convolution
    overflows, and each result is one that Binary.v allows, and at most 2^E. *)
Theorem one_hot_runs_are_finite f Hf Hmax g W b X sizes i o (p : position -> position -> R) r E
    t_attention t_conv (y_attention y_conv : float f) :
  valid_n g -> is_output_n (axes g) sizes i -> INR (term_count g) * roundoff f <= / 2 ->
  (forall k c, In k (box sizes) -> Rabs (X k c) <= r) ->
  4 * (r * weight_sum g W o + Rabs (b o)) <= power E -> (lowest f + precision f <= E < emax f)%Z ->
  one_hot_at g sizes i p ->
  single t_attention -> Permutation (terms t_attention) (attention_terms g W b X sizes o p) ->
  in_order g W X sizes o t_attention -> runs f Hf Hmax t_attention y_attention ->
  single t_conv -> Permutation (terms t_conv) (conv_terms g W b X i o) ->
  in_order g W X sizes o t_conv -> runs f Hf Hmax t_conv y_conv ->
  (is_finite y_attention = true /\ computes (ieee f Hf) t_attention (B2R y_attention) /\ Rabs (B2R y_attention) <= power E)
  /\ is_finite y_conv = true /\ computes (ieee f Hf) t_conv (B2R y_conv) /\ Rabs (B2R y_conv) <= power E.
Proof.
  intros Hvalid Hout Hm HX HE HE' Hp Hsa Hpa Hoa Hya Hsc Hpc Hoc Hyc.
  destruct (attention_terms_are_the_convolutions g W b X sizes i o Hvalid Hout p Hp) as (Hla & _ & Haa).
  pose proof (absolute_sum_at_most g W b X sizes i o r Hvalid Hout HX) as Ha.
  set (A := r * weight_sum g W o + Rabs (b o)) in *.
  assert (Hsmall : 2 * A + power (lowest f + precision f - 1) <= power E).
  { assert (power (lowest f + precision f - 1) <= power (E - 1)) by (apply bpow_le; lia).
    replace E with (E - 1 + 1)%Z in HE |- * by lia. rewrite bpow_plus in HE |- *. simpl (power 1) in HE |- *. lra. }
  assert (Hlarge : 2 * A + power (lowest f + precision f - 1) < power (emax f)).
  { eapply Rle_lt_trans; [exact Hsmall|]. apply bpow_lt. lia. }
  destruct (small_sums_are_finite f Hf Hmax (term_count g) A Hm Hlarge (attention_terms g W b X sizes o p) t_attention
    y_attention) as [Hfa Hca]; auto; [lra|now apply (in_order_tame g W b X sizes o r)|].
  destruct (small_sums_are_finite f Hf Hmax (term_count g) A Hm Hlarge (conv_terms g W b X i o) t_conv y_conv)
    as [Hfc Hcc]; auto;
    [apply conv_terms_live|rewrite conv_terms_absolute; lra|now apply (in_order_tame g W b X sizes o r)|].
  destruct (one_hot_results_at_most f Hf g W b X sizes i o p t_attention t_conv (B2R y_attention) (B2R y_conv) r)
    as [H1 H2]; auto.
  fold A in H1, H2. repeat split; auto; lra.
Qed.
