(** * The dimension of the encoding: D_p = 2 suffices; heads that each sit on one tap cannot do with D_p = 1

    Beside proofs/claims/sharper/encoding_dimension.py (claim two-dimensions-suffice) and proofs/claims/sharper/one_dimension.py (claim
    one-dimension-two-targets). Heads that mix taps can do with D_p = 1 in the limit. *)

From Coq Require Import ZArith Lia Lra Psatz FinFun.
From Conv2Attn Require Import Sums Encoding Softmax Theta Grid Convolution Attention Construction Theorem1.

(** ** Two dimensions suffice *)

(** t = M delta_1 + delta_2: rows are written one after the other, M apart. *)
Definition flat (M : Z) (d : pixel) : Z := (M * fst d + snd d)%Z.

(** r_delta = (t^2, t) and v = -alpha (1, -2 T) *)
Definition encoding_2 (M : Z) (d : pixel) : vector := vec [IZR (flat M d) ^ 2; IZR (flat M d)].
Definition head_vector_2 (M : Z) (alpha : R) (center : pixel) : vector :=
  vec [- alpha; 2 * alpha * IZR (flat M center)].

Theorem encoding_identity_2 M alpha center d :
  dot 2 (head_vector_2 M alpha center) (encoding_2 M d)
  = - alpha * IZR (flat M d - flat M center) ^ 2 + alpha * IZR (flat M center) ^ 2.
Proof. unfold dot, head_vector_2, encoding_2, vec; simpl. rewrite minus_IZR. ring. Qed.

(** If M is at least the number of columns, different pixels of the grid have different numbers. *)
Lemma flat_injective M H Wd p k :
  (Z.of_nat Wd <= M)%Z -> In p (grid H Wd) -> In k (grid H Wd) -> flat M p = flat M k -> p = k.
Proof.
  destruct p as [a b], k as [c d]. rewrite !in_grid. unfold flat; simpl fst; simpl snd. intros HM Hp Hk E.
  assert (a = c) by nia. subst. f_equal. lia.
Qed.

(** So the score is largest at the target only, with a gap of alpha. *)
Theorem unique_maximum_2 M alpha H Wd q d k :
  0 < alpha -> (Z.of_nat Wd <= M)%Z -> In (add q d) (grid H Wd) -> In k (grid H Wd) -> k <> add q d ->
  let s := positional_score 2 (encoding_2 M) (head_vector_2 M alpha d) q in
  s k <= s (add q d) - alpha.
Proof.
  intros Ha HM Ht Hk Hne s. unfold s, positional_score. rewrite !encoding_identity_2.
  replace (flat M (sub (add q d) q)) with (flat M d) by (unfold flat, sub, add; simpl fst; simpl snd; ring).
  replace (flat M (sub k q) - flat M d)%Z with (flat M k - flat M (add q d))%Z
    by (unfold flat, sub, add; simpl fst; simpl snd; ring).
  rewrite Z.sub_diag.
  assert (flat M k <> flat M (add q d)) by (intros E; apply Hne; now apply (flat_injective M H Wd)).
  assert (1 <= IZR (flat M k - flat M (add q d)) ^ 2) by (rewrite pow_IZR; apply IZR_le; simpl; nia).
  simpl in *. nra.
Qed.

Lemma grid_distinct H Wd : NoDup (grid H Wd).
Proof.
  assert (Hrange : forall n, NoDup (range n)) by (intros n; apply NoDup_map; [apply seq_NoDup|lia]).
  unfold grid. pose proof (Hrange Wd) as HW. specialize (Hrange H). revert Hrange. generalize (range H) as l.
  induction l as [|a l IH]; intros Hl; [constructor|]. inversion_clear Hl. simpl.
  apply NoDup_append; auto.
  - apply NoDup_map; [assumption|congruence].
  - intros [x y] Hx Hy. apply in_map_iff in Hx. destruct Hx as (z & E & _). injection E as <- <-.
    apply in_prod_iff in Hy. tauto.
Qed.

(** tau of one axis: half the tail of three dimensions to first order, because keys lie on a line. *)
Definition tau_line (alpha : R) : R := 1 - / theta3 (decay alpha).

