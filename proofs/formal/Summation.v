(** * Sums of products in floating point, in any order

    A library adds products in an order that nobody knows, fused or not. A tree says which: whatever it is, the error is
    bounded by the number of terms that are not zero. Beside proofs/claims/certificate/rounding.py (claim rounded-sum) and
    proofs/claims/certificate/underflow.py (claim underflow-errors); the code is convert/bounds/rounding.py.

    What is assumed of the arithmetic stands in [arithmetic]; Binary.v proves it of IEEE 754's binary formats, rounded to
    nearest. It is where hardware enters, and it is named there: no flush to zero, no TF32, products rounded once or fused. *)

From Coq Require Import Bool Arith Lia Lra Psatz Permutation.
From Conv2Attn Require Import Sums.
Open Scope bool_scope.
Open Scope R_scope.

(** Which numbers there are, how others are rounded, the unit roundoff, and what underflow adds to a product; a sum of two
    numbers that there are does not underflow. *)
Record arithmetic := Arithmetic {
  is_number : R -> Prop;
  fl : R -> R;
  unit : R;
  tiny : R;
  unit_positive : 0 < unit;
  tiny_nonneg : 0 <= tiny;
  zero_is_number : is_number 0;
  fl_is_number : forall x, is_number (fl x);
  fl_of_number : forall x, is_number x -> fl x = x;
  fl_error : forall x, Rabs (fl x - x) <= unit * Rabs x + tiny;
  fl_sum_error : forall x y, is_number x -> is_number y -> Rabs (fl (x + y) - (x + y)) <= unit * Rabs (x + y)
}.

(** ** Trees *)

(** How a sum is computed: numbers, times numbers, added in some order. *)
Inductive tree := Leaf (x : R) | Scale (a : R) (t : tree) | Plus (l r : tree).

Fixpoint exact (t : tree) : R :=
  match t with Leaf x => x | Scale a t => a * exact t | Plus l r => exact l + exact r end.
Fixpoint absolute (t : tree) : R :=
  match t with Leaf x => Rabs x | Scale a t => Rabs a * absolute t | Plus l r => absolute l + absolute r end.

(** The terms that it adds up, each a coefficient times a number. *)
Fixpoint terms (t : tree) : list (R * R) :=
  match t with
  | Leaf x => [(1, x)]
  | Scale a t => map (fun p => (a * fst p, snd p)) (terms t)
  | Plus l r => terms l ++ terms r
  end.

Section Computation.
Context (A : arithmetic).
Local Notation u := (unit A).
Local Notation eta := (tiny A).
Local Notation rd := (fl A).

(** What a machine may find: every operation is rounded once; a product and a sum may be rounded together. *)
Inductive computes : tree -> R -> Prop :=
  | Computes_leaf x : is_number A x -> computes (Leaf x) x
  | Computes_scale a t y : computes t y -> computes (Scale a t) (rd (a * y))
  | Computes_plus l r y z : computes l y -> computes r z -> computes (Plus l r) (rd (y + z))
  | Computes_fused a t r y z : computes t y -> computes r z -> computes (Plus (Scale a t) r) (rd (a * y + z))
  | Computes_swapped l r y : computes (Plus r l) y -> computes (Plus l r) y.

Lemma computes_number t y : computes t y -> is_number A y.
Proof. induction 1; auto using fl_is_number. Qed.

Lemma rd_zero : rd 0 = 0.
Proof. apply fl_of_number, zero_is_number. Qed.

(** ** Zeros cost nothing *)

Definition is_zero (x : R) : bool := if Req_EM_T x 0 then true else false.

(** Trees that are zero because a factor is. *)
Fixpoint null (t : tree) : bool :=
  match t with
  | Leaf x => is_zero x
  | Scale a t => is_zero a || null t
  | Plus l r => null l && null r
  end.

Lemma is_zero_true x : is_zero x = true -> x = 0.
Proof. unfold is_zero. now destruct Req_EM_T. Qed.

Lemma is_zero_false x : is_zero x = false -> x <> 0.
Proof. unfold is_zero. now destruct Req_EM_T. Qed.

