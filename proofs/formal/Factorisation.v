(** * The smoothing factorisation: Attention_alpha(X) = Conv_W(S_alpha X)

    Exact for every real alpha, the same for all heads. Beside proofs/claims/computing/factorisation.py (claim smoothing-factorisation)
    and proofs/claims/computing/separability.py (claim separable-softmax); the code is convert/engines/factored.py. *)

From Coq Require Import ZArith Lia Lra Psatz.
From Conv2Attn Require Import Sums Encoding Softmax Grid Convolution Attention Construction Theorem1.

(** The softmax of a row term plus a column term is an outer product. *)
Theorem separable_softmax H Wd (a c : Z -> R) (k : pixel) :
  In k (grid H Wd) ->
  softmax (grid H Wd) (fun k => a (fst k) + c (snd k)) k = softmax (range H) a (fst k) * softmax (range Wd) c (snd k).
Proof.
  intros Hk. apply in_grid in Hk. destruct Hk as [H1 H2]. apply in_range in H1. apply in_range in H2.
  pose proof (partition_positive (range H) a (fst k) H1) as Hrow.
  pose proof (partition_positive (range Wd) c (snd k) H2) as Hcolumn.
  unfold softmax, grid, pixel. rewrite sum_pairs.
  rewrite (sum_ext (range H) _ (fun x => Sum y in range Wd, exp (a x) * exp (c y))).
  2: { intros x _. apply sum_ext; intros y _. apply exp_plus. }
  rewrite sum_product, exp_plus. field. lra.
Qed.

(** S[t, k] = softmax_k(-alpha (k - t)^2) along an axis of n pixels. *)
Definition smoothing (n : nat) (alpha : R) (t : Z) : Z -> R :=
  softmax (range n) (fun k => - alpha * IZR (k - t) ^ 2).

(** S_alpha X with S_alpha = S_row (x) S_col: along the columns of each row, then along the rows. *)
Definition smooth (H Wd : nat) (alpha : R) (X : image) : image := fun t c =>
  Sum a in range H, smoothing H alpha (fst t) a * Sum e in range Wd, smoothing Wd alpha (snd t) e * X (a, e) c.

(** Smoothing leaves a constant image as it is. *)
Example smooth_constant alpha : smooth 2 3 alpha (fun _ _ => 7) (1%Z, 0%Z) 0%nat = 7.
Proof.
  unfold smooth. cbn [fst snd].
  rewrite (sum_ext (range 2) _ (fun a => smoothing 2 alpha 1 a * 7)).
  - rewrite sum_scale_r. unfold smoothing. rewrite (softmax_total (range 2) _ 0%Z) by (simpl; auto). ring.
  - intros a _. rewrite sum_scale_r. unfold smoothing at 2.
    rewrite (softmax_total (range 3) _ 0%Z) by (simpl; auto). ring.
Qed.

Theorem smoothing_factorisation g W b alpha H Wd X i j o :
  (o < C_out g)%nat ->
  mhsa (attention_of_conv g W b (fun _ => alpha)) (grid H Wd) X (query g i j) o
  = conv g W b (smooth H Wd alpha X) i j o.
Proof.
  intros Ho. unfold attention_of_conv. rewrite positional_attention_output, conv_by_heads by assumption.
  f_equal. apply sum_ext; intros h _. apply sum_ext; intros c _. f_equal.
  set (t := add (query g i j) (center g h)). unfold smooth.
  transitivity (Sum k in grid H Wd,
    smoothing H alpha (fst t) (fst k) * (smoothing Wd alpha (snd t) (snd k) * X k (channel g o c))).
  - apply sum_ext; intros k Hk. rewrite <- Rmult_assoc. f_equal. unfold smoothing.
    rewrite <- (separable_softmax H Wd _ _ k Hk).
    etransitivity; [|apply (softmax_shift _ _ (alpha * norm2 (center g h))); assumption].
    apply softmax_ext; [assumption|]. intros l _. rewrite quadratic_score. fold t.
    unfold norm2, sub; simpl fst; simpl snd. ring.
  - unfold grid, pixel. rewrite sum_pairs. apply sum_ext; intros a _. now rewrite <- sum_scale.
Qed.