Theorem tau_line_bound alpha : 0 < alpha -> tau_line alpha <= 2 * decay alpha / (1 + decay alpha).
Proof.
  intros Ha. pose proof (decay_range alpha Ha) as Hq. set (q := decay alpha) in *.
  pose proof (theta3_at_least_1 q ltac:(lra)). pose proof (theta3_bound q ltac:(lra)).
  unfold tau_line. fold q. replace (2 * q / (1 + q)) with (1 - / ((1 + q) / (1 - q))) by (field; lra).
  enough (/ ((1 + q) / (1 - q)) <= / theta3 q) by lra. apply Rinv_le_contravar; lra.
Qed.

(** The layer with D_p = 2. *)
Definition attention_of_conv_2 (M : Z) (g : geometry) (W : kernel) (b : vector) (alpha : R) : layer pixel :=
  positional_attention g W b 2 (encoding_2 M) (fun h => head_vector_2 M alpha (center g h)).

(** Theorem 1 with D_p = 2: on every padded grid with at most M columns. *)
Theorem theorem_1_with_two_dimensions M g W b alpha H Wd X i j o :
  valid g -> 0 < alpha -> (Z.of_nat Wd <= M)%Z -> is_output g H Wd i j -> (o < C_out g)%nat ->
  Rabs (mhsa (attention_of_conv_2 M g W b alpha) (grid H Wd) X (query g i j) o - conv g W b X i j o)
  <= tau_line alpha * weighted_range g W (grid H Wd) X o.
Proof.
  intros [Hs1 Hs2] Ha HM Hout Ho. pose proof (decay_range alpha Ha) as Hq.
  replace (tau_line alpha * weighted_range g W (grid H Wd) X o) with
    (Sum c in seq 0 (C_in_g g), osc (grid H Wd) X (channel g o c)
     * Sum h in seq 0 (K1 g * K2 g), tau_line alpha * Rabs (W o c (head_row g h) (head_column g h))).
  2: { unfold weighted_range, head_row, head_column. rewrite <- sum_scale. apply sum_ext; intros c _.
       rewrite sum_scale, (sum_blocks (K1 g) (K2 g) (fun m n => Rabs (W o c m n))). ring. }
  apply layer_error; auto. intros h Hh.
  set (t := add (query g i j) (center g h)).
  assert (Ht : In t (grid H Wd)) by now apply head_target_in_grid.
  rewrite softmax_inverse by assumption. unfold tau_line.
  set (s := positional_score 2 (encoding_2 M) (head_vector_2 M alpha (center g h)) (query g i j)).
  enough (/ theta3 (decay alpha) <= / Sum k in grid H Wd, exp (s k - s t)) by lra.
  apply Rinv_le_contravar.
  { apply Rlt_le_trans with (exp 0); [apply exp_pos|].
    rewrite <- (Rminus_diag_eq (s t) (s t)) by reflexivity.
    apply (term_le_sum (grid H Wd) (fun k => exp (s k - s t))); auto. intros; left; apply exp_pos. }
  apply Rle_trans with (Sum z in map (fun k => (flat M k - flat M t)%Z) (grid H Wd), exp (- alpha * IZR z ^ 2)).
  - right. rewrite sum_map. apply sum_ext; intros k _. f_equal. unfold s, positional_score.
    rewrite !encoding_identity_2.
    replace (flat M (sub k (query g i j)) - flat M (center g h))%Z with (flat M k - flat M t)%Z
      by (unfold t, flat, sub, add; simpl fst; simpl snd; ring).
    replace (flat M (sub t (query g i j)) - flat M (center g h))%Z with 0%Z
      by (unfold t, flat, sub, add; simpl fst; simpl snd; ring). ring.
  - apply sum_integers_le_theta3; [assumption|]. apply NoDup_map; [apply grid_distinct|].
    intros x y Hx Hy E. apply (flat_injective M H Wd); auto. lia.
Qed.

(** ** One dimension does not, for heads that each sit on one tap *)

(** Two numbers of the same sign do not rank x and y differently. *)
Lemma same_sign_same_order a b x y : 0 <= a * b -> a * y < a * x -> b * x < b * y -> False.
Proof.
  intros H Hx Hy. assert (0 < (a * x - a * y) * (b * y - b * x)) by (apply Rmult_lt_0_compat; lra).
  assert (0 <= a * b * (x - y) ^ 2) by (apply Rmult_le_pos; [assumption|nra]). nra.
Qed.

(** Of three offsets with numbers r_1, r_2, r_3, one never leads both others: v r_2 for r_2 in between. *)
Theorem one_dimension_has_two_targets (r v : nat -> R) :
  ~ (forall i j, (i < 3)%nat -> (j < 3)%nat -> j <> i -> v i * r j < v i * r i).
