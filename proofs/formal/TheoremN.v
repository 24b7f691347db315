(** * Theorem 1, whole: any number of axes, D_p >= n + 1, any D_k, D_h and D_out, N_h at least the taps, one alpha for all
    images

    The printed theorem, with a bound. The layer has any dimensions that the theorem allows: further components of the
    encoding are ignored, further heads give nothing, and min(D_h, D_out) output channels are the convolution's. The
    positions' matrix W_pos is the identity, with rows of zeros below it or without its last rows, where D_k >= n + 1; a
    matrix for each head does for every D_k >= 1. One alpha serves all images whose values are at most B, of every size and
    with every padding. Beside
    proofs/claims/certificate/tail.py (claim error-bound), proofs/claims/theorem/assembly.py (claim head-assembly) and
    proofs/claims/theorem/encoding.py (claim encoding-identity). *)

From Coq Require Import ZArith Arith Lia Lra Psatz.
From Conv2Attn Require Import Sums Encoding Softmax Theta Grid Convolution Attention Construction Theorem1.
From Conv2Attn Require Import Box ConvolutionN Padding.

(** ** The layer *)

(** The dimensions of a layer, as the paper has them. *)
Record dimensions := Dimensions { positional : nat; key_dim : nat; head_dim : nat; out_dim : nat; head_count : nat }.

(** What the theorem asks of them, for a convolution: D_p >= n + 1 and D_k >= n + 1, as many heads as taps at least, and no
    more output channels than min(D_h, D_out). *)
Definition enough (d : dimensions) (g : geometry_n) : Prop :=
  (length (axes g) + 1 <= positional d)%nat /\ (length (axes g) + 1 <= key_dim d)%nat /\
  (length (taps g) <= head_count d)%nat /\
  (groups_n g * outputs g <= Nat.min (head_dim d) (out_dim d))%nat.

(** An encoding of any dimension whose first n + 1 components are (|delta|^2, delta_1, ..., delta_n). *)
Definition extends_encoding (n : nat) (r : position -> vector) : Prop :=
  forall delta i, length delta = n -> (i < n + 1)%nat -> r delta i = relative_encoding_n (map IZR delta) i.

(** Head h plays tap h, with a sharpness of its own; there may be more heads than taps, and what they look at
    does not matter. *)
Definition head_n (g : geometry_n) (W : kernel_n) (alpha : position -> R) (h : nat) : head :=
  match nth_error (taps g) h with
  | Some m => {|
      W_qry := zero_matrix; W_key := zero_matrix; W_pos := identity; u := zero_vector;
      v := head_vector_n (alpha m) (map IZR (center_n (axes g) m));
      W_val := fun c d => if (d <? groups_n g * outputs g)%nat
        then block_diagonal (inputs g) (outputs g) (fun o c => W o c m) c d else 0
    |}
  | None => {|
      W_qry := zero_matrix; W_key := zero_matrix; W_pos := identity; u := zero_vector; v := zero_vector;
      W_val := zero_matrix
    |}
  end.

Definition attention_n (d : dimensions) (r : position -> vector) (g : geometry_n) (W : kernel_n) (b : vector)
    (alpha : position -> R) : layer position := {|
  D_in := groups_n g * inputs g; D_k := key_dim d; D_p := positional d; D_h := head_dim d; D_out := out_dim d;
  N_h := head_count d;
  encoding := r;
  heads := head_n g W alpha;
  W_out := fun j o => identity (j mod head_dim d)%nat o;
  b_out := b
|}.

(** ** What it computes *)

(** Head h scores key k by its distance from the target q + Delta_h. *)
Lemma score_n d r g W b alpha h m X (q k : position) :
  enough d g -> extends_encoding (length (axes g)) r -> nth_error (taps g) h = Some m ->
  length q = length (axes g) -> length k = length (axes g) ->
  score (attention_n d r g W b alpha) (head_n g W alpha h) X q k
  = - alpha m * distance2 k (moved q (center_n (axes g) m))
    + alpha m * norm2_n (map IZR (center_n (axes g) m)).
