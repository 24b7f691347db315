(** * Heads that ignore the content: eight are too few for a 3 x 3 kernel

    Beside proofs/claims/sharper/head_count.py (claim head-count). A 3 x 3 convolution of nine channels whose tap number c reads
    channel c is not computed, nor approached, by any layer with eight heads that look at positions only, whatever its
    encoding, its values and its projections; with nine heads Theorem 1 comes as near as one likes. *)

From Coq Require Import ZArith Arith Lia Lra Permutation.
From Conv2Attn Require Import Sums Encoding Softmax Grid Convolution Attention Construction Theorem1.

(** ** n + 1 vectors of dimension n are dependent *)

(** Gaussian elimination: [a i] is a vector of dimension n for each index i of the list. *)
Lemma dependent n : forall (l : list nat) (a : nat -> nat -> R),
  NoDup l -> length l = S n ->
  exists c : nat -> R, (exists i, In i l /\ c i <> 0) /\ forall j, (j < n)%nat -> Sum i in l, c i * a i j = 0.
Proof.
  induction n as [|n IH]; intros l a Hl Hlength.
  - destruct l as [|i l]; [discriminate|]. exists (fun _ => 1). split; [|intros; lia].
    exists i. split; [now left|lra].
  - destruct (Forall_Exists_dec (fun i => a i n = 0) (fun i => Req_EM_T (a i n) 0) l) as [Hnone|Hpivot].
    + (** Component n is zero in all vectors: it can be left out, with one of the vectors. *)
      rewrite Forall_forall in Hnone. destruct l as [|p l]; [discriminate|]. inversion_clear Hl as [|? ? Hnot Hl'].
      injection Hlength as Hlength.
      destruct (IH l a Hl' Hlength) as (c & (i & Hi & Hci) & Hc).
      exists (fun k => if (k =? p)%nat then 0 else c k). split.
      * exists i. split; [now right|]. destruct (Nat.eqb_spec i p) as [->|]; [contradiction|assumption].
      * intros j Hj. simpl. rewrite Nat.eqb_refl.
        rewrite (sum_ext l _ (fun k => c k * a k j)).
        2: { intros k Hk. destruct (Nat.eqb_spec k p) as [->|]; [contradiction|reflexivity]. }
        destruct (Nat.eq_dec j n) as [->|]; [|rewrite Hc by lia; ring].
        rewrite sum_zero; [ring|]. intros k Hk.
        rewrite Hnone by (now right). ring.
    + apply Exists_exists in Hpivot. destruct Hpivot as (p & Hp & Hap).
      destruct (in_split _ _ Hp) as (before & after & E).
      assert (Hperm : Permutation l (p :: before ++ after)) by (rewrite E; symmetry; apply Permutation_middle).
      set (rest := before ++ after) in *.
      pose proof (Permutation_NoDup Hperm Hl) as Hnodup. inversion_clear Hnodup as [|? ? Hnot Hrest].
      assert (length rest = S n) by (apply Permutation_length in Hperm; simpl in Hperm; lia).
      (** Subtract multiples of the pivot's vector, so that component n vanishes. *)
      destruct (IH rest (fun i j => a i j - a i n / a p n * a p j) Hrest H) as (c & (i & Hi & Hci) & Hc).
      set (cp := - Sum k in rest, c k * (a k n / a p n)).
      exists (fun k => if (k =? p)%nat then cp else c k).
      assert (Hsum : forall j, Sum k in l, (if (k =? p)%nat then cp else c k) * a k j
                     = Sum k in rest, c k * (a k j - a k n / a p n * a p j)).
      { intros j. rewrite (sum_permutation _ _ _ Hperm). simpl. rewrite Nat.eqb_refl.
        rewrite (sum_ext rest (fun k => (if (k =? p)%nat then cp else c k) * a k j) (fun k => c k * a k j)).
        - rewrite (sum_ext rest (fun k => c k * (a k j - a k n / a p n * a p j))
            (fun k => c k * a k j - c k * (a k n / a p n) * a p j)) by (intros; ring).
          rewrite sum_minus, (sum_scale_r (a p j)). unfold cp. ring.
        - intros k Hk. destruct (Nat.eqb_spec k p) as [->|]; [contradiction|reflexivity]. }
      split.
      * exists i. split; [apply (Permutation_in i (Permutation_sym Hperm)); now right|].
        destruct (Nat.eqb_spec i p) as [->|]; [contradiction|assumption].
      * intros j Hj. rewrite Hsum. destruct (Nat.eq_dec j n) as [->|]; [|apply Hc; lia].
        apply sum_zero. intros k _. field. assumption.
Qed.

Example three_vectors_in_the_plane :
  exists c : nat -> R, (exists i, In i [0%nat; 1%nat; 2%nat] /\ c i <> 0) /\
  forall j, (j < 2)%nat -> Sum i in [0%nat; 1%nat; 2%nat], c i * INR (i + j) = 0.
Proof. apply dependent; [repeat constructor; simpl; intuition discriminate|reflexivity]. Qed.

(** ** The kernel, and the layers that cannot compute it *)

(** Nine input channels, one output channel, 3 x 3 taps; tap (m, n) reads channel 3 m + n and nothing else. *)
Definition one_channel_a_tap : geometry :=
  {| K1 := 3; K2 := 3; s1 := 1; s2 := 1; d1 := 1; d2 := 1; groups := 1; C_in_g := 9; C_out_g := 1 |}.
Definition unit_taps : kernel := fun _ c m n => if (c =? 3 * m + n)%nat then 1 else 0.

(** A layer looks at positions only if no score depends on the image. *)
Definition position_only (L : layer pixel) : Prop :=
  forall h X X' q k, (h < N_h L)%nat -> score L (heads L h) X q k = score L (heads L h) X' q k.

(** The layers of Theorem 1 are of this kind. *)
Lemma theorem_1_is_position_only g W b alpha : position_only (attention_of_conv g W b alpha).
Proof. intros h X X' q k _. rewrite !score_of_position; try reflexivity; simpl; lia. Qed.

Definition blank : image := fun _ _ => 0.

(** Values and output projection of head h act as one vector: M_h[c] = sum_d W_val[c, d] W_out[h D_h + d, 0]. *)
Definition value_vector (L : layer pixel) (h : nat) : vector := fun c =>
  Sum d in seq 0 (D_h L), W_val (heads L h) c d * W_out L (h * D_h L + d)%nat 0%nat.

Lemma position_only_output L keys X q :
  position_only L ->
  mhsa L keys X q 0%nat =
  (Sum h in seq 0 (N_h L), Sum k in keys,
    probability L (heads L h) keys blank q k * Sum c in seq 0 (D_in L), X k c * value_vector L h c) + b_out L 0%nat.
Proof.
  intros HL. rewrite mhsa_is_sum_over_heads. f_equal. apply sum_ext; intros h Hh. apply in_seq in Hh.
  unfold head_output. rewrite (sum_ext (seq 0 (D_h L)) _ (fun d => Sum k in keys,
    probability L (heads L h) keys blank q k
    * ((Sum c in seq 0 (D_in L), X k c * W_val (heads L h) c d) * W_out L (h * D_h L + d)%nat 0%nat))).
  - rewrite sum_swap. apply sum_ext; intros k _. rewrite sum_scale. f_equal.
    rewrite (sum_ext (seq 0 (D_in L)) (fun c => X k c * value_vector L h c) (fun c => Sum d in seq 0 (D_h L),
      X k c * (W_val (heads L h) c d * W_out L (h * D_h L + d)%nat 0%nat)))
      by (intros; unfold value_vector; now rewrite sum_scale).
    rewrite sum_swap. apply sum_ext; intros d _. rewrite <- sum_scale_r. apply sum_ext; intros c _. ring.
  - intros d _. rewrite <- sum_scale_r. apply sum_ext; intros k Hk. rewrite <- Rmult_assoc. f_equal. f_equal.
    apply softmax_ext; [assumption|]. intros l _. apply HL. lia.
Qed.

(** An image with the values c at one pixel and zero elsewhere. *)
Definition spike (p : pixel) (c : vector) : image := fun k ch =>
  if ((fst k =? fst p)%Z && (snd k =? snd p)%Z)%bool then c ch else 0.

Lemma conv_of_spike b i c :
  (i < 9)%nat ->
  conv one_channel_a_tap unit_taps b (spike (tap one_channel_a_tap (i / 3) (i mod 3)) c) 0 0 0 = b 0%nat + c i.
Proof.
  intros Hi. unfold conv, unit_taps, spike, channel.
  do 9 (destruct i as [|i]; [simpl; ring|]). lia.
Qed.

(** Every layer with eight position-only heads is off by at least 1/2 on some image with values in [-1, 1], already at
    the first output: whatever the keys, D_p, D_h, D_k, encoding, values and projections. So eight heads do not express
    this convolution, not even in a limit, as nine do. *)
Theorem eight_position_only_heads_are_too_few L b keys :
  position_only L -> D_in L = 9%nat -> (N_h L <= 8)%nat ->
  exists X, (forall k c, Rabs (X k c) <= 1) /\
  1 / 2 <= Rabs (mhsa L keys X (query one_channel_a_tap 0 0) 0%nat - conv one_channel_a_tap unit_taps b X 0 0 0).
Proof.
  intros HL HD HN. set (indices := seq 0 (S (N_h L))).
  (** Channel values c, not all zero, that no head's value vector sees; scaled so that the largest is 1. *)
  destruct (dependent (N_h L) indices (fun c h => value_vector L h c)) as (c & (i0 & Hi0 & Hci0) & Hc);
    [apply seq_NoDup|apply seq_length|].
  destruct (maximum_spec (map (fun i => Rabs (c i)) indices)) as [Hmax Hle]; [discriminate|].
  apply in_map_iff in Hmax. destruct Hmax as (i & Emax & Hi). rewrite <- Emax in Hle.
  assert (Hbelow : forall k, In k indices -> Rabs (c k) <= Rabs (c i)).
  { intros k Hk. apply Hle. apply (in_map (fun k => Rabs (c k))), Hk. }
  assert (Hpos : 0 < Rabs (c i)).
  { apply Rlt_le_trans with (Rabs (c i0)); [now apply Rabs_pos_lt|now apply Hbelow]. }
  assert (Hci : c i <> 0) by (intros E; rewrite E, Rabs_R0 in Hpos; lra).
  set (y := fun k => if (k <? S (N_h L))%nat then c k / c i else 0).
  assert (Hyi : y i = 1).
  { apply in_seq in Hi. unfold y. destruct (Nat.ltb_spec i (S (N_h L))); [field; assumption|lia]. }
  assert (Hy1 : forall k, Rabs (y k) <= 1).
  { intros k. unfold y. destruct (Nat.ltb_spec k (S (N_h L))); [|rewrite Rabs_R0; lra].
    unfold Rdiv. rewrite Rabs_mult, Rabs_inv. apply Rmult_le_reg_r with (Rabs (c i)); [assumption|].
    rewrite Rmult_assoc, Rinv_l, Rmult_1_r, Rmult_1_l by lra. apply Hbelow, in_seq. lia. }
  assert (Hunseen : forall h, (h < N_h L)%nat -> Sum k in seq 0 9, y k * value_vector L h k = 0).
  { intros h Hh. replace 9%nat with (S (N_h L) + (8 - N_h L))%nat by lia.
    rewrite seq_app, sum_app, (sum_zero (seq (0 + S (N_h L)) _)).
    - rewrite Rplus_0_r.
      transitivity (/ c i * Sum k in indices, c k * value_vector L h k); [|rewrite Hc by assumption; ring].
      rewrite <- sum_scale. apply sum_ext; intros k Hk. apply in_seq in Hk. unfold y.
      destruct (Nat.ltb_spec k (S (N_h L))); [field; assumption|lia].
    - intros k Hk. apply in_seq in Hk. unfold y. destruct (Nat.ltb_spec k (S (N_h L))); [lia|ring]. }
  (** The layer gives the same for these values and for none; the convolution differs by 1. *)
  set (p := tap one_channel_a_tap (i / 3) (i mod 3)).
  set (X := fun x => spike p (fun k => x * y k)).
  assert (Hlayer : forall x, mhsa L keys (X x) (query one_channel_a_tap 0 0) 0%nat = b_out L 0%nat).
  { intros x. rewrite position_only_output by assumption. rewrite sum_zero; [ring|]. intros h Hh. apply in_seq in Hh.
    apply sum_zero. intros k _. rewrite HD.
    replace (Sum d in seq 0 9, X x k d * value_vector L h d) with 0; [ring|].
    unfold X, spike. destruct (_ && _)%bool; [|symmetry; apply sum_zero; intros; ring].
    transitivity (x * Sum d in seq 0 9, y d * value_vector L h d); [rewrite Hunseen by lia; ring|].
    rewrite <- sum_scale. apply sum_ext; intros; ring. }
  assert (Hconv : forall x, conv one_channel_a_tap unit_taps b (X x) 0 0 0 = b 0%nat + x).
  { intros x. unfold X, p. apply in_seq in Hi. rewrite conv_of_spike by lia. rewrite Hyi. ring. }
  assert (Hsmall : forall x, 0 <= x <= 1 -> forall k ch, Rabs (X x k ch) <= 1).
  { intros x Hx k ch. unfold X, spike. destruct (_ && _)%bool; [|rewrite Rabs_R0; lra].
    rewrite Rabs_mult, (Rabs_right x) by lra. pose proof (Hy1 ch). pose proof (Rabs_pos (y ch)). nra. }
  destruct (Rle_dec (b_out L 0%nat) (b 0%nat + 1 / 2)).
  - exists (X 1). split; [apply Hsmall; lra|]. rewrite Hlayer, Hconv, Rabs_left1 by lra. lra.
  - exists (X 0). split; [apply Hsmall; lra|]. rewrite Hlayer, Hconv, Rabs_right by lra. lra.
Qed.