Proof.
  intros H.
  pose proof (H 0 1)%nat as H01. pose proof (H 0 2)%nat as H02. pose proof (H 1 0)%nat as H10.
  pose proof (H 1 2)%nat as H12. pose proof (H 2 0)%nat as H20. pose proof (H 2 1)%nat as H21.
  specialize (H01 ltac:(lia) ltac:(lia) ltac:(lia)). specialize (H02 ltac:(lia) ltac:(lia) ltac:(lia)).
  specialize (H10 ltac:(lia) ltac:(lia) ltac:(lia)). specialize (H12 ltac:(lia) ltac:(lia) ltac:(lia)).
  specialize (H20 ltac:(lia) ltac:(lia) ltac:(lia)). specialize (H21 ltac:(lia) ltac:(lia) ltac:(lia)).
  destruct (Rle_dec 0 (v 0%nat * v 1%nat)); [now apply (same_sign_same_order (v 0%nat) (v 1%nat) (r 0%nat) (r 1%nat))|].
  destruct (Rle_dec 0 (v 0%nat * v 2%nat)); [now apply (same_sign_same_order (v 0%nat) (v 2%nat) (r 0%nat) (r 2%nat))|].
  apply (same_sign_same_order (v 1%nat) (v 2%nat) (r 1%nat) (r 2%nat)); auto.
  enough (0 < (v 0%nat * v 1%nat) * (v 0%nat * v 2%nat)) by nra. nra.
Qed.

(** In terms of attention: whatever encoding r of dimension 1 and head vectors v_1, v_2, v_3, three heads cannot each
    give a target of its own more than half of its attention. So no kernel with three taps can be expressed with
    D_p = 1 in the way of Theorem 1, one head for each tap. *)
Theorem one_dimension_does_not (keys : list pixel) (q : pixel) (r : pixel -> vector) (v_h : nat -> vector)
    (target : nat -> pixel) :
  (forall i, (i < 3)%nat -> In (target i) keys) ->
  (forall i j, (i < 3)%nat -> (j < 3)%nat -> j <> i -> target j <> target i) ->
  ~ (forall i, (i < 3)%nat -> 1 / 2 < softmax keys (positional_score 1 r (v_h i) q) (target i)).
Proof.
  intros Hin Hne H.
  apply (one_dimension_has_two_targets (fun i => r (sub (target i) q) 0%nat) (fun i => v_h i 0%nat)).
  intros i j Hi Hj Hij. set (s := positional_score 1 r (v_h i) q).
  enough (Hs : s (target j) < s (target i)) by (unfold s, positional_score, dot in Hs; simpl in Hs; lra).
  destruct (Rlt_dec (s (target j)) (s (target i))) as [|Hn]; [assumption|exfalso].
  pose proof (softmax_total keys s (target i) (Hin i Hi)) as Htotal.
  assert (Hp : forall k, In k keys -> 0 <= softmax keys s k) by (intros; left; now apply softmax_positive).
  destruct (in_split _ _ (Hin i Hi)) as (before & after & E).
  assert (Hj' : In (target j) (before ++ after)).
  { pose proof (Hin j Hj) as Hk. rewrite E in Hk. apply in_app_or in Hk. apply in_or_app.
    destruct Hk as [|[Hk|]]; auto. exfalso. now apply (Hne i j Hi Hj Hij). }
  assert (Hsplit : softmax keys s (target i) + Sum k in before ++ after, softmax keys s k = 1).
  { rewrite E in Htotal at 1. rewrite sum_app in Htotal. simpl in Htotal. rewrite sum_app. lra. }
  assert (softmax keys s (target j) <= Sum k in before ++ after, softmax keys s k).
  { apply (term_le_sum (before ++ after) (fun k => softmax keys s k)); auto.
    intros k Hk. apply Hp. rewrite E. apply in_app_or in Hk. apply in_or_app. simpl. tauto. }
  assert (softmax keys s (target i) <= softmax keys s (target j)).
  { unfold softmax. apply Rmult_le_compat_r.
    - left. apply Rinv_0_lt_compat. apply partition_positive with (target i). auto.
    - destruct (Req_dec (s (target i)) (s (target j))) as [->|]; [lra|]. left. apply exp_increasing. lra. }
  specialize (H i Hi). fold s in H. lra.
Qed.
