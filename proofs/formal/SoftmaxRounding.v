(** * The error of computed attention probabilities, in the soft regime too

    Exponentials that err by e_k each, their sum by t, the quotients by d_k. Beside
    proofs/claims/certificate/rounding.py (claim softmax-rounding). *)

From Coq Require Import Lra Psatz.
From Conv2Attn Require Import Sums.

Lemma between x y : Rabs x <= y -> - y <= x <= y.
Proof. unfold Rabs. destruct (Rcase_abs x); lra. Qed.

(** One quotient, with S the mean of the e_k: relative to p it errs by at most what the errors upwards come to. *)
Lemma quotient_error e d t S E T u :
  Rabs S <= E -> E < 1 -> Rabs t <= T -> T < 1 -> Rabs d <= u -> u <= 1 ->
  Rabs ((1 + e) * (1 + d) / ((1 + S) * (1 + t)) - 1) <= (1 + Rabs e) * (1 + u) / ((1 - E) * (1 - T)) - 1.
Proof.
  intros HS HE Ht HT Hd Hu.
  apply between in HS, Ht, Hd. pose proof (Rabs_pos e) as Ha. pose proof (Rle_abs e) as He.
  pose proof (Rle_abs (- e)) as He'. rewrite Rabs_Ropp in He'.
  set (a := (1 + Rabs e) * (1 + u)). set (z := (1 + e) * (1 + d)).
  set (L := (1 - E) * (1 - T)). set (H := (1 + E) * (1 + T)). set (D := (1 + S) * (1 + t)).
  assert (HE0 : 0 <= E < 1) by lra. assert (HT0 : 0 <= T < 1) by lra.
  assert (HL : 0 < L <= 1) by (unfold L; nra). assert (HH : 1 <= H) by (unfold H; nra).
  assert (HD : L <= D <= H).
  { unfold L, D, H. split; apply Rmult_le_compat; lra. }
  assert (HLH : L * H <= 1).
  { replace (L * H) with ((1 - E * E) * (1 - T * T)) by (unfold L, H; ring).
    assert (0 <= E * E <= 1) by nra. assert (0 <= T * T <= 1) by nra. nra. }
  assert (Hz : z <= a).
  { unfold z, a. apply Rle_trans with ((1 + Rabs e) * (1 + d)); [apply Rmult_le_compat_r|apply Rmult_le_compat_l]; lra. }
  assert (Hsum : 2 <= a + z).
  { unfold a, z. destruct (Rle_dec (Rabs e) 1); nra. }
  assert (Ha0 : 1 <= a) by (unfold a; nra).
  assert (E1 : H <= / L).
  { apply Rmult_le_reg_l with L; [lra|]. rewrite Rinv_r by lra. lra. }
  assert (E2 : / H <= / D <= / L).
  { split; apply Rinv_le_contravar; lra. }
  assert (E3 : 2 - H <= / H).
  { apply Rmult_le_reg_l with H; [lra|]. rewrite Rinv_r by lra. nra. }
  assert (E4 : 0 < / H) by (apply Rinv_0_lt_compat; lra).
  unfold Rdiv. apply Rabs_le. split.
  - destruct (Rle_dec 0 z).
    + assert (z * (2 - H) <= z * / D) by (apply Rmult_le_compat_l; lra).
      assert (a * H <= a * / L) by (apply Rmult_le_compat_l; lra). nra.
    + assert (z * / L <= z * / D) by nra. assert (2 * 1 <= (a + z) * / L) by (apply Rmult_le_compat; lra). lra.
  - destruct (Rle_dec 0 z).
    + assert (z * / D <= a * / L) by (apply Rmult_le_compat; lra). lra.
    + assert (z * / D <= 0) by nra. assert (0 <= a * / L) by nra. lra.
Qed.

Section Probabilities.
Context {K : Type}.
Variables (keys : list K) (w e d : K -> R) (t E T u : R).
Hypothesis Hw : 0 < Sum k in keys, w k.
Hypothesis Hpositive : forall k, In k keys -> 0 <= w k.