Lemma null_exact t : null t = true -> exact t = 0 /\ absolute t = 0.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; intros H.
  - apply is_zero_true in H. subst. rewrite Rabs_R0. auto.
  - apply Bool.orb_true_iff in H. destruct H as [H|H].
    + apply is_zero_true in H. subst. rewrite Rabs_R0. split; ring.
    + destruct (IH H) as [-> ->]. split; ring.
  - apply Bool.andb_true_iff in H. destruct H as [Hl Hr].
    destruct (IHl Hl) as [-> ->], (IHr Hr) as [-> ->]. split; ring.
Qed.

Lemma null_computes t y : computes t y -> null t = true -> y = 0.
Proof.
  induction 1 as [x Hx|a t y H IH|l r y z Hl IHl Hr IHr|a t r y z Ht IHt Hr IHr|l r y H IH]; simpl; intros Hn.
  - now apply is_zero_true.
  - apply Bool.orb_true_iff in Hn. destruct Hn as [Hn|Hn].
    + apply is_zero_true in Hn. subst. rewrite Rmult_0_l. apply rd_zero.
    + rewrite IH by assumption. rewrite Rmult_0_r. apply rd_zero.
  - apply Bool.andb_true_iff in Hn. destruct Hn as [H1 H2].
    rewrite IHl, IHr by assumption. rewrite Rplus_0_l. apply rd_zero.
  - apply Bool.andb_true_iff in Hn. destruct Hn as [H1 H2]. rewrite IHr by assumption. rewrite Rplus_0_r.
    apply Bool.orb_true_iff in H1. destruct H1 as [H1|H1].
    + apply is_zero_true in H1. subst. rewrite Rmult_0_l. apply rd_zero.
    + rewrite IHt by assumption. rewrite Rmult_0_r. apply rd_zero.
  - apply IH. simpl. now rewrite Bool.andb_comm.
Qed.

(** ** The error *)

(** How many roundings a term goes through at most: times 0 or 1, and plus 0, nothing is rounded. *)
Definition is_one (x : R) : bool := if Req_EM_T x 1 then true else false.

Fixpoint depth (t : tree) : nat :=
  match t with
  | Leaf _ => 0
  | Scale a t => if is_zero a || null t then 0 else if is_one a then depth t else S (depth t)
  | Plus l r =>
      if null l then if null r then 0 else depth r
      else if null r then depth l else S (Nat.max (depth l) (depth r))
  end.

(** How many products are rounded, and may underflow. *)
Fixpoint products (t : tree) : nat :=
  match t with
  | Leaf _ => 0
  | Scale a t => if is_zero a || null t then 0 else if is_one a then products t else 1
  | Plus l r => products l + products r
  end.

(** Factors other than 0 and 1 stand at most once above a number: it is a weight's, and probabilities are 0 and 1. *)
Fixpoint plain (t : tree) : Prop :=
  match t with
  | Leaf _ => True
  | Scale a t => (a = 0 \/ a = 1) /\ plain t
  | Plus l r => plain l /\ plain r
  end.
Fixpoint single (t : tree) : Prop :=
  match t with
  | Leaf _ => True
  | Scale a t => if is_zero a || is_one a then single t else plain t
  | Plus l r => single l /\ single r
  end.

Lemma plain_products t : plain t -> products t = 0%nat.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; [reflexivity| |].
  - intros [Ha Ht]. unfold is_zero, is_one. destruct (Req_EM_T a 0); [reflexivity|].
    destruct (null t); [reflexivity|]. destruct (Req_EM_T a 1); [now apply IH|tauto].
  - intros [Hl Hr]. now rewrite IHl, IHr.
Qed.

Lemma null_products t : null t = true -> products t = 0%nat.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; intros H; [reflexivity| |].
  - now rewrite H.
  - apply Bool.andb_true_iff in H. destruct H. now rewrite IHl, IHr.
Qed.

Lemma absolute_nonneg t : 0 <= absolute t.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; [apply Rabs_pos| |lra].
  apply Rmult_le_pos; [apply Rabs_pos|assumption].
Qed.

Lemma exact_absolute t : Rabs (exact t) <= absolute t.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; [lra| |].
  - rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|assumption].
  - eapply Rle_trans; [apply Rabs_triang|lra].
