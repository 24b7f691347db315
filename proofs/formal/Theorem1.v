(** * Theorem 1: self-attention computes convolution

    Quantitative, for every alpha > 0, and in the limit, for the layer of Construction.v: K1 K2 heads, D_p = 3 and
    D_h = D_out = C_out. The bound is what convert/certificate/layer.py takes for its exact-arithmetic part, unless that of the
    claim smoothed-kernel is smaller. Beside proofs/claims/certificate/tail.py (claim error-bound) and proofs/claims/theorem/assembly.py (claim
    head-assembly). *)

From Coq Require Import ZArith Lia Lra Psatz.
From Conv2Attn Require Import Sums Encoding Softmax Theta Grid Convolution Attention Construction.

Lemma sub_sub k q d : sub (sub k q) d = sub k (add q d).
Proof. unfold sub, add; simpl fst; simpl snd. f_equal; lia. Qed.

(** Head h scores key k by its distance from the target q + Delta_h. *)
Lemma quadratic_score alpha d q k :
  positional_score 3 relative_encoding (head_vector alpha d) q k
  = - alpha * norm2 (sub k (add q d)) + alpha * norm2 d.
Proof. unfold positional_score. now rewrite encoding_identity, sub_sub. Qed.

(** ** Quantitative *)

(** What the theorem needs of a convolution: positive strides. *)
Definition valid (g : geometry) : Prop := (0 < s1 g)%nat /\ (0 < s2 g)%nat.

(** sum_c osc_c sum_h tau(alpha_h) |W_h[o, c]|: how far output channel o can be off. *)
Definition tail_bound (g : geometry) (W : kernel) (alpha : nat -> R) (keys : list pixel) (X : image) (o : nat) : R :=
  Sum c in seq 0 (C_in_g g), osc keys X (channel g o c)
  * Sum h in seq 0 (K1 g * K2 g), tau (alpha h) * Rabs (W o c (head_row g h) (head_column g h)).

(** The multi-head self-attention layer with K1 K2 heads and D_p = 3 differs from the convolution by at most this: for
    every kernel, stride, dilation, number of groups, bias and alpha_h > 0, every image X on the padded grid of
    H x Wd pixels, and every output (i, j) of channel o. *)
Theorem theorem_1_per_head g W b alpha H Wd X i j o :
  valid g -> (forall h, (h < K1 g * K2 g)%nat -> 0 < alpha h) ->
  is_output g H Wd i j -> (o < C_out g)%nat ->
  Rabs (mhsa (attention_of_conv g W b alpha) (grid H Wd) X (query g i j) o - conv g W b X i j o)
  <= tail_bound g W alpha (grid H Wd) X o.
Proof.
  intros [Hs1 Hs2] Ha Hout Ho. apply layer_error; auto. intros h Hh.
  apply grid_tail with (c := alpha h * norm2 (center g h)); auto.
  - now apply head_target_in_grid.
  - intros k _. apply quadratic_score.
Qed.

(** sum_c osc_c sum_Delta |W[o, c, Delta]| *)
Definition weighted_range (g : geometry) (W : kernel) (keys : list pixel) (X : image) (o : nat) : R :=
  Sum c in seq 0 (C_in_g g), osc keys X (channel g o c)
  * Sum m in seq 0 (K1 g), Sum n in seq 0 (K2 g), Rabs (W o c m n).

Lemma tail_bound_shared g W alpha keys X o :
  tail_bound g W (fun _ => alpha) keys X o = tau alpha * weighted_range g W keys X o.
Proof.
  unfold tail_bound, weighted_range, head_row, head_column. rewrite <- sum_scale.
  apply sum_ext; intros c _. rewrite sum_scale.
  rewrite (sum_blocks (K1 g) (K2 g) (fun m n => Rabs (W o c m n))). ring.
Qed.

(** If all heads share alpha: |Attention - Conv| <= tau sum_c osc_c sum_Delta |W[o, c, Delta]|. *)
Theorem theorem_1 g W b alpha H Wd X i j o :
  valid g -> 0 < alpha -> is_output g H Wd i j -> (o < C_out g)%nat ->
  Rabs (mhsa (attention_of_conv g W b (fun _ => alpha)) (grid H Wd) X (query g i j) o - conv g W b X i j o)
  <= tau alpha * weighted_range g W (grid H Wd) X o.
