(** * Computed attention probabilities that are exactly 0 and 1

    From alpha = 104 on in single and 746 in double precision, exp(-alpha) is nearer to 0 than to the smallest positive
    number. Then softmax in floating point is one-hot, in whatever order it adds up. Beside
    proofs/claims/computing/floating_point.py (claims one-hot-threshold and exact-defaults); the code is
    convert/heads/regime.py. *)

From Coq Require Import ZArith Reals Lia Lra Psatz Permutation.
From Flocq Require Import Core.
From Conv2Attn Require Import Sums Summation Rounding Binary.
Open Scope R_scope.

(** What is assumed of exp: at 0 it gives a positive number; below, a value that is at most [growth] times too large and
    not negative, rounded to nearest. Correct rounding is growth 1. *)
Record exponential (f : format) := Exponential {
  computed_exp : R -> R;
  growth : R;
  exp_at_0 : 0 < computed_exp 0;
  exp_at_0_representable : representable f (computed_exp 0);
  exp_below_0 : forall z, z < 0 -> exists y, computed_exp z = nearest f y /\ 0 <= y <= growth * exp z
}.
Arguments computed_exp {f}. Arguments growth {f}.

(** What a machine may find for softmax: the largest score is subtracted, exponentials are added up in any order, and
    each is divided by the sum. *)
Definition computes_softmax {K : Type} (f : format) (Hf : (0 < precision f)%Z) (E : exponential f) (keys : list K)
    (s : K -> R) (t : K) (p : K -> R) : Prop :=
  let e := fun k => computed_exp E (nearest f (s k - s t)) in
  exists total order,
    Permutation (terms order) (map (fun k => (1, e k)) keys) /\ plain order /\ computes (ieee f Hf) order total /\
    forall k, In k keys -> p k = nearest f (e k / total).

Lemma exp_le x y : x <= y -> exp x <= exp y.
Proof. intros [H| ->]; [left; now apply exp_increasing|lra]. Qed.

(** What is exponentiated is alpha below 0 or less, and rounds to 0. *)
Lemma exponential_vanishes f (Hf : (0 < precision f)%Z) (E : exponential f) x alpha :
  x <= - alpha -> 0 < alpha -> representable f alpha -> growth E * exp (- alpha) < half_smallest f ->
  computed_exp E (nearest f x) = 0.
Proof.
  intros Hx Ha Halpha Hsmall. set (z := nearest f x).
  assert (Hz : z <= - alpha).
  { unfold z. rewrite <- (nearest_of_representable f (- alpha)) by now apply generic_format_opp.
    apply nearest_le; [assumption|lra]. }
  destruct (exp_below_0 f E z) as (y & -> & Hy0 & Hy); [lra|].
  apply rounds_to_zero; [assumption|]. rewrite Rabs_pos_eq by assumption.
  assert (0 <= growth E).
  { destruct (exp_below_0 f E (-1)) as (y' & _ & Hy'); [lra|]. pose proof (exp_pos (-1)).
    destruct (Rle_dec 0 (growth E)); [assumption|exfalso]. nra. }
  pose proof (exp_le z (- alpha) Hz). pose proof (exp_pos z). nra.
Qed.