Qed.

Definition error_of (n : nat) (a : R) (p : nat) : R := ((1 + u) ^ n - 1) * a + (1 + u) ^ n * INR p * eta.

Lemma power_at_least_1 n : 1 <= (1 + u) ^ n.
Proof. pose proof (unit_positive A). apply pow_R1_Rle. lra. Qed.

Lemma power_grows n m : (n <= m)%nat -> (1 + u) ^ n <= (1 + u) ^ m.
Proof. intros H. pose proof (unit_positive A). apply Rle_pow; [lra|assumption]. Qed.

Lemma error_grows n m a p : (n <= m)%nat -> 0 <= a -> error_of n a p <= error_of m a p.
Proof.
  intros H Ha. pose proof (power_grows n m H). pose proof (tiny_nonneg A). pose proof (pos_INR p). unfold error_of.
  apply Rplus_le_compat; [apply Rmult_le_compat_r; lra|].
  rewrite !Rmult_assoc. apply Rmult_le_compat_r; [now apply Rmult_le_pos|assumption].
Qed.

Lemma error_nonneg n a p : 0 <= a -> 0 <= error_of n a p.
Proof.
  intros Ha. pose proof (power_at_least_1 n). pose proof (tiny_nonneg A). pose proof (pos_INR p). unfold error_of.
  apply Rplus_le_le_0_compat; repeat apply Rmult_le_pos; lra.
Qed.

(** One more rounding of something that is off by E. *)
Lemma one_more_rounding n a p x y e :
  Rabs (y - x) <= u * Rabs x + e -> forall z, Rabs (x - z) <= error_of n a p -> Rabs z <= a -> 0 <= a ->
  Rabs (y - z) <= (1 + u) * error_of n a p + u * a + e.
Proof.
  intros Hy z Hx Hz Ha. pose proof (unit_positive A).
  assert (Rabs x <= error_of n a p + a).
  { replace x with ((x - z) + z) by ring. eapply Rle_trans; [apply Rabs_triang|lra]. }
  replace (y - z) with ((y - x) + (x - z)) by ring. eapply Rle_trans; [apply Rabs_triang|].
  assert (u * Rabs x <= u * (error_of n a p + a)) by (apply Rmult_le_compat_l; lra). lra.
Qed.

Lemma error_step n a p : (1 + u) * error_of n a p + u * a = error_of (S n) a p.
Proof. unfold error_of. simpl. ring. Qed.

Lemma error_sum n a b p q : error_of n a p + error_of n b q = error_of n (a + b) (p + q).
Proof. unfold error_of. rewrite plus_INR. ring. Qed.

(** A product that is rounded, or fused into a sum: what it is off by before rounding. *)
Lemma product_error a t y :
  Rabs (y - exact t) <= error_of (depth t) (absolute t) 0 ->
  Rabs (a * y - a * exact t) <= error_of (depth t) (Rabs a * absolute t) 0.
Proof.
  intros H. replace (a * y - a * exact t) with (a * (y - exact t)) by ring. rewrite Rabs_mult.
  unfold error_of in *. simpl INR in *.
  apply Rle_trans with (Rabs a * (((1 + u) ^ depth t - 1) * absolute t + (1 + u) ^ depth t * 0 * eta)).
  - apply Rmult_le_compat_l; [apply Rabs_pos|assumption].
  - right. ring.
Qed.

(** A sum of two computed trees, rounded once. *)
Lemma sum_error l r y z :
  computes l y -> computes r z ->
  Rabs (y - exact l) <= error_of (depth l) (absolute l) (products l) ->
  Rabs (z - exact r) <= error_of (depth r) (absolute r) (products r) ->
  Rabs (fl A (y + z) - (exact l + exact r))
    <= error_of (S (Nat.max (depth l) (depth r))) (absolute l + absolute r) (products l + products r).
