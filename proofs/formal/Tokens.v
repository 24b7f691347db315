(** * Heads over absolute positions, behind a layer norm

    A token of a vision transformer holds cosines and sines of its row and column at some frequencies, one channel that is
    1 and one that is 0. Layer norm takes off the mean and divides by the deviation of the token. A head whose query is
    turned by its tap's shift scores the key at offset delta by minus a factor times

        sum over frequencies w of (1 - cos w (delta1 - Delta1)) + (1 - cos w (delta2 - Delta2)),

    which is 0 at the tap and never negative, whatever means and deviations are. Beside
    proofs/claims/other_encodings/tokens.py (claim token-heads). *)

From Coq Require Import Lra.
From Conv2Attn Require Import Sums.

Section Tokens.
Variable ws : list R. (* the frequencies *)

(** The products of a query and a key over the channels of one axis: a cosine and a sine for each frequency. *)
Definition axis_product (q : R -> R * R) (k : R -> R * R) : R :=
  Sum w in ws, (fst (q w) * fst (k w) + snd (q w) * snd (k w)).

(** What layer norm makes of a channel's number, with the token's mean and deviation. *)
Definition normed (m s x : R) : R := (x - m) / s.

(** The key reads each channel minus the one that is 0, times beta. *)
Definition read (beta m s x : R) : R := beta * (normed m s x - normed m s 0).

(** Cosine and sine of one coordinate, as they are read; and turned by the angles of a shift. *)
Definition read_wave (beta m s p w : R) : R * R := (read beta m s (cos (w * p)), read beta m s (sin (w * p))).
Definition turned (shift w : R) (v : R * R) : R * R :=
  (cos (w * shift) * fst v - sin (w * shift) * snd v, sin (w * shift) * fst v + cos (w * shift) * snd v).

(** The number of channels of an axis, counted in pairs. *)
Definition pairs : R := Sum w in ws, 1.

(** Query q and key k, each with its mean and deviation; the query reads the channel of ones times -2 F. *)
Definition token_score (beta root mq sq mk sk shift1 shift2 q1 q2 k1 k2 : R) : R :=
  (axis_product (fun w => turned shift1 w (read_wave beta mq sq q1 w)) (read_wave beta mk sk k1)
   + axis_product (fun w => turned shift2 w (read_wave beta mq sq q2 w)) (read_wave beta mk sk k2)
   + (- (2 * pairs) * read beta mq sq 1) * read beta mk sk 1) / root.

(** What a key loses along one axis at distance d from the tap. *)
Definition axis_loss (d : R) : R := Sum w in ws, (1 - cos (w * d)).

Lemma read_is_scaled beta m s x : s <> 0 -> read beta m s x = beta * x / s.
Proof. intros H. unfold read, normed. now field. Qed.

Lemma axis_product_is_loss beta mq sq mk sk shift q k : sq <> 0 -> sk <> 0 ->
  axis_product (fun w => turned shift w (read_wave beta mq sq q w)) (read_wave beta mk sk k)
  = beta ^ 2 / (sq * sk) * (pairs - axis_loss (k - q - shift)).
Proof.
  intros Hq Hk. unfold axis_product, pairs, axis_loss. rewrite <- sum_minus, <- sum_scale.
  apply sum_ext. intros w _. unfold turned, read_wave. cbn [fst snd]. rewrite !read_is_scaled by assumption.
  replace (1 - (1 - cos (w * (k - q - shift)))) with (cos (w * k - (w * q + w * shift)))
    by (replace (w * k - (w * q + w * shift)) with (w * (k - q - shift)) by ring; ring).
  rewrite cos_minus, cos_plus, sin_plus. now field.
Qed.

(** The score: minus a positive factor times what the key loses along both axes. *)
Theorem token_score_is_loss beta root mq sq mk sk shift1 shift2 q1 q2 k1 k2 : root <> 0 -> sq <> 0 -> sk <> 0 ->
  token_score beta root mq sq mk sk shift1 shift2 q1 q2 k1 k2
  = - (beta ^ 2 / (root * sq * sk)) * (axis_loss (k1 - q1 - shift1) + axis_loss (k2 - q2 - shift2)).
Proof.
  intros Hr Hq Hk. unfold token_score. rewrite !axis_product_is_loss, !read_is_scaled by assumption. now field.
Qed.