Proof.
  intros (HDp & HDk & _) Hr Hm Hq Hk. unfold head_n. rewrite Hm.
  assert (Hlm : length m = length (axes g)).
  { apply nth_error_In in Hm. apply length_in_box in Hm. now rewrite map_length in Hm. }
  set (n := length (axes g)) in *.
  assert (Hc : length (center_n (axes g) m) = n) by now apply length_center_n.
  assert (Hd : length (difference k q) = n) by (unfold difference, points; rewrite length_from; lia).
  assert (Hv : forall i, (n + 1 <= i)%nat -> head_vector_n (alpha m) (map IZR (center_n (axes g) m)) i = 0).
  { intros i Hi. unfold head_vector_n, vec. apply nth_overflow. cbn [length]. rewrite !map_length, Hc. lia. }
  rewrite score_of_position; [|reflexivity|reflexivity|reflexivity|cbn [v D_k D_p attention_n]; intros i Hi; apply Hv; lia].
  cbn [D_p attention_n v encoding].
  set (delta := difference k q) in *. set (center := center_n (axes g) m) in *.
  transitivity (dot (n + 1) (head_vector_n (alpha m) (map IZR center)) (relative_encoding_n (map IZR delta))).
  - unfold dot. replace (positional d) with ((n + 1) + (positional d - (n + 1)))%nat by lia.
    rewrite seq_app, sum_app, (sum_zero (seq (0 + (n + 1)) _)).
    + rewrite Rplus_0_r. apply sum_ext. intros i Hi. apply in_seq in Hi. now rewrite (Hr delta i Hd ltac:(lia)).
    + intros i Hi. apply in_seq in Hi. unfold center. rewrite Hv by lia. ring.
  - rewrite encoding_identity_n by now rewrite map_length.
    rewrite <- distance2_norm. unfold delta, difference, points. now rewrite distance2_from by lia.
Qed.

(** A sum over numbered heads, of which the first play the taps in their order and the others give nothing. *)
Lemma sum_numbered {A} (l : list A) n (f : nat -> A -> R) (F : nat -> R) :
  (length l <= n)%nat -> (forall h a, nth_error l h = Some a -> F h = f h a) ->
  (forall h, (length l <= h)%nat -> F h = 0) ->
  Sum h in seq 0 n, F h = Sum h in seq 0 (length l), F h.
Proof.
  intros Hn _ Hrest. replace n with (length l + (n - length l))%nat by lia.
  rewrite seq_app, sum_app, (sum_zero (seq (0 + length l) _)); [ring|].
  intros h Hh. apply in_seq in Hh. apply Hrest. lia.
Qed.

Lemma sum_by_number {A} (l : list A) (f : A -> R) (F : nat -> R) :
  (forall h a, nth_error l h = Some a -> F h = f a) -> Sum h in seq 0 (length l), F h = Sum a in l, f a.
Proof.
  revert F. induction l as [|a l IH]; intros F HF; [reflexivity|].
  cbn [length seq sum_over]. rewrite (HF 0%nat a) by reflexivity. f_equal.
  rewrite sum_shift. apply IH. intros h a' H. now apply HF.
Qed.

(** b_o + sum over the taps of sum_c W_m[o, c] sum_k p_m(k) X_k: the layer, written out. *)
Definition read_n (alpha : R) (keys : list position) (t : position) (x : position -> R) : R :=
  Sum k in keys, softmax keys (fun k => - alpha * distance2 k t) k * x k.

Lemma attention_n_output d r g W b alpha sizes X q o :
  enough d g -> extends_encoding (length (axes g)) r ->
  length q = length (axes g) -> length sizes = length (axes g) -> (o < groups_n g * outputs g)%nat ->
  mhsa (attention_n d r g W b alpha) (box sizes) X q o =
  b o + Sum m in taps g, Sum c in seq 0 (inputs g),
    W o c m * read_n (alpha m) (box sizes) (moved q (center_n (axes g) m)) (fun k => X k (o / outputs g * inputs g + c)%nat).