Proof.
  intros Hl Hr El Er. rewrite <- error_step.
  apply Rle_trans with ((1 + u) * error_of (Nat.max (depth l) (depth r)) (absolute l + absolute r)
    (products l + products r) + u * (absolute l + absolute r) + 0); [|right; ring].
  apply (one_more_rounding _ _ _ (y + z)).
  - rewrite Rplus_0_r. apply fl_sum_error; [now apply computes_number with l|now apply computes_number with r].
  - replace (y + z - (exact l + exact r)) with ((y - exact l) + (z - exact r)) by ring.
    eapply Rle_trans; [apply Rabs_triang|]. rewrite <- error_sum. apply Rplus_le_compat.
    + eapply Rle_trans; [exact El|]. apply error_grows; [apply Nat.le_max_l|apply absolute_nonneg].
    + eapply Rle_trans; [exact Er|]. apply error_grows; [apply Nat.le_max_r|apply absolute_nonneg].
  - exact (exact_absolute (Plus l r)).
  - exact (absolute_nonneg (Plus l r)).
Qed.

Lemma depth_swapped l r : depth (Plus r l) = depth (Plus l r).
Proof. simpl. destruct (null l), (null r); try reflexivity. now rewrite Nat.max_comm. Qed.

Theorem tree_error t y :
  computes t y -> single t -> Rabs (y - exact t) <= error_of (depth t) (absolute t) (products t).