Lemma axis_loss_nonneg d : 0 <= axis_loss d.
Proof. apply sum_nonneg. intros w _. pose proof (COS_bound (w * d)). lra. Qed.

Lemma axis_loss_at_0 : axis_loss 0 = 0.
Proof. apply sum_zero. intros w _. rewrite Rmult_0_r, cos_0. ring. Qed.

(** 0 at the tap, and at most 0 at every key. *)
Corollary token_score_at_the_tap beta root mq sq mk sk shift1 shift2 q1 q2 : root <> 0 -> sq <> 0 -> sk <> 0 ->
  token_score beta root mq sq mk sk shift1 shift2 q1 q2 (q1 + shift1) (q2 + shift2) = 0.
Proof.
  intros Hr Hq Hk. rewrite token_score_is_loss by assumption.
  replace (q1 + shift1 - q1 - shift1) with 0 by ring. replace (q2 + shift2 - q2 - shift2) with 0 by ring.
  rewrite axis_loss_at_0. ring.
Qed.

Corollary token_score_is_at_most_0 beta root mq sq mk sk shift1 shift2 q1 q2 k1 k2 : 0 < root -> 0 < sq -> 0 < sk ->
  token_score beta root mq sq mk sk shift1 shift2 q1 q2 k1 k2 <= 0.
Proof.
  intros Hr Hq Hk. rewrite token_score_is_loss by lra.
  assert (0 <= beta ^ 2 / (root * sq * sk)).
  { apply Rmult_le_pos; [apply pow2_ge_0|]. apply Rlt_le, Rinv_0_lt_compat. repeat apply Rmult_lt_0_compat; assumption. }
  pose proof (axis_loss_nonneg (k1 - q1 - shift1)). pose proof (axis_loss_nonneg (k2 - q2 - shift2)). nra.
Qed.

(** With s at most the factor of every key, the score falls at least as s times the loss. *)
Corollary token_score_falls beta root mq sq mk sk shift1 shift2 q1 q2 k1 k2 s : 0 < root -> 0 < sq -> 0 < sk ->
  s <= beta ^ 2 / (root * sq * sk) ->
  token_score beta root mq sq mk sk shift1 shift2 q1 q2 k1 k2
  <= - (s * axis_loss (k1 - q1 - shift1)) - s * axis_loss (k2 - q2 - shift2).
Proof.
  intros Hr Hq Hk Hs. rewrite token_score_is_loss by lra.
  pose proof (axis_loss_nonneg (k1 - q1 - shift1)). pose proof (axis_loss_nonneg (k2 - q2 - shift2)). nra.
Qed.
(** A token without a place, such as a class token, has the channel of ones and no waves. *)
Definition placeless_score (beta root mq sq mk sk : R) : R :=
  (- (2 * pairs) * read beta mq sq 1) * read beta mk sk 1 / root.

Lemma pairs_nonneg : 0 <= pairs.
Proof. apply sum_nonneg. intros w _. lra. Qed.

Lemma placeless_score_falls beta root mq sq mk sk s : 0 < root -> 0 < sq -> 0 < sk -> s <= beta ^ 2 / (root * sq * sk) ->
  placeless_score beta root mq sq mk sk <= - (2 * pairs * s).
Proof.
  intros Hr Hq Hk Hs. unfold placeless_score. rewrite !read_is_scaled by lra.
  replace (- (2 * pairs) * (beta * 1 / sq) * (beta * 1 / sk) / root)
    with (- (2 * pairs) * (beta ^ 2 / (root * sq * sk))) by (field; lra).
  pose proof pairs_nonneg. nra.
Qed.

(** The sum of the exponentials of all scores: keys at the places rows x columns, and tokens without a place. *)
Definition total beta root mq sq (mk sk : R -> R -> R) shift1 shift2 q1 q2 (rows columns : list R)
  (others : list (R * R)) : R :=
  (Sum i in rows, Sum j in columns,
     exp (token_score beta root mq sq (mk i j) (sk i j) shift1 shift2 q1 q2 i j))
  + Sum e in others, exp (placeless_score beta root mq sq (fst e) (snd e)).

Lemma exp_le x y : x <= y -> exp x <= exp y.
Proof. intros [H|H]; [left; now apply exp_increasing|right; now rewrite H]. Qed.

