(** * tau between two fractions

    What a program can evaluate: for a rational q, two rational numbers with tau between them. Beside proofs/claims/certificate/tail.py
    (claim tail-bound). proofs/formal/coq.py restates them, proofs/formal/coq.py has Coq evaluate these and compares, and the
    tests hold [tail_fraction] of convert/certificate/layer.py against them. *)

From Coq Require Import QArith Qreals Lia Lra Psatz.
From Conv2Attn Require Import Sums Theta.
Open Scope R_scope.

(** ** In real numbers *)

(** The series cut after n = N, and what is left at most: 2 (q^((N+1)^2) + ...) <= 2 q^((N+1)^2) / (1 - q). *)
Definition theta_upper (q : R) (N : nat) : R := theta_partial q N + 2 * q ^ (S N * S N) / (1 - q).

Lemma theta_upper_decreases q N : 0 <= q < 1 -> theta_upper q (S N) <= theta_upper q N.
Proof.
  intros Hq. unfold theta_upper, theta_partial. rewrite seq_S, sum_app. cbn [sum_over plus].
  assert (H : q ^ (S (S N) * S (S N)) <= q * q ^ (S N * S N)).
  { change (q * q ^ (S N * S N)) with (q ^ S (S N * S N)). apply power_le; [lra|nia]. }
  assert (0 <= q ^ (S N * S N)) by (apply pow_le; lra). set (p := q ^ (S N * S N)) in *.
  enough (2 * q ^ (S (S N) * S (S N)) / (1 - q) <= 2 * (q * p) / (1 - q)) as H'.
  { replace (2 * p / (1 - q)) with (2 * p + 2 * (q * p) / (1 - q)) by (field; lra). lra. }
  apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat|]; lra.
Qed.

Lemma theta3_le_upper q N : 0 <= q < 1 -> theta3 q <= theta_upper q N.
Proof.
  intros Hq. assert (Hall : forall M, theta_partial q (N + M) <= theta_upper q N).
  { intros M. apply Rle_trans with (theta_upper q (N + M)).
    - unfold theta_upper. enough (0 <= 2 * q ^ (S (N + M) * S (N + M)) / (1 - q)) by lra.
      apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat; lra]. pose proof (pow_le q (S (N + M) * S (N + M))). lra.
    - induction M as [|M IH]; [rewrite Nat.add_0_r; lra|].
      rewrite Nat.add_succ_r. eapply Rle_trans; [now apply theta_upper_decreases|exact IH]. }
  destruct (Rle_dec (theta3 q) (theta_upper q N)) as [|Hn]; [assumption|exfalso].
  destruct (theta3_limit q Hq (theta3 q - theta_upper q N)) as [M HM]; [lra|].
  specialize (HM (N + M)%nat ltac:(lia)). specialize (Hall M). unfold R_dist in HM.
  apply Rabs_def2 in HM. lra.
Qed.

(** ** In rational numbers *)

Open Scope Q_scope.

Fixpoint power (q : Q) (n : nat) : Q := match n with O => 1 | S m => q * power q m end.
Fixpoint sum_Q (l : list nat) (f : nat -> Q) : Q := match l with [] => 0 | n :: rest => f n + sum_Q rest f end.

Definition theta_partial_Q (q : Q) (N : nat) : Q := 1 + 2 * sum_Q (seq 1 N) (fun n => power q (n * n)).
Definition theta_upper_Q (q : Q) (N : nat) : Q := theta_partial_Q q N + 2 * power q (S N * S N) / (1 - q).

Definition tau_lower (q : Q) (N : nat) : Q := Qred (1 - / (theta_partial_Q q N * theta_partial_Q q N)).
Definition tau_upper (q : Q) (N : nat) : Q := Qred (1 - / (theta_upper_Q q N * theta_upper_Q q N)).

Example tau_at_one_tenth : (tau_lower (1 # 10) 1, tau_upper (1 # 10) 1) = (11 # 36, 8920801 # 29170801).
Proof. vm_compute. reflexivity. Qed.

Open Scope R_scope.

Lemma Q2R_power q n : Q2R (power q n) = Q2R q ^ n.
Proof. induction n as [|n IH]; simpl; [unfold Q2R; simpl; lra|]. now rewrite Q2R_mult, IH. Qed.

Lemma Q2R_integer n : Q2R (n # 1) = IZR n.
Proof. unfold Q2R; simpl. lra. Qed.

Lemma Q2R_theta_partial q N : Q2R (theta_partial_Q q N) = theta_partial (Q2R q) N.
Proof.
  unfold theta_partial_Q, theta_partial. rewrite Q2R_plus, Q2R_mult, !Q2R_integer. f_equal. f_equal.
  induction (seq 1 N) as [|n l IH]; [apply Q2R_integer|]. simpl. now rewrite Q2R_plus, Q2R_power, IH.
Qed.

Lemma Q2R_theta_upper q N : Q2R q < 1 -> Q2R (theta_upper_Q q N) = theta_upper (Q2R q) N.
Proof.
  intros Hq. unfold theta_upper_Q, theta_upper.
  assert (Hne : ~ (1 - q == 0)%Q).
  { intros E. apply Qeq_eqR in E. rewrite Q2R_minus, !Q2R_integer in E. lra. }
  rewrite Q2R_plus, Q2R_div, Q2R_mult, Q2R_minus, Q2R_theta_partial, Q2R_power, !Q2R_integer by assumption. reflexivity.
Qed.

Lemma Q2R_one_minus_inverse_square t : 1 <= Q2R t -> Q2R (Qred (1 - / (t * t))) = 1 - / Q2R t ^ 2.
Proof.
  intros Ht. assert (Hne : ~ (t * t == 0)%Q).
  { intros E. apply Qeq_eqR in E. rewrite Q2R_mult, Q2R_integer in E. nra. }
  rewrite (Qeq_eqR _ _ (Qred_correct _)), Q2R_minus, Q2R_inv, Q2R_mult, Q2R_integer by assumption.
  simpl. now rewrite Rmult_1_r.
Qed.

(** For every rational q = exp(-alpha), tau lies between the two fractions, however few terms are taken. *)
Theorem tau_enclosed alpha q N :
  0 < alpha -> decay alpha = Q2R q -> Q2R (tau_lower q N) <= tau alpha <= Q2R (tau_upper q N).
Proof.
  intros Ha Hq. pose proof (decay_range alpha Ha) as Hrange. rewrite Hq in Hrange. assert (0 <= Q2R q < 1) by lra.
  assert (H1 : 1 <= theta_partial (Q2R q) N).
  { unfold theta_partial. enough (0 <= Sum n in seq 1 N, Q2R q ^ (n * n)) by lra.
    apply sum_nonneg; intros; apply pow_le; lra. }
  pose proof (theta_partial_le_theta3 (Q2R q) N ltac:(lra)). pose proof (theta3_le_upper (Q2R q) N ltac:(lra)).
  unfold tau, tau_lower, tau_upper. rewrite Hq.
  rewrite !Q2R_one_minus_inverse_square; rewrite ?Q2R_theta_partial, ?Q2R_theta_upper by lra; try lra.
  enough (/ theta3 (Q2R q) ^ 2 <= / theta_partial (Q2R q) N ^ 2 /\
    / theta_upper (Q2R q) N ^ 2 <= / theta3 (Q2R q) ^ 2) by lra.
  split; apply Rinv_le_contravar; try (apply pow_incr; lra); apply pow_lt; lra.
Qed.
