(** * The tail that does not depend on the image: tau = 1 - theta_3(q)^-2

    Beside proofs/claims/certificate/tail.py (claim tail-bound) and proofs/claims/sharper/encoding_dimension.py; the code is [tail_fraction] in
    convert/certificate/layer.py. *)

From Coq Require Import ZArith Lia Lra Psatz.
From Conv2Attn Require Import Sums Encoding.

(** ** theta_3(q) = sum over all integers n of q^(n^2) *)

(** The series up to n = N, the terms of n and -n taken together. *)
Definition theta_partial (q : R) (N : nat) : R := 1 + 2 * Sum n in seq 1 N, q ^ (n * n).

Lemma power_le q a b : 0 <= q <= 1 -> (a <= b)%nat -> q ^ b <= q ^ a.
Proof.
  intros Hq H. replace b with (a + (b - a))%nat by lia. rewrite pow_add.
  assert (0 <= q ^ a) by (apply pow_le; lra).
  assert (q ^ (b - a) <= 1) by (rewrite <- (pow1 (b - a)); apply pow_incr; lra). nra.
Qed.

(** n^2 >= n, and the geometric series. *)
Lemma theta_partial_bound q N : 0 <= q < 1 -> theta_partial q N <= (1 + q) / (1 - q).
Proof.
  intros Hq. unfold theta_partial.
  assert (Sum n in seq 1 N, q ^ n = (q - q ^ S N) / (1 - q)) as Hgeometric.
  { induction N as [|N IH]; [simpl; field; lra|].
    rewrite seq_S, sum_app, IH. simpl. field. lra. }
  assert (Sum n in seq 1 N, q ^ (n * n) <= Sum n in seq 1 N, q ^ n).
  { apply sum_le. intros n Hn. apply in_seq in Hn. apply power_le; [lra|nia]. }
  assert (0 <= q ^ S N) by (apply pow_le; lra).
  apply Rle_trans with (1 + 2 * ((q - q ^ S N) / (1 - q))); [lra|].
  apply Rmult_le_reg_r with (1 - q); [lra|].
  replace ((1 + 2 * ((q - q ^ S N) / (1 - q))) * (1 - q)) with (1 - q + 2 * (q - q ^ S N)) by (field; lra).
  replace ((1 + q) / (1 - q) * (1 - q)) with (1 + q) by (field; lra). lra.
Qed.

Lemma theta_partial_growing q : 0 <= q -> Un_growing (theta_partial q).
Proof.
  intros Hq N. unfold theta_partial. rewrite seq_S, sum_app. simpl sum_over at 3.
  assert (0 <= q ^ ((1 + N) * (1 + N))) by now apply pow_le. simpl in *. lra.
Qed.

Lemma theta_converges q : 0 <= q < 1 -> {limit : R | Un_cv (theta_partial q) limit}.
Proof.
  intros Hq. apply growing_cv; [apply theta_partial_growing; lra|].
  exists ((1 + q) / (1 - q)). intros y [N ->]. now apply theta_partial_bound.
Qed.

(** theta_3(q): the limit of the series, for 0 <= q < 1; elsewhere there is none, and 0 stands for it. *)
Definition theta3 (q : R) : R :=
  match Rle_dec 0 q, Rlt_dec q 1 with
  | left nonneg, left below_1 => proj1_sig (theta_converges q (conj nonneg below_1))
  | _, _ => 0
  end.

Lemma theta3_limit q : 0 <= q < 1 -> Un_cv (theta_partial q) (theta3 q).
Proof.
  intros Hq. unfold theta3. destruct (Rle_dec 0 q), (Rlt_dec q 1); try lra. apply proj2_sig.
Qed.

(** The same as the sum of a series, in the words of the standard library. *)
Lemma theta3_series q :
  0 <= q < 1 -> infinite_sum (fun n => match n with O => 1 | _ => 2 * q ^ (n * n) end) (theta3 q).
Proof.
  intros Hq eps Heps. destruct (theta3_limit q Hq eps Heps) as [N HN]. exists N. intros n Hn.
  enough (sum_f_R0 (fun n => match n with O => 1 | _ => 2 * q ^ (n * n) end) n = theta_partial q n) as ->; auto.
  clear. unfold theta_partial. induction n as [|n IH]; [simpl; ring|].
  rewrite tech5, IH, seq_S, sum_app. cbn [sum_over plus]. ring.
Qed.

Lemma theta_partial_le_theta3 q N : 0 <= q < 1 -> theta_partial q N <= theta3 q.
Proof.
  intros Hq. apply growing_ineq; [apply theta_partial_growing; lra|now apply theta3_limit].
Qed.

Lemma theta3_at_least_1 q : 0 <= q < 1 -> 1 <= theta3 q.
Proof.
  intros Hq. replace 1 with (theta_partial q 0); [now apply theta_partial_le_theta3|].
  unfold theta_partial; simpl; ring.
Qed.

Lemma theta3_bound q : 0 <= q < 1 -> theta3 q <= (1 + q) / (1 - q).
Proof.
  intros Hq. apply Rle_cv_lim with (Un := theta_partial q) (Vn := fun _ => (1 + q) / (1 - q)).
  - intros N. now apply theta_partial_bound.
  - now apply theta3_limit.
  - intros eps Heps. exists 0%nat. intros n _. unfold R_dist. rewrite Rminus_diag_eq, Rabs_R0 by reflexivity. lra.