Proof.
  pose proof (unit_positive A) as Hu. pose proof (tiny_nonneg A) as Heta.
  assert (scaled : forall a t y, computes t y ->
    (single t -> Rabs (y - exact t) <= error_of (depth t) (absolute t) (products t)) -> single (Scale a t) ->
    null (Scale a t) = false -> a <> 1 ->
    Rabs (a * y - a * exact t) <= error_of (depth t) (Rabs a * absolute t) 0 /\ products (Scale a t) = 1%nat
    /\ depth (Scale a t) = S (depth t)).
  { intros a s y' Hc IH Hs Hn Ha1. simpl in Hs, Hn. apply Bool.orb_false_iff in Hn. destruct Hn as [Ha Hn].
    assert (E1 : is_one a = false) by (unfold is_one; now destruct Req_EM_T).
    rewrite Ha, E1 in Hs. simpl in Hs. simpl depth. simpl products. rewrite Ha, Hn, E1. simpl.
    repeat split; try reflexivity. apply product_error. rewrite <- (plain_products s Hs). apply IH.
    clear - Hs. induction s; simpl in *; auto.
    - destruct Hs. destruct (_ || _)%bool; auto.
    - destruct Hs; auto. }
  induction 1 as [x Hx|a t y H IH|l r y z Hl IHl Hr IHr|a t r y z Ht IHt Hr IHr|l r y H IH]; intros Hs.
  - simpl. replace (x - x) with 0 by ring. rewrite Rabs_R0. apply error_nonneg, Rabs_pos.
  - destruct (null (Scale a t)) eqn:Hn.
    { destruct (null_exact _ Hn) as [-> _]. rewrite (null_computes (Scale a t) _ (Computes_scale a t y H) Hn).
      replace (0 - 0) with 0 by ring. rewrite Rabs_R0. apply error_nonneg, absolute_nonneg. }
    destruct (Req_EM_T a 1) as [->|Ha1].
    { rewrite Rmult_1_l, fl_of_number by now apply computes_number with t.
      simpl in Hs, Hn |- *. unfold is_zero, is_one in Hs, Hn |- *.
      destruct (Req_EM_T 1 0); [lra|]. destruct (Req_EM_T 1 1); [|congruence]. simpl in Hs, Hn |- *.
      rewrite Hn, Rabs_R1, !Rmult_1_l. now apply IH. }
    destruct (scaled a t y H IH Hs Hn Ha1) as (Herr & Hp & Hd). rewrite Hp, Hd. simpl exact. simpl absolute.
    eapply Rle_trans.
    { apply (one_more_rounding (depth t) (Rabs a * absolute t) 0 (a * y) _ eta (fl_error A (a * y)) _ Herr).
      - rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|apply exact_absolute].
      - apply Rmult_le_pos; [apply Rabs_pos|apply absolute_nonneg]. }
    rewrite error_step. unfold error_of. simpl INR. pose proof (power_at_least_1 (S (depth t))).
    assert (1 * eta <= (1 + u) ^ S (depth t) * eta) by (apply Rmult_le_compat_r; lra). lra.
  - destruct (null (Plus l r)) eqn:Hnull.
    { destruct (null_exact _ Hnull) as [-> _]. rewrite (null_computes _ _ (Computes_plus l r y z Hl Hr) Hnull).
      replace (0 - 0) with 0 by ring. rewrite Rabs_R0. apply error_nonneg, absolute_nonneg. }
    destruct Hs as [Hsl Hsr]. specialize (IHl Hsl). specialize (IHr Hsr). simpl in Hnull |- *.
    destruct (null l) eqn:Hnl.
    { destruct (null_exact _ Hnl) as [-> ->]. rewrite (null_computes l y Hl Hnl), !Rplus_0_l, (null_products l Hnl).
      rewrite fl_of_number by now apply computes_number with r. simpl in Hnull |- *. now rewrite Hnull. }
    destruct (null r) eqn:Hnr.
    { destruct (null_exact _ Hnr) as [-> ->]. rewrite (null_computes r z Hr Hnr), !Rplus_0_r, (null_products r Hnr).
      rewrite fl_of_number by now apply computes_number with l. now rewrite Nat.add_0_r. }
    now apply sum_error.
  - destruct (null (Plus (Scale a t) r)) eqn:Hnull.
    { destruct (null_exact _ Hnull) as [-> _]. rewrite (null_computes _ _ (Computes_fused a t r y z Ht Hr) Hnull).
      replace (0 - 0) with 0 by ring. rewrite Rabs_R0. apply error_nonneg, absolute_nonneg. }
    destruct Hs as [Hsl Hsr]. specialize (IHr Hsr).
    destruct (null (Scale a t)) eqn:Hn.
    { (** nothing is added *)
      assert (E : a * y = 0).
      { simpl in Hn. apply Bool.orb_true_iff in Hn. destruct Hn as [Hn|Hn].
        - apply is_zero_true in Hn. subst. ring.
        - rewrite (null_computes t y Ht Hn). ring. }
      rewrite E, Rplus_0_l, fl_of_number by now apply computes_number with r.
      simpl depth. simpl in Hn. rewrite Hn. destruct (null_exact (Scale a t) Hn) as [E1 E2]. simpl exact. simpl absolute.
      simpl in E1, E2. rewrite E1, E2, !Rplus_0_l. simpl products. rewrite Hn. simpl.
      simpl in Hnull. rewrite Hn in Hnull. simpl in Hnull. now rewrite Hnull. }
    destruct (Req_EM_T a 1) as [->|Ha1].
    { (** times 1 is nothing: a sum *)
      rewrite Rmult_1_l. assert (Hst : single t).
      { simpl in Hsl. unfold is_zero, is_one in Hsl. destruct (Req_EM_T 1 0); [lra|].
        destruct (Req_EM_T 1 1); [assumption|congruence]. }
      specialize (IHt Hst). pose proof Hn as Hn'. simpl in Hn'. unfold is_zero in Hn'. destruct (Req_EM_T 1 0); [lra|].
      simpl in Hn'. assert (Hd : depth (Scale 1 t) = depth t).
      { simpl. unfold is_zero, is_one. destruct (Req_EM_T 1 0); [lra|]. rewrite Hn'. simpl.
        destruct (Req_EM_T 1 1); [reflexivity|congruence]. }
      assert (Hp : products (Scale 1 t) = products t).
      { simpl. unfold is_zero, is_one. destruct (Req_EM_T 1 0); [lra|]. rewrite Hn'. simpl.
        destruct (Req_EM_T 1 1); [reflexivity|congruence]. }
      change (depth (Plus (Scale 1 t) r)) with (if null (Scale 1 t) then if null r then 0%nat else depth r
        else if null r then depth (Scale 1 t) else S (Nat.max (depth (Scale 1 t)) (depth r))).
      change (products (Plus (Scale 1 t) r)) with (products (Scale 1 t) + products r)%nat.
      rewrite Hn, Hd, Hp. simpl exact. simpl absolute. rewrite Rabs_R1, !Rmult_1_l.
      destruct (null r) eqn:Hnr.
      { destruct (null_exact _ Hnr) as [-> ->]. rewrite (null_computes r z Hr Hnr), !Rplus_0_r, (null_products r Hnr).
        rewrite fl_of_number by now apply computes_number with t. now rewrite Nat.add_0_r. }
      now apply sum_error. }
    destruct (scaled a t y Ht IHt Hsl Hn Ha1) as (Herr & Hp & Hd).
    change (depth (Plus (Scale a t) r)) with (if null (Scale a t) then if null r then 0%nat else depth r
      else if null r then depth (Scale a t) else S (Nat.max (depth (Scale a t)) (depth r))).
    change (products (Plus (Scale a t) r)) with (products (Scale a t) + products r)%nat.
    rewrite Hn, Hd, Hp. change (exact (Plus (Scale a t) r)) with (a * exact t + exact r).
    change (absolute (Plus (Scale a t) r)) with (Rabs a * absolute t + absolute r).
    assert (Hat : 0 <= Rabs a * absolute t) by (apply Rmult_le_pos; [apply Rabs_pos|apply absolute_nonneg]).
    assert (Hae : Rabs (a * exact t) <= Rabs a * absolute t).
    { rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|apply exact_absolute]. }
    (** the product and the sum are rounded together: at most as if the product had been rounded first *)
    set (n := if null r then depth t else Nat.max (S (depth t)) (depth r)).
    apply Rle_trans with ((1 + u) * error_of n (Rabs a * absolute t + absolute r) (products r)
      + u * (Rabs a * absolute t + absolute r) + eta).
    + apply (one_more_rounding _ _ _ (a * y + z)); [apply fl_error| | |].
      * replace (a * y + z - (a * exact t + exact r)) with ((a * y - a * exact t) + (z - exact r)) by ring.
        eapply Rle_trans; [apply Rabs_triang|].
        replace (error_of n (Rabs a * absolute t + absolute r) (products r))
          with (error_of n (Rabs a * absolute t) 0 + error_of n (absolute r) (products r)) by (rewrite error_sum; reflexivity).
        apply Rplus_le_compat.
        -- eapply Rle_trans; [exact Herr|]. apply error_grows; [|assumption]. unfold n. destruct (null r); lia.
        -- destruct (null r) eqn:Hnr.
           ++ rewrite (null_computes r z Hr Hnr). destruct (null_exact _ Hnr) as [-> ->].
              replace (0 - 0) with 0 by ring. rewrite Rabs_R0. apply error_nonneg. lra.
           ++ eapply Rle_trans; [exact IHr|]. apply error_grows; [unfold n; lia|apply absolute_nonneg].
      * eapply Rle_trans; [apply Rabs_triang|]. pose proof (exact_absolute r). lra.
      * pose proof (absolute_nonneg r). lra.
    + rewrite error_step. unfold n. set (d := if null r then S (depth t) else S (Nat.max (S (depth t)) (depth r))).
      replace (S (if null r then depth t else Nat.max (S (depth t)) (depth r))) with d
        by (unfold d; destruct (null r); reflexivity).
      unfold error_of. rewrite plus_INR. simpl INR at 2. pose proof (power_at_least_1 d).
      assert (1 * eta <= (1 + u) ^ d * eta) by (apply Rmult_le_compat_r; lra). lra.
  - destruct Hs as [Hsl Hsr]. rewrite <- depth_swapped. simpl exact. simpl absolute. simpl products.
    rewrite (Rplus_comm (exact l)), (Rplus_comm (absolute l)), (Nat.add_comm (products l)). apply IH. now split.
Qed.

End Computation.
