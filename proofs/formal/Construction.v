(** * The attention layer of a convolution: one head for each tap

    Beside proofs/claims/theorem/assembly.py (claim head-assembly); the code is convert/layer/construction.py. *)

From Coq Require Import ZArith Arith Lia Lra Psatz.
From Conv2Attn Require Import Sums Encoding Softmax Grid Convolution Attention.

(** ** The construction *)

(** A matrix that is zero between different groups, of blocks with [rows] inputs and [columns] outputs. *)
Definition block_diagonal (rows columns : nat) (w : nat -> nat -> R) : matrix := fun c o =>
  if (c / rows =? o / columns)%nat then w o (c mod rows)%nat else 0.

(** W_Delta as a C_in x C_out value projection. *)
Definition value_projection (g : geometry) (W : kernel) (m n : nat) : matrix :=
  block_diagonal (C_in_g g) (C_out_g g) (fun o c => W o c m n).

(** The heads of a K1 x K2 kernel are numbered row by row: head h plays tap (h / K2, h mod K2). *)
Definition head_row (g : geometry) (h : nat) : nat := (h / K2 g)%nat.
Definition head_column (g : geometry) (h : nat) : nat := (h mod K2 g)%nat.

(** The query of output (i, j) sits under the kernel's middle tap, and centres are counted from there. *)
Definition middle (g : geometry) : pixel := tap g ((K1 g - 1) / 2) ((K2 g - 1) / 2).
Definition query (g : geometry) (i j : nat) : pixel := add (corner g i j) (middle g).
Definition center (g : geometry) (h : nat) : pixel := sub (tap g (head_row g h) (head_column g h)) (middle g).

(** So a head looks where its tap reads, wherever the query sits. *)
Lemma query_center g i j h :
  add (query g i j) (center g h) = add (corner g i j) (tap g (head_row g h) (head_column g h)).
Proof. unfold query, center, add, sub; simpl fst; simpl snd. f_equal; lia. Qed.

(** K1 K2 heads of dimension D_h = C_out that look at positions only: W_qry = W_key = 0. The positional encoding r and
    the vectors v_h are left open, so that encodings of different dimensions share what follows. *)
Definition positional_head (g : geometry) (W : kernel) (v_h : nat -> vector) (h : nat) : head := {|
  W_qry := zero_matrix; W_key := zero_matrix; W_pos := identity; u := zero_vector; v := v_h h;
  W_val := value_projection g W (head_row g h) (head_column g h)
|}.

Definition positional_attention
    (g : geometry) (W : kernel) (b : vector) (dimension : nat) (r : pixel -> vector) (v_h : nat -> vector) : layer pixel := {|
  D_in := C_in g; D_k := dimension; D_p := dimension; D_h := C_out g; D_out := C_out g; N_h := K1 g * K2 g;
  encoding := r;
  heads := positional_head g W v_h;
  W_out := fun j o => identity (j mod C_out g)%nat o;  (** one identity matrix below the other *)
  b_out := b
|}.

(** Theorem 1's layer, D_p = 3: r = (|delta|^2, delta_1, delta_2) and v_h = -alpha_h (1, -2 Delta_h1, -2 Delta_h2).
    Every head may have its own alpha. *)
Definition attention_of_conv (g : geometry) (W : kernel) (b : vector) (alpha : nat -> R) : layer pixel :=
  positional_attention g W b 3 relative_encoding (fun h => head_vector (alpha h) (center g h)).

(** ** What the layer computes *)

(** The positional score of head h, and the probability with which query q reads key k. *)
Definition positional_score (n : nat) (r : pixel -> vector) (v_h : vector) (q k : pixel) : R :=
  dot n v_h (r (sub k q)).

(** A value projection reads the channels of one group only. *)
Lemma block_diagonal_sum count rows columns w x o :
  (o < count * columns)%nat ->
  Sum c in seq 0 (count * rows), x c * block_diagonal rows columns w c o
  = Sum c in seq 0 rows, w o c * x (o / columns * rows + c)%nat.
Proof.
  intros Ho. assert (Hgroup : (o / columns < count)%nat) by (apply Nat.div_lt_upper_bound; nia).
  transitivity (Sum a in seq 0 count, Sum c in seq 0 rows,
    (if (a =? o / columns)%nat then w o c * x (a * rows + c)%nat else 0)).
  - rewrite <- (sum_blocks count rows (fun a c => if (a =? o / columns)%nat then w o c * x (a * rows + c)%nat else 0)).
    apply sum_ext; intros c Hc. apply in_seq in Hc. unfold block_diagonal.
    destruct (_ =? _)%nat; [|ring].
    replace (c / rows * rows + c mod rows)%nat with c; [ring|].
    rewrite Nat.mul_comm. apply Nat.div_mod. nia.
  - etransitivity; [|exact (sum_single count (o / columns)
      (fun a => Sum c in seq 0 rows, w o c * x (a * rows + c)%nat) Hgroup)].
    apply sum_ext; intros a _. destruct (a =? o / columns)%nat; [reflexivity|]. now apply sum_zero.
Qed.

Lemma value_projection_sum g W m n x o :
  (o < C_out g)%nat ->
  Sum c in seq 0 (C_in g), x c * value_projection g W m n c o
  = Sum c in seq 0 (C_in_g g), W o c m n * x (channel g o c).
Proof. apply block_diagonal_sum. Qed.

(** b_o + sum_h sum_c W_h[o, c] sum_k p_h(k) X_k: the layer, written out. *)
Lemma positional_attention_output g W b n r v_h keys X q o :
  (o < C_out g)%nat ->
  mhsa (positional_attention g W b n r v_h) keys X q o =
  b o + Sum h in seq 0 (K1 g * K2 g), Sum c in seq 0 (C_in_g g),
    W o c (head_row g h) (head_column g h)
    * Sum k in keys, softmax keys (positional_score n r (v_h h) q) k * X k (channel g o c).
Proof.
  intros Ho. rewrite mhsa_is_sum_over_heads, Rplus_comm. simpl b_out. f_equal.
  simpl N_h. apply sum_ext; intros h _. simpl D_h. simpl W_out.
  transitivity (Sum d in seq 0 (C_out g), if (d =? o)%nat
    then head_output (positional_attention g W b n r v_h) (positional_head g W v_h h) keys X q d else 0).
  { apply sum_ext; intros d Hd. apply in_seq in Hd. simpl heads.
    replace ((h * C_out g + d) mod C_out g)%nat with d.
    - unfold identity. destruct (d =? o)%nat; ring.
    - rewrite Nat.add_comm, Nat.mod_add, Nat.mod_small by lia. reflexivity. }
  rewrite sum_single by assumption. unfold head_output. simpl D_in. simpl W_val.
  rewrite (sum_ext keys _ (fun k => Sum c in seq 0 (C_in_g g), W o c (head_row g h) (head_column g h)
    * (softmax keys (positional_score n r (v_h h) q) k * X k (channel g o c)))).
  - rewrite sum_swap. apply sum_ext; intros c _. now rewrite sum_scale.
  - intros k Hk. rewrite value_projection_sum by assumption. rewrite <- sum_scale.
    apply sum_ext; intros c _. unfold probability.
    rewrite (softmax_ext keys _ (positional_score n r (v_h h) q) k Hk)
      by (intros; apply score_of_position; try reflexivity; simpl; lia). ring.
Qed.

(** The convolution in the same form: heads and taps correspond one to one. *)
Lemma conv_by_heads g W b X i j o :
  conv g W b X i j o =
  b o + Sum h in seq 0 (K1 g * K2 g), Sum c in seq 0 (C_in_g g),
    W o c (head_row g h) (head_column g h) * X (add (query g i j) (center g h)) (channel g o c).
Proof.
  unfold conv. f_equal. etransitivity.
  2: { apply sum_ext; intros h _. apply sum_ext; intros c _. rewrite query_center. reflexivity. }
  unfold head_row, head_column.
  rewrite (sum_blocks (K1 g) (K2 g) (fun m n => Sum c in seq 0 (C_in_g g),
    W o c m n * X (add (corner g i j) (tap g m n)) (channel g o c))).
  rewrite sum_swap. apply sum_ext; intros m _. apply sum_swap.
Qed.

(** The head of every tap looks at a key, whatever the query. *)
Lemma head_target_in_grid g H W i j h :
  (0 < s1 g)%nat -> (0 < s2 g)%nat -> is_output g H W i j -> (h < K1 g * K2 g)%nat ->
  In (add (query g i j) (center g h)) (grid H W).
Proof.
  intros Hs1 Hs2 Hout Hh. rewrite query_center. apply target_in_grid; auto.
  - apply Nat.div_lt_upper_bound; nia.
  - apply Nat.mod_upper_bound. nia.
Qed.

(** The query itself is a key. *)
Lemma query_in_grid g H W i j :
  (0 < s1 g)%nat -> (0 < s2 g)%nat -> (0 < K1 g)%nat -> (0 < K2 g)%nat -> is_output g H W i j ->
  In (query g i j) (grid H W).
Proof.
  intros Hs1 Hs2 HK1 HK2 Hout. apply target_in_grid; auto; apply Nat.div_lt_upper_bound; lia.
Qed.

(** ** The error of one layer, from the tails of its heads *)

(** The largest minus the smallest of some numbers; 0 if there are none. *)
Fixpoint maximum (l : list R) : R :=
  match l with [] => 0 | [a] => a | a :: rest => Rmax a (maximum rest) end.
Definition minimum (l : list R) : R := - maximum (map Ropp l).

Lemma maximum_spec l : l <> [] -> In (maximum l) l /\ forall x, In x l -> x <= maximum l.
Proof.
  induction l as [|a [|b l] IH]; [congruence|simpl; intuition lra|]. intros _.
  destruct IH as [IH1 IH2]; [discriminate|]. change (maximum (a :: b :: l)) with (Rmax a (maximum (b :: l))).
  pose proof (Rmax_l a (maximum (b :: l))). pose proof (Rmax_r a (maximum (b :: l))). split.
  - unfold Rmax at 1. destruct Rle_dec; [now right|now left].
  - intros x [<-|Hx]; [assumption|]. specialize (IH2 x Hx). lra.
Qed.

Lemma maximum_unique l m : In m l -> (forall x, In x l -> x <= m) -> maximum l = m.
Proof.
  intros Hm H. destruct (maximum_spec l) as [H1 H2]; [intros ->; contradiction|].
  pose proof (H _ H1). pose proof (H2 _ Hm). lra.
Qed.

Example extremes : maximum [1; 3; 2] = 3 /\ minimum [1; -3; 2] = -3.
Proof.
  unfold minimum. rewrite (maximum_unique _ 3), (maximum_unique _ (- -3)) by (simpl; intuition lra). lra.
Qed.

(** osc_c = max - min of channel c over the padded input. *)
Definition osc {P : Type} (keys : list P) (X : P -> vector) (c : nat) : R :=
  maximum (map (fun k => X k c) keys) - minimum (map (fun k => X k c) keys).

Lemma osc_spec {P} (keys : list P) X c k t : In k keys -> In t keys -> Rabs (X k c - X t c) <= osc keys X c.
Proof.
  intros Hk Ht. unfold osc, minimum. set (l := map (fun p => X p c) keys).
  assert (bounds : forall p, In p keys -> - maximum (map Ropp l) <= X p c <= maximum l).
  { intros p Hp. assert (Hx : In (X p c) l) by (apply (in_map (fun q => X q c)), Hp).
    assert (l <> []) by (intros E; rewrite E in Hx; contradiction).
    assert (map Ropp l <> []) by (intros E; now apply map_eq_nil in E).
    split; [|now apply maximum_spec].
    enough (- X p c <= maximum (map Ropp l)) by lra. apply maximum_spec; auto. now apply in_map. }
  pose proof (bounds k Hk). pose proof (bounds t Ht). apply Rabs_le. lra.
Qed.

Lemma osc_nonneg {P} (keys : list P) X c k : In k keys -> 0 <= osc keys X c.
Proof. intros Hk. pose proof (osc_spec keys X c k k Hk Hk). pose proof (Rabs_pos (X k c - X k c)). lra. Qed.

(** If what misses the target of head h is at most tails h, the layer differs from the convolution by at most
    sum_c osc_c sum_h tails_h |W_h[o, c]|. *)
Lemma layer_error g W b n r v_h H Wd X i j o (tails : nat -> R) :
  (o < C_out g)%nat -> (0 < s1 g)%nat -> (0 < s2 g)%nat -> is_output g H Wd i j ->
  (forall h, (h < K1 g * K2 g)%nat ->
    1 - softmax (grid H Wd) (positional_score n r (v_h h) (query g i j)) (add (query g i j) (center g h)) <= tails h) ->
  Rabs (mhsa (positional_attention g W b n r v_h) (grid H Wd) X (query g i j) o - conv g W b X i j o)
  <= Sum c in seq 0 (C_in_g g), osc (grid H Wd) X (channel g o c)
     * Sum h in seq 0 (K1 g * K2 g), tails h * Rabs (W o c (head_row g h) (head_column g h)).
Proof.
  intros Ho Hs1 Hs2 Hout Htails.
  rewrite positional_attention_output, conv_by_heads by assumption.
  set (target := fun h => add (query g i j) (center g h)).
  set (read := fun h c => Sum k in grid H Wd,
    softmax (grid H Wd) (positional_score n r (v_h h) (query g i j)) k * X k (channel g o c)).
  replace (_ - _) with (Sum h in seq 0 (K1 g * K2 g), Sum c in seq 0 (C_in_g g),
    W o c (head_row g h) (head_column g h) * (read h c - X (target h) (channel g o c))).
  2: { unfold read, target.
       match goal with |- _ = ?B + ?A - (?B + ?C) => replace (B + A - (B + C)) with (A - C) by ring end.
       rewrite <- sum_minus. apply sum_ext; intros h _. rewrite <- sum_minus. apply sum_ext; intros c _. ring. }
  rewrite sum_swap. eapply Rle_trans; [apply sum_abs|]. apply sum_le; intros c _.
  eapply Rle_trans; [apply sum_abs|]. rewrite <- sum_scale. apply sum_le; intros h Hh. apply in_seq in Hh.
  assert (Ht : In (target h) (grid H Wd)) by (apply head_target_in_grid; auto; lia).
  rewrite Rabs_mult.
  assert (Rabs (read h c - X (target h) (channel g o c)) <= tails h * osc (grid H Wd) X (channel g o c)).
  { eapply Rle_trans.
    - apply softmax_read with (x := fun k => X k (channel g o c)) (osc := osc (grid H Wd) X (channel g o c)); auto.
      intros k Hk. now apply osc_spec.
    - apply Rmult_le_compat_r; [now apply osc_nonneg with (target h)|]. apply Htails. lia. }
  pose proof (Rabs_pos (W o c (head_row g h) (head_column g h))). nra.
Qed.