Proof.
  intros Henough Hr Hq Hsizes Ho. pose proof Henough as (HDp & _ & HNh & Hdim).
  rewrite mhsa_is_sum_over_heads, Rplus_comm. cbn [b_out attention_n N_h D_h W_out heads]. f_equal.
  set (f := fun m => Sum c in seq 0 (inputs g), W o c m *
    read_n (alpha m) (box sizes) (moved q (center_n (axes g) m)) (fun k => X k (o / outputs g * inputs g + c)%nat)).
  set (L := attention_n d r g W b alpha).
  set (F := fun h => Sum d0 in seq 0 (head_dim d),
    head_output L (head_n g W alpha h) (box sizes) X q d0 * identity ((h * head_dim d + d0) mod head_dim d) o).
  change (Sum h in seq 0 (head_count d), F h = Sum m in taps g, f m).
  assert (Hone : forall h, F h = head_output L (head_n g W alpha h) (box sizes) X q o).
  { intros h. unfold F.
    transitivity (Sum d0 in seq 0 (head_dim d), if (d0 =? o)%nat
      then head_output L (head_n g W alpha h) (box sizes) X q d0 else 0); [|now apply sum_single; lia].
    apply sum_ext. intros d0 Hd0. apply in_seq in Hd0.
    replace ((h * head_dim d + d0) mod head_dim d)%nat with d0.
    - unfold identity. destruct (d0 =? o)%nat; ring.
    - rewrite Nat.add_comm, Nat.mod_add, Nat.mod_small by lia. reflexivity. }
  assert (Htap : forall h m, nth_error (taps g) h = Some m -> F h = f m).
  { intros h m Hm. rewrite Hone. unfold head_output. cbn [D_in L attention_n].
    rewrite (sum_ext (box sizes) _ (fun k => Sum c in seq 0 (inputs g), W o c m
      * (softmax (box sizes) (fun k => - alpha m * distance2 k (moved q (center_n (axes g) m))) k
         * X k (o / outputs g * inputs g + c)%nat))).
    - rewrite sum_swap. apply sum_ext; intros c _. now rewrite sum_scale.
    - intros k Hk. unfold probability.
      rewrite (softmax_ext _ _ (fun k => - alpha m * distance2 k (moved q (center_n (axes g) m))
        + alpha m * norm2_n (map IZR (center_n (axes g) m))) k Hk).
      2: { intros l Hl. apply length_in_box in Hl. apply score_n; auto; lia. }
      rewrite softmax_shift by assumption.
      transitivity (softmax (box sizes) (fun k => - alpha m * distance2 k (moved q (center_n (axes g) m))) k
        * Sum c in seq 0 (groups_n g * inputs g), X k c * block_diagonal (inputs g) (outputs g) (fun o c => W o c m) c o).
      + f_equal. apply sum_ext. intros c _. unfold head_n. rewrite Hm. cbn [W_val].
        rewrite (proj2 (Nat.ltb_lt o _) Ho). reflexivity.
      + rewrite (block_diagonal_sum (groups_n g)) by assumption. rewrite <- sum_scale. apply sum_ext; intros c _. ring. }
  rewrite (sum_numbered (taps g) (head_count d) (fun _ => f) F HNh Htap).
  - now apply sum_by_number.
  - intros h Hh. rewrite Hone. unfold head_output. apply sum_zero. intros k _.
    rewrite sum_zero; [ring|]. intros c _. unfold head_n.
    rewrite (proj2 (nth_error_None _ _) Hh). cbn [W_val]. unfold zero_matrix. ring.
Qed.

(** The convolution in the same form. *)
Lemma conv_n_by_taps g W b X i o :
  length i = length (axes g) ->
  conv_n g W b X i o = b o + Sum m in taps g, Sum c in seq 0 (inputs g),
    W o c m * X (moved (query_n (axes g) i) (center_n (axes g) m)) (o / outputs g * inputs g + c)%nat.
Proof.
  intros Hi. unfold conv_n. f_equal. rewrite sum_swap. apply sum_ext; intros m Hm. apply sum_ext; intros c _.
  rewrite query_center_n; auto. apply length_in_box in Hm. now rewrite map_length in Hm.
Qed.

(** ** The theorem, with a bound *)

