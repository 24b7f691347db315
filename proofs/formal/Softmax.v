(** * Softmax over a finite set of keys

    Beside proofs/claims/theorem/encoding.py (claim softmax-shift), proofs/claims/theorem/one_hot.py (claim one-hot-limit) and
    proofs/claims/certificate/tail.py (claim error-bound). *)

From Coq Require Import Lra.
From Conv2Attn Require Import Sums.

(** softmax(s)_k = exp(s_k) / sum_l exp(s_l) over the keys *)
Definition softmax {K : Type} (keys : list K) (s : K -> R) (k : K) : R := exp (s k) / Sum l in keys, exp (s l).

Section Softmax.
  Context {K : Type}.
  Variable keys : list K.
  Implicit Types s : K -> R.

  Lemma partition_positive s k : In k keys -> 0 < Sum l in keys, exp (s l).
  Proof.
    intros Hk. apply Rlt_le_trans with (exp (s k)); [apply exp_pos|].
    apply (term_le_sum keys (fun l => exp (s l))); auto. intros; left; apply exp_pos.
  Qed.

  (** What a reader expects of probabilities: they are positive and add up to 1. *)
  Lemma softmax_positive s k : In k keys -> 0 < softmax keys s k.
  Proof.
    intros Hk. unfold softmax. apply Rdiv_lt_0_compat; [apply exp_pos|]. now apply partition_positive with k.
  Qed.

  Lemma softmax_total s k : In k keys -> Sum l in keys, softmax keys s l = 1.
  Proof.
    intros Hk. pose proof (partition_positive s k Hk). unfold softmax, Rdiv.
    rewrite sum_scale_r. field. lra.
  Qed.

  Lemma softmax_ext s s' k : In k keys -> (forall l, In l keys -> s l = s' l) -> softmax keys s k = softmax keys s' k.
  Proof.
    intros Hk H. unfold softmax. rewrite (H k Hk). f_equal.
    apply sum_ext; intros l Hl. now rewrite H.
  Qed.

  (** What all keys share changes nothing. *)
  Theorem softmax_shift s c k : In k keys -> softmax keys (fun l => s l + c) k = softmax keys s k.
  Proof.
    intros Hk. pose proof (partition_positive s k Hk). pose proof (exp_pos c). unfold softmax.
    rewrite (sum_ext keys _ (fun l => exp (s l) * exp c)) by (intros; apply exp_plus).
    rewrite sum_scale_r, exp_plus. field. lra.
  Qed.

  (** 1 / p_t is the sum of exp(-(how far key l is behind t)). *)
  Lemma softmax_inverse s t : In t keys -> softmax keys s t = / Sum l in keys, exp (s l - s t).
  Proof.
    intros Ht. pose proof (partition_positive s t Ht). pose proof (exp_pos (s t)). unfold softmax.
    rewrite (sum_ext keys (fun l => exp (s l - s t)) (fun l => exp (s l) * / exp (s t))).
    - rewrite sum_scale_r. field. lra.
    - intros l _. unfold Rminus. now rewrite exp_plus, exp_Ropp.
  Qed.

  (** Reading values with softmax instead of taking the target's: the error is at most osc times what misses it. *)
  Theorem softmax_read s (x : K -> R) t osc :
    In t keys -> (forall k, In k keys -> Rabs (x k - x t) <= osc) ->
    Rabs (Sum k in keys, softmax keys s k * x k - x t) <= (1 - softmax keys s t) * osc.
  Proof.
    intros Ht Hosc. destruct (in_split _ _ Ht) as (before & after & E).
    set (p := softmax keys s).
    assert (Htotal : Sum k in keys, p k = 1) by exact (softmax_total s t Ht).
    assert (Hp : forall k, In k keys -> 0 <= p k) by (intros; left; now apply softmax_positive).
    replace (Sum k in keys, p k * x k - x t) with (Sum k in keys, p k * (x k - x t)).
    2: { rewrite (sum_ext keys _ (fun k => p k * x k - p k * x t)) by (intros; ring).
         rewrite sum_minus, (sum_scale_r (x t)). rewrite Htotal. ring. }
    assert (Hothers : Sum k in before ++ after, p k = 1 - p t).
    { rewrite E, sum_app in Htotal. simpl in Htotal. rewrite sum_app. lra. }
    rewrite E, sum_app. simpl. rewrite Rminus_diag_eq, Rmult_0_r, Rplus_0_l, <- sum_app by reflexivity.
    rewrite <- Hothers, <- sum_scale_r.
    eapply Rle_trans; [apply sum_abs|]. apply sum_le. intros k Hk.
    assert (In k keys) by (rewrite E; apply in_app_or in Hk; apply in_or_app; simpl; tauto).
    rewrite Rabs_mult, (Rabs_right (p k)) by (apply Rle_ge; auto).
    apply Rmult_le_compat_l; auto.
  Qed.
End Softmax.

(** The tail on any finite key set: if all other keys are at least [gap] behind, what misses the target is at most
    (their number) exp(-gap). *)
Theorem softmax_tail {K} (s : K -> R) t gap (keys others : list K) :
  keys = t :: others -> (forall l, In l others -> s l <= s t - gap) ->
  1 - softmax keys s t <= INR (length others) * exp (- gap).
Proof.
  intros -> H. rewrite softmax_inverse by (simpl; auto). simpl sum_over.
  replace (s t - s t) with 0 by ring. rewrite exp_0.
  set (rest := Sum l in others, exp (s l - s t)).
  assert (0 <= rest) by (apply sum_nonneg; intros; left; apply exp_pos).
  assert (rest <= INR (length others) * exp (- gap)).
  { unfold rest. clear - H. induction others as [|a others IH]; [simpl; lra|].
    change (length (a :: others)) with (S (length others)). rewrite S_INR. simpl sum_over.
    assert (exp (s a - s t) <= exp (- gap)).
    { destruct (Rle_lt_or_eq_dec (s a) (s t - gap)) as [h|h]; [apply H; simpl; auto| |].
      - left. apply exp_increasing. lra.
      - right. f_equal. lra. }
    assert (Sum l in others, exp (s l - s t) <= INR (length others) * exp (- gap)).
    { apply IH. intros; apply H; simpl; auto. }
    lra. }
  apply Rle_trans with rest; [|assumption].
  apply Rmult_le_reg_r with (1 + rest); [lra|].
  unfold Rminus. rewrite Rmult_plus_distr_r, <- Ropp_mult_distr_l, Rinv_l by lra. nra.
Qed.

(** Two keys with scores 0 and ln 3: one gets a quarter of the attention, the other three quarters. *)
Example softmax_of_two : softmax [0%nat; 1%nat] (fun k => INR k * ln 3) 1%nat = 3 / 4.
Proof. unfold softmax; simpl. rewrite Rmult_0_l, Rmult_1_l, exp_0, exp_ln by lra. lra. Qed.