(** If all other scores are at least alpha below the target's, the target gets 1 and every other key 0. *)
Theorem one_hot {K : Type} f Hf (E : exponential f) (keys before after : list K) (s : K -> R) t (p : K -> R) alpha :
  computes_softmax f Hf E keys s t p ->
  keys = before ++ t :: after -> (forall k, In k (before ++ after) -> s k <= s t - alpha) ->
  0 < alpha -> representable f alpha -> representable f 1 -> growth E * exp (- alpha) < half_smallest f ->
  p t = 1 /\ forall k, In k (before ++ after) -> p k = 0.
Proof.
  intros Hsoftmax -> Hgap Ha Halpha Hone Hsmall.
  set (e := fun k => computed_exp E (nearest f (s k - s t))).
  destruct Hsoftmax as (total & order & Horder & Hplain & Htotal & Hq). fold e in Horder.
  assert (Hothers : forall k, In k (before ++ after) -> e k = 0).
  { intros k Hk. specialize (Hgap k Hk). unfold e. apply (exponential_vanishes f Hf E _ alpha); auto. lra. }
  assert (Ht : e t = computed_exp E 0).
  { unfold e. replace (s t - s t) with 0 by ring. rewrite nearest_of_representable by apply zero_representable.
    reflexivity. }
  pose proof (exp_at_0 f E) as Hpos. pose proof (exp_at_0_representable f E) as Hrep. rewrite <- Ht in Hpos, Hrep.
  assert (Hzeros : forall l, (forall k, In k l -> e k = 0) -> live (map (fun k => (1, e k)) l) = 0%nat
    /\ Sum q in map (fun k => (1, e k)) l, value q = 0).
  { induction l as [|k l IH]; intros Hl; [split; reflexivity|]. destruct (IH ltac:(intros; apply Hl; now right)) as [H1 H2].
    unfold live in *. simpl. unfold value in *. simpl in *. rewrite Rmult_1_l, (Hl k (or_introl eq_refl)). unfold is_zero at 1.
    destruct (Req_EM_T 0 0); [|congruence]. simpl. split; [assumption|]. rewrite H2. ring. }
  destruct (Hzeros before) as [Hb1 Hb2]; [intros; apply Hothers, in_or_app; auto|].
  destruct (Hzeros after) as [Ha1 Ha2]; [intros; apply Hothers, in_or_app; auto|].
  assert (Etotal : total = e t).
  { apply (single_term_is_exact (ieee f Hf) order total (map (fun k => (1, e k)) (before ++ t :: after))); auto.
    - rewrite map_app, live_app, Hb1. change (map (fun k => (1, e k)) (t :: after))
        with ([(1, e t)] ++ map (fun k => (1, e k)) after). rewrite live_app, Ha1. unfold live. simpl.
      destruct (is_zero (value (1, e t))); simpl; lia.
    - rewrite map_app, sum_app, Hb2. simpl. rewrite Ha2. unfold value. simpl. ring. }
  split.
  - rewrite Hq by (apply in_or_app; right; now left). fold (e t). rewrite Etotal.
    replace (e t / e t) with 1 by (field; lra). now apply nearest_of_representable.
  - intros k Hk. rewrite Hq by (apply in_app_or in Hk; apply in_or_app; simpl; tauto). fold (e k).
    rewrite Hothers by assumption. unfold Rdiv. rewrite Rmult_0_l. apply nearest_of_representable, zero_representable.
Qed.

(** ** The thresholds *)

(** e > 2.718, from its series. *)
Lemma exp_1_above : 2718 / 1000 < exp 1.
Proof.
  set (s := fun n => sum_f_R0 (fun i => / INR (fact i) * 1 ^ i) n).
  assert (Hs : s 6%nat <= exp 1).
  { apply (growing_ineq s).
    - intros n. unfold s. simpl sum_f_R0. rewrite pow1, Rmult_1_r.
      assert (0 < / INR (fact (S n))) by (apply Rinv_0_lt_compat, lt_0_INR, lt_O_fact). simpl fact in *. lra.
    - unfold exp. destruct (exist_exp 1) as [l Hl]. exact Hl. }
  eapply Rlt_le_trans; [|exact Hs]. unfold s. cbv [sum_f_R0]. rewrite !pow1, !INR_IZR_INZ.
  simpl Z.of_nat. lra.
Qed.

(** A number m 2^k below exp(n), by squaring, with some forty bits of m: small integers, so that every checker of proofs
    can evaluate it. *)
Definition shortened (x : Z * Z) : Z * Z :=
  let s := Z.max 0 (Z.log2 (fst x) - 40) in (fst x / 2 ^ s, snd x + s)%Z.
Definition product (x y : Z * Z) : Z * Z := shortened (fst x * fst y, snd x + snd y)%Z.
Definition squared (x : Z * Z) : Z * Z := match x with (m, k) => product (m, k) (m, k) end.
Definition e_below : Z * Z := (2918430277, -30)%Z.
Fixpoint power_of_e (n : positive) : Z * Z :=
  match n with
  | xH => e_below
  | xO n' => squared (power_of_e n')
  | xI n' => product e_below (squared (power_of_e n'))
  end.

Definition is_below (x : Z * Z) (y : R) : Prop := (0 <= fst x)%Z /\ IZR (fst x) * bpow radix2 (snd x) <= y.

Lemma shortened_below x y : is_below x y -> is_below (shortened x) y.
Proof.
  destruct x as [m k]. unfold is_below, shortened. simpl. intros [Hm Hy]. set (s := Z.max 0 (Z.log2 m - 40)).
  assert (Hs : (0 < 2 ^ s)%Z) by (apply Z.pow_pos_nonneg; lia). split; [now apply Z.div_pos|].
  eapply Rle_trans; [|exact Hy]. rewrite Z.add_comm, bpow_plus, <- Rmult_assoc.
  apply Rmult_le_compat_r; [apply bpow_ge_0|]. rewrite <- IZR_Zpower by lia. rewrite <- mult_IZR. apply IZR_le.
  change (Zpower radix2 s) with (2 ^ s)%Z. rewrite Z.mul_comm. apply Z.mul_div_le. assumption.
Qed.

Lemma product_below x x' y y' : is_below x y -> is_below x' y' -> is_below (product x x') (y * y').
Proof.
  destruct x as [m k], x' as [m' k']. intros [Hm Hy] [Hm' Hy']. apply shortened_below. split; simpl in *; [nia|].
  rewrite mult_IZR, bpow_plus.
  replace (IZR m * IZR m' * (bpow radix2 k * bpow radix2 k')) with ((IZR m * bpow radix2 k) * (IZR m' * bpow radix2 k')) by ring.
  apply Rmult_le_compat; try assumption; apply Rmult_le_pos; try (now apply IZR_le); apply bpow_ge_0.
Qed.