Proof. intros. rewrite <- tail_bound_shared. now apply theorem_1_per_head. Qed.

(** ** The limit *)

Lemma osc_nonneg_all {P} (keys : list P) X c : 0 <= osc keys X c.
Proof.
  destruct keys as [|k keys]; [unfold osc, minimum; simpl; lra|]. apply osc_nonneg with k. now left.
Qed.

Lemma weighted_range_nonneg g W keys X o : 0 <= weighted_range g W keys X o.
Proof.
  apply sum_nonneg; intros c _. apply Rmult_le_pos; [apply osc_nonneg_all|].
  apply sum_nonneg; intros m _. apply sum_nonneg; intros n _. apply Rabs_pos.
Qed.

(** The largest weighted range of all output channels. *)
Definition largest_range (g : geometry) (W : kernel) (keys : list pixel) (X : image) : R :=
  maximum (map (weighted_range g W keys X) (seq 0 (C_out g))).

Lemma largest_range_spec g W keys X o :
  (o < C_out g)%nat -> weighted_range g W keys X o <= largest_range g W keys X.
Proof.
  intros Ho. assert (In o (seq 0 (C_out g))) by (apply in_seq; lia).
  apply maximum_spec; [|now apply in_map].
  intros E. apply map_eq_nil in E. rewrite E in *. contradiction.
Qed.

(** How large alpha must be for an error below eps. *)
Definition alpha_0 (g : geometry) (W : kernel) (keys : list pixel) (X : image) (eps : R) : R :=
  ln (2 + 4 * largest_range g W keys X / eps).

(** Theorem 1 of the paper for this layer: for every eps, all alpha >= alpha_0 give |Attention - Conv| < eps at every
    output. alpha_0 depends on the image, through the ranges of its channels. *)
Theorem theorem_1_limit g W b H Wd X eps :
  valid g -> 0 < eps ->
  forall alpha, alpha_0 g W (grid H Wd) X eps <= alpha ->
  forall i j o, is_output g H Wd i j -> (o < C_out g)%nat ->
  Rabs (mhsa (attention_of_conv g W b (fun _ => alpha)) (grid H Wd) X (query g i j) o - conv g W b X i j o) < eps.
Proof.
  intros Hv Heps alpha Halpha i j o Hout Ho.
  pose proof (weighted_range_nonneg g W (grid H Wd) X o) as Hrange.
  pose proof (largest_range_spec g W (grid H Wd) X o Ho) as Hlargest.
  unfold alpha_0 in Halpha. set (M := largest_range g W (grid H Wd) X) in *.
  set (need := 2 + 4 * M / eps) in *.
  assert (0 <= 4 * M / eps) by (apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat; lra]).
  assert (Hneed : 0 < ln need) by (rewrite <- ln_1; apply ln_increasing; unfold need; lra).
  assert (Hpos : 0 < alpha) by lra.
  destruct (tau_bounds alpha Hpos) as (Htau0 & Htau1 & Htau2 & _). pose proof (decay_range alpha Hpos).
  assert (Hq : decay alpha * need <= 1).
  { unfold decay. rewrite <- (exp_ln need) by (unfold need; lra). rewrite <- exp_plus, <- exp_0.
    destruct (Req_dec (- alpha + ln need) 0) as [->|]; [lra|left; apply exp_increasing; lra]. }
  eapply Rle_lt_trans; [now apply theorem_1|].
  apply Rle_lt_trans with (4 * decay alpha * M); [nra|].
  assert (decay alpha * need * eps <= eps) by nra.
  replace (decay alpha * need * eps) with (2 * decay alpha * eps + 4 * decay alpha * M) in *
    by (unfold need; field; lra).
  nra.
Qed.

Corollary theorem_1_exists g W b H Wd X :
  valid g -> forall eps, 0 < eps -> exists a, forall alpha, a <= alpha ->
  forall i j o, is_output g H Wd i j -> (o < C_out g)%nat ->
  Rabs (mhsa (attention_of_conv g W b (fun _ => alpha)) (grid H Wd) X (query g i j) o - conv g W b X i j o) < eps.
Proof. intros Hv eps Heps. exists (alpha_0 g W (grid H Wd) X eps). now apply theorem_1_limit. Qed.