Qed.

(** ** tau *)

(** q = exp(-alpha) *)
Definition decay (alpha : R) : R := exp (- alpha).

Lemma decay_range alpha : 0 < alpha -> 0 < decay alpha < 1.
Proof.
  intros Ha. unfold decay. split; [apply exp_pos|]. rewrite <- exp_0. apply exp_increasing. lra.
Qed.

(** tau(alpha) = 1 - theta_3(q)^-2, the certificate's constant. *)
Definition tau (alpha : R) : R := 1 - / theta3 (decay alpha) ^ 2.

(** 0 <= tau <= 4 q / (1 + q)^2 <= 4 q / (1 - q)^2; the last is the bound of the first draft of the theorem. *)
Theorem tau_bounds alpha :
  0 < alpha ->
  let q := decay alpha in
  0 <= tau alpha /\ tau alpha <= 4 * q / (1 + q) ^ 2 /\ 4 * q / (1 + q) ^ 2 <= 4 * q
  /\ 4 * q <= 4 * q / (1 - q) ^ 2.
Proof.
  intros Ha q. pose proof (decay_range alpha Ha) as Hq. fold q in Hq.
  assert (Hq' : 0 <= q < 1) by lra.
  pose proof (theta3_at_least_1 q Hq') as H1. pose proof (theta3_bound q Hq') as H2.
  unfold tau. fold q. repeat split.
  - enough (/ theta3 q ^ 2 <= 1) by lra. rewrite <- Rinv_1. apply Rinv_le_contravar; nra.
  - replace (4 * q / (1 + q) ^ 2) with (1 - / ((1 + q) / (1 - q)) ^ 2) by (field; lra).
    enough (/ ((1 + q) / (1 - q)) ^ 2 <= / theta3 q ^ 2) by lra.
    apply Rinv_le_contravar; [nra|]. apply pow_incr. lra.
  - apply Rmult_le_reg_r with ((1 + q) ^ 2); [nra|].
    replace (4 * q / (1 + q) ^ 2 * (1 + q) ^ 2) with (4 * q) by (field; lra). nra.
  - apply Rmult_le_reg_r with ((1 - q) ^ 2); [nra|].
    replace (4 * q / (1 - q) ^ 2 * (1 - q) ^ 2) with (4 * q) by (field; lra). nra.
Qed.

(** ** Sums over different integers are part of theta_3 *)

Lemma exp_multiple (n : nat) x : exp (INR n * x) = exp x ^ n.
Proof.
  induction n as [|n IH]; [simpl; rewrite Rmult_0_l; apply exp_0|].
  rewrite S_INR, Rmult_plus_distr_r, Rmult_1_l, exp_plus, IH. simpl. ring.
Qed.

(** exp(-alpha n^2) = q^(n^2) *)
Lemma exp_square alpha (n : Z) : exp (- alpha * IZR n ^ 2) = decay alpha ^ (Z.abs_nat n * Z.abs_nat n).
Proof.
  unfold decay. rewrite <- exp_multiple. f_equal.
  rewrite INR_IZR_INZ, Nat2Z.inj_mul, !Zabs2Nat.id_abs, mult_IZR, !abs_IZR.
  rewrite <- Rabs_mult, Rabs_right by nra. simpl. ring.
Qed.

(** The integers from -N to N. *)
Definition symmetric (N : nat) : list Z := 0%Z :: flat_map (fun n => [Z.of_nat n; (- Z.of_nat n)%Z]) (seq 1 N).

Lemma in_symmetric n N : (Z.abs_nat n <= N)%nat -> In n (symmetric N).
Proof.
  intros H. destruct (Z.eq_dec n 0) as [->|Hn]; [now left|]. right.
  apply in_flat_map. exists (Z.abs_nat n). split; [apply in_seq; lia|]. simpl. lia.
Qed.

Lemma sum_symmetric q N : Sum n in symmetric N, q ^ (Z.abs_nat n * Z.abs_nat n) = theta_partial q N.
Proof.
  unfold symmetric, theta_partial. simpl sum_over at 1. f_equal.
  induction N as [|N IH]; [simpl; ring|].
  rewrite seq_S, flat_map_app, !sum_app, IH. cbn [flat_map app sum_over plus].
  replace (Z.abs_nat (Z.of_nat (S N))) with (S N) by lia.
  replace (Z.abs_nat (- Z.of_nat (S N))) with (S N) by lia. ring.
Qed.

(** Any finite set of integers, whatever its size. *)
Lemma sum_integers_le_theta3 alpha (l : list Z) :
  0 < alpha -> NoDup l -> Sum n in l, exp (- alpha * IZR n ^ 2) <= theta3 (decay alpha).
Proof.
  intros Ha Hl. pose proof (decay_range alpha Ha) as Hq.
  set (N := list_max (map Z.abs_nat l)).
  apply Rle_trans with (theta_partial (decay alpha) N); [|apply theta_partial_le_theta3; lra].
  rewrite <- sum_symmetric, (sum_ext l _ _ (fun n _ => exp_square alpha n)).
  apply sum_incl; auto.
  - intros n Hn. apply in_symmetric. unfold N.
    pose proof (proj1 (list_max_le (map Z.abs_nat l) _) (le_n _)) as H. rewrite Forall_forall in H.
    apply H. now apply in_map.
  - intros n _. apply pow_le. lra.
Qed.