(** The tap, whose score is 0, keeps at least 1 / bound of the attention, for all means, and deviations whose factor is s. *)
Theorem total_is_bounded beta root mq sq mk sk shift1 shift2 q1 q2 rows columns others s :
  0 < root -> 0 < sq ->
  (forall i j, 0 < sk i j /\ s <= beta ^ 2 / (root * sq * sk i j)) ->
  (forall e, In e others -> 0 < snd e /\ s <= beta ^ 2 / (root * sq * snd e)) ->
  total beta root mq sq mk sk shift1 shift2 q1 q2 rows columns others
  <= (Sum i in rows, exp (- (s * axis_loss (i - q1 - shift1)))) * (Sum j in columns, exp (- (s * axis_loss (j - q2 - shift2))))
     + (Sum e in others, 1) * exp (- (2 * pairs * s)).
Proof.
  intros Hr Hq Hkeys Hothers. unfold total. apply Rplus_le_compat.
  - rewrite <- sum_scale_r. apply sum_le. intros i _. rewrite <- sum_scale. apply sum_le. intros j _.
    rewrite <- exp_plus. apply exp_le. destruct (Hkeys i j) as [Hk Hs].
    pose proof (token_score_falls beta root mq sq (mk i j) (sk i j) shift1 shift2 q1 q2 i j s Hr Hq Hk Hs). lra.
  - rewrite <- sum_scale_r. apply sum_le. intros e He. rewrite Rmult_1_l. apply exp_le.
    destruct (Hothers e He) as [Hk Hs]. now apply placeless_score_falls.
Qed.
(** The share of attention that the tap keeps, where it is one of the keys. *)
Corollary share_at_the_tap beta root mq sq mk sk shift1 shift2 q1 q2 rows columns others s :
  0 < root -> 0 < sq ->
  (forall i j, 0 < sk i j /\ s <= beta ^ 2 / (root * sq * sk i j)) ->
  (forall e, In e others -> 0 < snd e /\ s <= beta ^ 2 / (root * sq * snd e)) ->
  In (q1 + shift1) rows -> In (q2 + shift2) columns ->
  / ((Sum i in rows, exp (- (s * axis_loss (i - q1 - shift1))))
     * (Sum j in columns, exp (- (s * axis_loss (j - q2 - shift2)))) + (Sum e in others, 1) * exp (- (2 * pairs * s)))
  <= exp (token_score beta root mq sq (mk (q1 + shift1) (q2 + shift2)) (sk (q1 + shift1) (q2 + shift2))
            shift1 shift2 q1 q2 (q1 + shift1) (q2 + shift2))
     / total beta root mq sq mk sk shift1 shift2 q1 q2 rows columns others.
Proof.
  intros Hr Hq Hkeys Hothers Hrow Hcolumn. destruct (Hkeys (q1 + shift1) (q2 + shift2)) as [Hk _].
  rewrite token_score_at_the_tap, exp_0 by lra. unfold Rdiv. rewrite Rmult_1_l. apply Rinv_le_contravar.
  - unfold total. apply Rlt_le_trans with 1; [lra|].
    assert (Hothers0 : 0 <= Sum e in others, exp (placeless_score beta root mq sq (fst e) (snd e)))
      by (apply sum_nonneg; intros e _; apply Rlt_le, exp_pos).
    enough (1 <= Sum i in rows, Sum j in columns,
      exp (token_score beta root mq sq (mk i j) (sk i j) shift1 shift2 q1 q2 i j)) by lra.
    eapply Rle_trans; [|apply term_le_sum with (x := q1 + shift1)]; [|intros i _|assumption].
    + eapply Rle_trans; [|apply term_le_sum with (x := q2 + shift2)]; [|intros j _; apply Rlt_le, exp_pos|assumption].
      rewrite token_score_at_the_tap, exp_0 by lra. lra.
    + apply sum_nonneg. intros j _. apply Rlt_le, exp_pos.
  - now apply total_is_bounded.
Qed.
End Tokens.

(** One frequency, pi: a key one pixel off along one axis loses 2, one two pixels off nothing, since the period wraps. *)
Example a_period_that_wraps : axis_loss [PI] 1 = 2 /\ axis_loss [PI] 2 = 0.
Proof.
  unfold axis_loss, sum_over. rewrite Rmult_1_r, cos_PI. replace (PI * 2) with (2 * PI) by ring. rewrite cos_2PI. split; ring.
Qed.