(** Where tap m's head looks from the query of output i. *)
Definition target_n (g : geometry_n) (i m : position) : position := moved (query_n (axes g) i) (center_n (axes g) m).

Lemma target_in_box g sizes i m :
  valid_n g -> is_output_n (axes g) sizes i -> In m (taps g) -> In (target_n g i m) (box sizes).
Proof.
  intros Hvalid Hout Hm. unfold target_n. destruct (length_output _ _ _ Hout) as [Hi _].
  rewrite query_center_n; [now apply reads_in_box|assumption|].
  apply length_in_box in Hm. now rewrite map_length in Hm.
Qed.

(** The layer minus the convolution: what each tap reads of each input channel, minus what is at its target. *)
Definition channel_difference (g : geometry_n) (W : kernel_n) (alpha : position -> R) (keys : list position)
    (X : position -> vector) (i : position) (o c : nat) : R :=
  Sum m in taps g, W o c m *
    (read_n (alpha m) keys (target_n g i m) (fun k => X k (o / outputs g * inputs g + c)%nat)
     - X (target_n g i m) (o / outputs g * inputs g + c)%nat).

Lemma difference_n d r g W b alpha sizes X i o :
  enough d g -> extends_encoding (length (axes g)) r -> is_output_n (axes g) sizes i ->
  (o < groups_n g * outputs g)%nat ->
  mhsa (attention_n d r g W b alpha) (box sizes) X (query_n (axes g) i) o - conv_n g W b X i o
  = Sum c in seq 0 (inputs g), channel_difference g W alpha (box sizes) X i o c.
Proof.
  unfold channel_difference. intros Henough Hr Hout Ho. destruct (length_output _ _ _ Hout) as [Hi Hsizes].
  assert (Hq : length (query_n (axes g) i) = length (axes g)).
  { apply length_reads; [assumption|apply length_middle_n]. }
  rewrite attention_n_output, conv_n_by_taps by assumption. unfold target_n.
  match goal with |- ?B + ?A - (?B + ?C) = _ => replace (B + A - (B + C)) with (A - C) by ring end.
  rewrite (sum_swap (seq 0 (inputs g))). rewrite <- sum_minus. apply sum_ext; intros m _.
  rewrite <- sum_minus. apply sum_ext; intros c _. ring.
Qed.

(** sum_c osc_c sum_h tau(alpha_h) |W_h[o, c]| *)
Definition tail_bound_n (g : geometry_n) (W : kernel_n) (alpha : position -> R) (keys : list position)
    (X : position -> vector) (o : nat) : R :=
  Sum c in seq 0 (inputs g), osc keys X (o / outputs g * inputs g + c)%nat
  * Sum m in taps g, tau_n (length (axes g)) (alpha m) * Rabs (W o c m).

Lemma channel_tail g W alpha sizes X i o c :
  valid_n g -> (forall m, In m (taps g) -> 0 < alpha m) -> is_output_n (axes g) sizes i ->
  Rabs (channel_difference g W alpha (box sizes) X i o c)
  <= osc (box sizes) X (o / outputs g * inputs g + c)%nat
     * Sum m in taps g, tau_n (length (axes g)) (alpha m) * Rabs (W o c m).
Proof.
  intros Hvalid Ha Hout. destruct (length_output _ _ _ Hout) as [Hi Hsizes]. unfold channel_difference.
  eapply Rle_trans; [apply sum_abs|]. rewrite <- sum_scale. apply sum_le; intros m Hm.
  assert (Ht : In (target_n g i m) (box sizes)) by now apply target_in_box.
  set (x := fun k => X k (o / outputs g * inputs g + c)%nat). rewrite Rabs_mult.
  assert (Rabs (read_n (alpha m) (box sizes) (target_n g i m) x - x (target_n g i m))
    <= tau_n (length (axes g)) (alpha m) * osc (box sizes) X (o / outputs g * inputs g + c)%nat).
  { unfold read_n. eapply Rle_trans.
    - apply softmax_read with (osc := osc (box sizes) X (o / outputs g * inputs g + c)%nat); [assumption|].
      intros k Hk. unfold x. now apply (osc_spec (box sizes) X).
    - apply Rmult_le_compat_r; [now apply osc_nonneg with (target_n g i m)|]. rewrite <- Hsizes.
      apply box_tail with (c := 0); auto. intros k _. ring. }
  pose proof (Rabs_pos (W o c m)). unfold x in *. nra.
Qed.

(** For every kernel, stride, dilation, number of groups and axes, bias and alpha_h > 0, every image on the padded grid,
    and every output: *)
Theorem theorem_1_n_per_head d r g W b alpha sizes X i o :
  enough d g -> extends_encoding (length (axes g)) r -> valid_n g -> (forall m, In m (taps g) -> 0 < alpha m) ->
  is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat ->
  Rabs (mhsa (attention_n d r g W b alpha) (box sizes) X (query_n (axes g) i) o - conv_n g W b X i o)
  <= tail_bound_n g W alpha (box sizes) X o.
Proof.
  intros Henough Hr Hvalid Ha Hout Ho. rewrite difference_n by assumption.
  eapply Rle_trans; [apply sum_abs|]. apply sum_le; intros c _. now apply channel_tail.
Qed.

(** sum_c osc_c sum_Delta |W[o, c, Delta]| *)
Definition weighted_range_n (g : geometry_n) (W : kernel_n) (keys : list position) (X : position -> vector) (o : nat) : R :=
  Sum c in seq 0 (inputs g), osc keys X (o / outputs g * inputs g + c)%nat * Sum m in taps g, Rabs (W o c m).

(** If all heads share alpha: |Attention - Conv| <= tau_n sum_c osc_c sum_Delta |W[o, c, Delta]|. *)
Corollary theorem_1_n d r g W b alpha sizes X i o :
  enough d g -> extends_encoding (length (axes g)) r -> valid_n g -> 0 < alpha ->
  is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat ->
  Rabs (mhsa (attention_n d r g W b (fun _ => alpha)) (box sizes) X (query_n (axes g) i) o - conv_n g W b X i o)
  <= tau_n (length (axes g)) alpha * weighted_range_n g W (box sizes) X o.
Proof.
  intros Henough Hr Hvalid Ha Hout Ho.
  replace (tau_n (length (axes g)) alpha * weighted_range_n g W (box sizes) X o)
    with (tail_bound_n g W (fun _ => alpha) (box sizes) X o); [now apply theorem_1_n_per_head|].
  unfold tail_bound_n, weighted_range_n. rewrite <- sum_scale. apply sum_ext; intros c _. rewrite sum_scale. ring.
Qed.

(** ** One alpha for all images that are bounded by B *)

Lemma osc_bounded {P} (keys : list P) X c B :
  0 <= B -> (forall k, In k keys -> Rabs (X k c) <= B) -> osc keys X c <= 2 * B.
Proof.
  intros HB HX. unfold osc, minimum. set (l := map (fun k => X k c) keys).
  assert (Hl : forall x, In x l -> - B <= x <= B).
  { intros x Hx. apply in_map_iff in Hx. destruct Hx as (k & <- & Hk). specialize (HX k Hk).
    split_Rabs; lra. }
  clearbody l. destruct l as [|a l]; [simpl; lra|].
  destruct (maximum_spec (a :: l)) as [H1 _]; [discriminate|].
  destruct (maximum_spec (map Ropp (a :: l))) as [H2 _]; [discriminate|].
  apply Hl in H1. apply in_map_iff in H2. destruct H2 as (y & Hy & H2). apply Hl in H2. lra.
Qed.

(** The largest sum over |W[o, c, Delta]| of an output channel. *)
Definition largest_kernel (g : geometry_n) (W : kernel_n) : R :=
  maximum (map (fun o => Sum c in seq 0 (inputs g), Sum m in taps g, Rabs (W o c m)) (seq 0 (groups_n g * outputs g))).

Definition alpha_for (g : geometry_n) (W : kernel_n) (B eps : R) : R :=
  ln (2 + 4 * INR (length (axes g)) * B * largest_kernel g W / eps).

(** Theorem 1: for all dimensions D_p >= n + 1, D_k >= n + 1, D_h, D_out and N_h >= K^n, every convolution with at most
    min(D_h, D_out) output channels, every B and every eps there is one alpha such that the attention layer is nearer
    than eps to the convolution on all images with values of at most B, at every output. *)
Theorem theorem_1_whole d r g W b B eps :
  enough d g -> extends_encoding (length (axes g)) r -> valid_n g -> 0 <= B -> 0 < eps ->
  forall alpha, alpha_for g W B eps <= alpha ->
  forall sizes X i o, (forall k c, In k (box sizes) -> Rabs (X k c) <= B) ->
  is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat ->
  Rabs (mhsa (attention_n d r g W b (fun _ => alpha)) (box sizes) X (query_n (axes g) i) o - conv_n g W b X i o) < eps.
Proof.
  intros Henough Hr Hvalid HB Heps alpha Halpha sizes X i o HX Hout Ho.
  set (n := INR (length (axes g))). set (M := largest_kernel g W).
  set (A := Sum c in seq 0 (inputs g), Sum m in taps g, Rabs (W o c m)).
  assert (HA0 : 0 <= A) by (apply sum_nonneg; intros; apply sum_nonneg; intros; apply Rabs_pos).
  assert (HA : A <= M).
  { unfold M, largest_kernel. apply maximum_spec.
    - intros E. apply map_eq_nil in E. destruct (groups_n g * outputs g)%nat; [lia|discriminate].
    - apply in_map_iff. exists o. split; [reflexivity|]. apply in_seq. lia. }
  unfold alpha_for in Halpha. fold n M in Halpha.
  assert (Hn : 0 <= n) by apply pos_INR.
  set (need := 2 + 4 * n * B * M / eps) in *.
  assert (0 <= 4 * n * B * M / eps).
  { apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat; lra]. repeat apply Rmult_le_pos; lra. }
  assert (Hneed : 0 < ln need) by (rewrite <- ln_1; apply ln_increasing; unfold need; lra).
  assert (Hpos : 0 < alpha) by lra.
  pose proof (tau_n_bounds (length (axes g)) alpha Hpos) as Htau. fold n in Htau. cbv zeta in Htau.
  pose proof (decay_range alpha Hpos) as Hq. set (q := decay alpha) in *.
  assert (Hq1 : q * need <= 1).
  { unfold q, decay. rewrite <- (exp_ln need) by (unfold need; lra). rewrite <- exp_plus, <- exp_0.
    destruct (Req_dec (- alpha + ln need) 0) as [->|]; [lra|left; apply exp_increasing; lra]. }
  eapply Rle_lt_trans; [now apply theorem_1_n|].
  assert (Hrange : weighted_range_n g W (box sizes) X o <= 2 * B * A).
  { unfold weighted_range_n, A. rewrite <- sum_scale. apply sum_le; intros c _.
    apply Rmult_le_compat_r; [apply sum_nonneg; intros; apply Rabs_pos|]. apply osc_bounded; auto. }
  assert (Hrange0 : 0 <= weighted_range_n g W (box sizes) X o).
  { apply sum_nonneg; intros c _. apply Rmult_le_pos; [apply osc_nonneg_all|]. apply sum_nonneg; intros; apply Rabs_pos. }
  assert (Htau' : tau_n (length (axes g)) alpha <= 2 * n * q).
  { apply Rle_trans with (2 * n * q / (1 + q)); [lra|].
    apply Rmult_le_reg_r with (1 + q); [lra|].
    replace (2 * n * q / (1 + q) * (1 + q)) with (2 * n * q) by (field; lra).
    assert (0 <= n * q) by (apply Rmult_le_pos; lra). nra. }
  apply Rle_lt_trans with (2 * n * q * (2 * B * M)).
  - apply Rmult_le_compat; [lra|assumption|assumption|].
    apply Rle_trans with (2 * B * A); [assumption|]. apply Rmult_le_compat_l; lra.
  - assert (H1 : q * need * eps <= eps) by nra.
    replace (q * need * eps) with (2 * q * eps + 2 * n * q * (2 * B * M)) in H1 by (unfold need; field; lra).
    nra.
Qed.

(** In particular for images before padding: whatever PyTorch puts around them, one alpha serves all. *)
Corollary theorem_1_padded d r g W b mode B eps :
  enough d g -> extends_encoding (length (axes g)) r -> valid_n g -> 0 <= B -> 0 < eps ->
  exists alpha_0, forall alpha, alpha_0 <= alpha ->
  forall l X i o, allowed_all mode l -> (forall p c, In p (box (map pixels_of l)) -> Rabs (X p c) <= B) ->
  is_output_n (axes g) (map padded_size l) i -> (o < groups_n g * outputs g)%nat ->
  Rabs (mhsa (attention_n d r g W b (fun _ => alpha)) (box (map padded_size l)) (pad mode l X) (query_n (axes g) i) o
        - conv_n g W b (pad mode l X) i o) < eps.
Proof.
  intros Henough Hr Hvalid HB Heps. exists (alpha_for g W B eps). intros alpha Ha l X i o Hl HX Hout Ho.
  apply theorem_1_whole with (B := B); auto. intros k c Hk.
  apply (padded_within_bounds (sources mode l) X B (box (map padded_size l)) (box (map pixels_of l))); auto.
  intros k' p Hk' E. now apply (sources_in_image mode l k').
Qed.

(** ** A matrix of positions for each head: D_k >= 1 *)

(** Scores depend on v and W_pos through v . W_pos alone, so a head that looks at positions only may have v . W_pos as the
    first row of its W_pos, zeros below, and v = (1, 0, ..., 0). *)
Definition head_1 (h : head) : head := {|
  W_qry := zero_matrix; W_key := zero_matrix; W_pos := fun i => match i with O => v h | _ => zero_vector end;
  u := zero_vector; v := vec [1]; W_val := W_val h
|}.

Definition attention_1 (key : nat) (L : layer position) : layer position := {|
  D_in := D_in L; D_k := key; D_p := D_p L; D_h := D_h L; D_out := D_out L; N_h := N_h L; encoding := encoding L;
  heads := fun h => head_1 (heads L h); W_out := W_out L; b_out := b_out L
|}.

Lemma score_1 key L h X q k :
  (1 <= key)%nat -> score (attention_1 key L) (head_1 h) X q k = dot (D_p L) (v h) (encoding L (difference k q)).
Proof.
  intros Hkey. unfold score. cbn [attention_1 head_1 D_in D_k D_p encoding W_qry W_key W_pos u v].
  rewrite !(dot_zero_l _ (apply _ zero_matrix _)), dot_zero_r by (intros; apply apply_zero). rewrite !Rplus_0_l.
  transitivity (Sum i in seq 0 key, if (i =? 0)%nat then dot (D_p L) (v h) (encoding L (difference k q)) else 0).
  - apply sum_ext; intros i _. unfold vec. destruct i as [|[|i]]; cbn [nth Nat.eqb]; [unfold apply|..]; ring.
  - now apply sum_single.
Qed.

Lemma attention_1_output key d r g W b alpha keys X q o :
  (1 <= key)%nat -> enough d g ->
  mhsa (attention_1 key (attention_n d r g W b alpha)) keys X q o = mhsa (attention_n d r g W b alpha) keys X q o.
Proof.
  intros Hkey (HDp & HDk & _). rewrite !mhsa_is_sum_over_heads. f_equal.
  apply sum_ext; intros h _. apply sum_ext; intros e _. f_equal.
  unfold head_output. apply sum_ext; intros k Hk. f_equal. unfold probability. apply softmax_ext; [assumption|].
  intros l _. cbn [attention_1 heads]. rewrite score_1 by assumption.
  symmetry. apply score_of_position; cbn [attention_n heads]; unfold head_n;
    destruct (nth_error (taps g) h) as [m|] eqn:Hm; try reflexivity.
  cbn [v D_k D_p attention_n]. intros i Hi. unfold head_vector_n, vec. apply nth_overflow. cbn [length].
  assert (length m = length (axes g)).
  { apply nth_error_In in Hm. apply length_in_box in Hm. now rewrite map_length in Hm. }
  rewrite !map_length, length_center_n by assumption. lia.
Qed.

(** So Theorem 1 holds for every D_k >= 1, where every head has a W_pos of its own. *)
Corollary theorem_1_every_key_dimension key d r g W b B eps :
  (1 <= key)%nat ->
  enough d g -> extends_encoding (length (axes g)) r -> valid_n g -> 0 <= B -> 0 < eps ->
  forall alpha, alpha_for g W B eps <= alpha ->
  forall sizes X i o, (forall k c, In k (box sizes) -> Rabs (X k c) <= B) ->
  is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat ->
  Rabs (mhsa (attention_1 key (attention_n d r g W b (fun _ => alpha))) (box sizes) X (query_n (axes g) i) o
        - conv_n g W b X i o) < eps.
Proof.
  intros Hkey Henough Hr Hvalid HB Heps alpha Ha sizes X i o HX Hout Ho. rewrite attention_1_output by assumption.
  now apply theorem_1_whole with (B := B).
Qed.

(** The largest D_k, D_h and D_out that are needed are n + 1 and the convolution's channels; more is allowed, and ignored:
    here D_p = 7, D_k = 9 or 4, D_h = 5, D_out = 4 and 12 heads for a 3 x 3 kernel with two output channels. *)
Example larger_dimensions key :
  In key [9; 4]%nat ->
  enough {| positional := 7; key_dim := key; head_dim := 5; out_dim := 4; head_count := 12 |}
    {| axes := [Axis 3 1 1; Axis 3 2 1]; groups_n := 2; inputs := 1; outputs := 1 |}.
Proof. intros [<-|[<-|[]]]; unfold enough; simpl; lia. Qed.