Lemma squared_below x y : is_below x y -> is_below (squared x) (y * y).
Proof. destruct x as [m k]. intros H. now apply product_below. Qed.

Lemma power_of_e_below n : is_below (power_of_e n) (exp (IZR (Zpos n))).
Proof.
  assert (He : is_below e_below (exp 1)).
  { split; [simpl; lia|]. pose proof exp_1_above. simpl. lra. }
  induction n as [n IH|n IH|]; simpl power_of_e; [| |exact He].
  - replace (IZR (Zpos n~1)) with (1 + (IZR (Zpos n) + IZR (Zpos n))) by (rewrite <- !plus_IZR; f_equal; lia).
    rewrite !exp_plus. apply product_below; [exact He|]. now apply squared_below.
  - replace (IZR (Zpos n~0)) with (IZR (Zpos n) + IZR (Zpos n)) by (rewrite <- plus_IZR; f_equal; lia).
    rewrite exp_plus. now apply squared_below.
Qed.

(** growth exp(-alpha) < 2^k for alpha >= n, if growth is at most 2^-k times less than exp(n) is known to be. *)
Lemma exp_below n k g d alpha :
  (let x := power_of_e n in g * 2 ^ (- (snd x + k)) <? d * fst x)%Z = true ->
  (snd (power_of_e n) + k <= 0)%Z -> (0 < d)%Z -> (0 <= g)%Z -> IZR (Zpos n) <= alpha ->
  IZR g / IZR d * exp (- alpha) < bpow radix2 k.
Proof.
  cbv zeta. intros H Hk Hd Hg Ha. apply Z.ltb_lt in H. apply IZR_lt in H. apply IZR_lt in Hd.
  destruct (power_of_e_below n) as [_ Hx]. destruct (power_of_e n) as [m e]. simpl in *.
  assert (Hexp : exp (IZR (Zpos n)) <= exp alpha) by now apply exp_le.
  rewrite exp_Ropp. pose proof (exp_pos alpha). apply Rmult_lt_reg_r with (exp alpha); [assumption|].
  rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  apply Rlt_le_trans with (bpow radix2 k * (IZR m * bpow radix2 e)); [|apply Rmult_le_compat_l; [apply bpow_ge_0|lra]].
  rewrite !mult_IZR in H. change (2 ^ (- (e + k)))%Z with (Zpower radix2 (- (e + k))) in H.
  rewrite IZR_Zpower in H by lia. pose proof (bpow_gt_0 radix2 (e + k)) as Hpow.
  assert (E : bpow radix2 (- (e + k)) * bpow radix2 (e + k) = 1).
  { rewrite <- bpow_plus. replace (- (e + k) + (e + k))%Z with 0%Z by lia. reflexivity. }
  apply (Rmult_lt_compat_r (bpow radix2 (e + k))) in H; [|assumption].
  rewrite Rmult_assoc, E, Rmult_1_r, bpow_plus in H.
  apply Rmult_lt_reg_l with (IZR d); [assumption|].
  replace (IZR d * (IZR g / IZR d)) with (IZR g) by (field; lra). lra.
Qed.

(** Single precision: from alpha = 104 on for an exp that is at most 1 % too large, from 128 on for any that is at most
    2^33 times too large. Double precision: from 746 on for one that is at most twice too large, and from 1024 on for
    2^402 times. *)
Theorem one_hot_thresholds alpha :
  (104 <= alpha -> 101 / 100 * exp (- alpha) < half_smallest binary32) /\
  (128 <= alpha -> bpow radix2 33 * exp (- alpha) < half_smallest binary32) /\
  (746 <= alpha -> 2 * exp (- alpha) < half_smallest binary64) /\
  (1024 <= alpha -> bpow radix2 402 * exp (- alpha) < half_smallest binary64).
Proof.
  unfold half_smallest. repeat split; intros Ha.
  - apply (exp_below 104 (-150) 101 100); [vm_compute; reflexivity|vm_compute; discriminate|lia|lia|exact Ha].
  - apply Rmult_lt_reg_l with (bpow radix2 (- 33)); [apply bpow_gt_0|].
    rewrite <- Rmult_assoc, <- !bpow_plus. simpl Z.add.
    replace (bpow radix2 0) with (1 / 1) by (simpl; lra).
    apply (exp_below 128 (-183) 1 1); [vm_compute; reflexivity|vm_compute; discriminate|lia|lia|exact Ha].
  - replace 2 with (2 / 1) by lra.
    apply (exp_below 746 (-1075) 2 1); [vm_compute; reflexivity|vm_compute; discriminate|lia|lia|exact Ha].
  - apply Rmult_lt_reg_l with (bpow radix2 (- 402)); [apply bpow_gt_0|].
    rewrite <- Rmult_assoc, <- !bpow_plus. simpl Z.add.
    replace (bpow radix2 0) with (1 / 1) by (simpl; lra).
    apply (exp_below 1024 (-1477) 1 1); [vm_compute; reflexivity|vm_compute; discriminate|lia|lia|exact Ha].
Qed.