(** The probabilities: w_k = exp(s_k). *)
Let p k := w k / Sum l in keys, w l.

(** What is computed of them: exponentials, their sum, the quotient, each with its error. *)
Definition computed k := w k * (1 + e k) / ((Sum l in keys, w l * (1 + e l)) * (1 + t)) * (1 + d k).

(** sum_k |fl(p_k) - p_k| <= (1 + E)(1 + u) / ((1 - E)(1 - T)) - 1 *)
Theorem probabilities_error :
  Sum k in keys, p k * Rabs (e k) <= E -> E < 1 -> Rabs t <= T -> T < 1 -> (forall k, Rabs (d k) <= u) -> u <= 1 ->
  Sum k in keys, Rabs (computed k - p k) <= (1 + E) * (1 + u) / ((1 - E) * (1 - T)) - 1.
Proof.
  intros HE HE1 Ht HT Hd Hu. set (W := Sum l in keys, w l) in *. set (S := Sum k in keys, p k * e k).
  assert (Hp : forall k, In k keys -> 0 <= p k).
  { intros k Hk. unfold p. apply Rmult_le_pos; [now apply Hpositive|]. left. now apply Rinv_0_lt_compat. }
  assert (HS : Rabs S <= E).
  { eapply Rle_trans; [apply sum_abs|]. eapply Rle_trans; [|exact HE]. right. apply sum_ext. intros k Hk.
    rewrite Rabs_mult, (Rabs_pos_eq (p k)); auto. }
  assert (Htotal : Sum k in keys, p k = 1) by (unfold p, Rdiv; rewrite sum_scale_r; apply Rinv_r; unfold W in *; lra).
  assert (Hden : Sum l in keys, w l * (1 + e l) = W * (1 + S)).
  { unfold S. rewrite Rmult_plus_distr_l, Rmult_1_r, <- sum_scale. unfold W. rewrite <- sum_plus.
    apply sum_ext. intros k _. unfold p. fold W. field. lra. }
  assert (Hfactor : forall k, computed k = p k * ((1 + e k) * (1 + d k) / ((1 + S) * (1 + t)))).
  { intros k. unfold computed, p. fold W. rewrite Hden. apply between in HS, Ht. field. lra. }
  set (c := (1 + u) / ((1 - E) * (1 - T))).
  apply Rle_trans with (Sum k in keys, p k * ((1 + Rabs (e k)) * c - 1)).
  { apply sum_le. intros k Hk. rewrite Hfactor.
    replace (p k * ((1 + e k) * (1 + d k) / ((1 + S) * (1 + t))) - p k)
      with (p k * ((1 + e k) * (1 + d k) / ((1 + S) * (1 + t)) - 1)) by ring.
    rewrite Rabs_mult, (Rabs_pos_eq (p k)) by auto. apply Rmult_le_compat_l; [auto|].
    unfold c. replace ((1 + Rabs (e k)) * ((1 + u) / ((1 - E) * (1 - T))))
      with ((1 + Rabs (e k)) * (1 + u) / ((1 - E) * (1 - T))) by (unfold Rdiv; ring).
    now apply quotient_error. }
  assert (Hc : 0 <= c).
  { pose proof (Rabs_pos t). unfold c. assert (0 <= u) by (destruct keys as [|k l]; [simpl in Hw; unfold W in *; simpl in *; lra|]; pose proof (Rabs_pos (d k)); pose proof (Hd k); lra).
    apply Rmult_le_pos; [lra|]. left. apply Rinv_0_lt_compat. nra. }
  rewrite (sum_ext keys _ (fun k => (c - 1) * p k + c * (p k * Rabs (e k)))) by (intros; ring).
  rewrite sum_plus, !sum_scale, Htotal.
  replace ((1 + E) * (1 + u) / ((1 - E) * (1 - T)) - 1) with ((c - 1) * 1 + c * E) by (unfold c, Rdiv; ring).
  apply Rplus_le_compat_l. now apply Rmult_le_compat_l.
Qed.
End Probabilities.
