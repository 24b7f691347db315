(** * What a head loses to its neighbours, they give back: the smaller bound, for every kernel

    The bound that convert/bounds/tail.py takes where it is smaller than that of Theorem 1, beside
    proofs/claims/certificate/tail.py (claim smoothed-kernel). It is stated for every key grid: what the claim
    sums over Z^n is a sum over a finite window of points, and what the window leaves out. *)

From Coq Require Import ZArith Arith Lia Lra Psatz.
From Conv2Attn Require Import Sums Encoding Softmax Theta Grid Convolution Attention Construction Theorem1.
From Conv2Attn Require Import Box ConvolutionN TheoremN.

(** ** Weights that add up to zero *)

(** sum_k g_k x_k is at most half of osc sum_k |g_k| if the g_k add up to 0: half, because x may be counted from the
    middle of its range. *)
Lemma balanced_sum {P} (keys : list P) (g : P -> R) (X : P -> vector) c :
  Sum k in keys, g k = 0 ->
  Rabs (Sum k in keys, g k * X k c) <= osc keys X c / 2 * Sum k in keys, Rabs (g k).
Proof.
  intros Hg. destruct keys as [|key keys]; [simpl; rewrite Rabs_R0; lra|].
  set (l := map (fun k => X k c) (key :: keys)).
  set (middle := (maximum l + minimum l) / 2).
  replace (Sum k in key :: keys, g k * X k c) with (Sum k in key :: keys, g k * (X k c - middle)).
  2: { rewrite (sum_ext _ _ (fun k => g k * X k c - g k * middle)) by (intros; ring).
       rewrite sum_minus, sum_scale_r. setoid_rewrite Hg. ring. }
  eapply Rle_trans; [apply sum_abs|]. rewrite <- sum_scale. apply sum_le. intros k Hk.
  rewrite Rabs_mult, Rmult_comm. apply Rmult_le_compat_r; [apply Rabs_pos|].
  assert (Hx : In (X k c) l) by (apply (in_map (fun k => X k c)), Hk).
  assert (H1 : X k c <= maximum l) by (apply maximum_spec; [discriminate|assumption]).
  assert (H2 : minimum l <= X k c).
  { unfold minimum. enough (- X k c <= maximum (map Ropp l)) by lra.
    apply maximum_spec; [discriminate|]. now apply in_map. }
  unfold osc. fold l. unfold middle. split_Rabs; lra.
Qed.

(** ** Heads on all of Z^n *)

(** p(z) = q^(|z - t|^2) / theta_3(q)^n: what a head with target t gives point z if all of Z^n are keys; its change u;
    and P, what it gives to the points of a list. *)
Definition share (alpha : R) (t z : position) : R :=
  exp (- alpha * distance2 z t) / theta3 (decay alpha) ^ length t.

Definition position_eq_dec : forall p q : position, {p = q} + {p <> q} := list_eq_dec Z.eq_dec.

Definition is_target (t z : position) : R := if position_eq_dec z t then 1 else 0.
Definition change (alpha : R) (t z : position) : R := share alpha t z - is_target t z.
Definition mass (alpha : R) (t : position) (l : list position) : R := Sum z in l, share alpha t z.

Lemma theta_power_positive alpha n : 0 < alpha -> 0 < theta3 (decay alpha) ^ n.
Proof.
  intros Ha. pose proof (decay_range alpha Ha). pose proof (theta3_at_least_1 (decay alpha)). apply pow_lt. lra.
Qed.

Lemma share_positive alpha t z : 0 < alpha -> 0 < share alpha t z.
Proof. intros Ha. apply Rdiv_lt_0_compat; [apply exp_pos|now apply theta_power_positive]. Qed.

(** No finite set of points gets more than 1. *)
Lemma mass_at_most_1 alpha t l :
  0 < alpha -> NoDup l -> (forall z, In z l -> length z = length t) -> mass alpha t l <= 1.
Proof.
  intros Ha Hl Hlength. unfold mass, share, Rdiv. rewrite sum_scale_r.
  pose proof (theta_power_positive alpha (length t) Ha).
  apply Rmult_le_reg_r with (theta3 (decay alpha) ^ length t); [assumption|].
  rewrite Rmult_assoc, Rinv_l, Rmult_1_r, Rmult_1_l by lra. now apply points_le_theta3.
Qed.

(** Softmax over a set of keys is the share divided by their mass. *)
Lemma softmax_share alpha t keys k :
  0 < alpha -> In k keys ->
  softmax keys (fun k => - alpha * distance2 k t) k = share alpha t k / mass alpha t keys.
Proof.
  intros Ha Hk. pose proof (theta_power_positive alpha (length t) Ha).
  pose proof (partition_positive keys (fun k => - alpha * distance2 k t) k Hk).
  unfold softmax, mass, share, Rdiv. rewrite sum_scale_r. field. lra.
Qed.

Lemma sum_single_position (l : list position) t (f : position -> R) :
  NoDup l -> In t l -> Sum k in l, is_target t k * f k = f t.
Proof.
  intros Hl Ht. destruct (in_split _ _ Ht) as (before & after & E). subst l.
  apply NoDup_remove_2 in Hl. rewrite sum_app. simpl. unfold is_target at 2.
  destruct (position_eq_dec t t); [|congruence]. rewrite !sum_zero; [ring| |];
    intros k Hk; unfold is_target; destruct (position_eq_dec k t) as [->|]; try ring;
    exfalso; apply Hl, in_or_app; auto.
Qed.

(** ** The bound *)

Section Bound.
  Variables (alpha : position -> R) (keys : list position).
  Hypothesis Halpha : forall m, 0 < alpha m.
  Hypothesis Hdistinct : NoDup keys.

  (** What head m of a kernel adds to the convolution, at each key. *)
  Lemma change_at_a_border m t k :
    In k keys ->
    softmax keys (fun k => - alpha m * distance2 k t) k - is_target t k
    = change (alpha m) t k + (/ mass (alpha m) t keys - 1) * share (alpha m) t k.
  Proof. intros Hk. rewrite softmax_share by auto. unfold change, Rdiv. ring. Qed.

  Lemma heads_together (taps : list position) (target : position -> position) (W : position -> R) n
      (span window : list position) :
    (forall m, In m taps -> In (target m) keys /\ In (target m) window) ->
    (forall m, In m taps -> length (target m) = n) -> (forall k, In k keys -> length k = n) ->
    NoDup span -> incl span keys -> NoDup window -> (forall k, In k window -> length k = n) ->
    (forall m, In m taps -> In (target m) span) ->
    Sum k in keys, Rabs (Sum m in taps, W m * (softmax keys (fun k => - alpha m * distance2 k (target m)) k
                                               - is_target (target m) k))
    <= (Sum z in window, Rabs (Sum m in taps, W m * change (alpha m) (target m) z))
       + Sum m in taps, ((1 - mass (alpha m) (target m) span) + (1 - mass (alpha m) (target m) window)) * Rabs (W m).
  Proof.
    intros Htarget Hn Hkeys Hspan Hincl Hwindow Hlwindow Htspan.
    assert (Hmass : forall m, In m taps -> 0 < mass (alpha m) (target m) keys <= 1).
    { intros m Hm. split; [|apply mass_at_most_1; auto; intros; rewrite (Hn m Hm); auto].
      apply Rlt_le_trans with (share (alpha m) (target m) (target m)); [now apply share_positive|].
      unfold mass. apply (term_le_sum keys (fun z => share (alpha m) (target m) z)); [|now apply Htarget].
      intros; left; now apply share_positive. }
    (** The border changes every key's weight by a share of 1 / P - 1. *)
    apply Rle_trans with
      ((Sum k in keys, Rabs (Sum m in taps, W m * change (alpha m) (target m) k))
       + Sum m in taps, (1 - mass (alpha m) (target m) span) * Rabs (W m)).
    { apply Rle_trans with (Sum k in keys, (Rabs (Sum m in taps, W m * change (alpha m) (target m) k)
        + Sum m in taps, (/ mass (alpha m) (target m) keys - 1) * share (alpha m) (target m) k * Rabs (W m))).
      - apply sum_le. intros k Hk.
        rewrite (sum_ext taps _ (fun m => W m * change (alpha m) (target m) k
          + W m * ((/ mass (alpha m) (target m) keys - 1) * share (alpha m) (target m) k))).
        2: { intros m Hm. rewrite change_at_a_border by assumption. ring. }
        rewrite sum_plus. eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat_l.
        eapply Rle_trans; [apply sum_abs|]. apply sum_le. intros m Hm. rewrite Rabs_mult, Rmult_comm.
        apply Rmult_le_compat_r; [apply Rabs_pos|]. rewrite Rabs_pos_eq; [lra|].
        destruct (Hmass m Hm). apply Rmult_le_pos; [|left; now apply share_positive].
        enough (/ 1 <= / mass (alpha m) (target m) keys) by lra. apply Rinv_le_contravar; assumption.
      - rewrite sum_plus. apply Rplus_le_compat_l. rewrite sum_swap. apply sum_le. intros m Hm.
        rewrite sum_scale_r. apply Rmult_le_compat_r; [apply Rabs_pos|]. rewrite sum_scale.
        change (Sum k in keys, share (alpha m) (target m) k) with (mass (alpha m) (target m) keys).
        destruct (Hmass m Hm) as [H0 _].
        assert (mass (alpha m) (target m) span <= mass (alpha m) (target m) keys).
        { apply sum_incl; auto. intros; left; now apply share_positive. }
        replace ((/ mass (alpha m) (target m) keys - 1) * mass (alpha m) (target m) keys)
          with (1 - mass (alpha m) (target m) keys) by (field; lra). lra. }
    rewrite (sum_ext taps (fun m => (1 - mass (alpha m) (target m) span + (1 - mass (alpha m) (target m) window)) * Rabs (W m))
      (fun m => (1 - mass (alpha m) (target m) span) * Rabs (W m) + (1 - mass (alpha m) (target m) window) * Rabs (W m)))
      by (intros; ring).
    rewrite sum_plus. enough (Sum k in keys, Rabs (Sum m in taps, W m * change (alpha m) (target m) k)
      <= (Sum z in window, Rabs (Sum m in taps, W m * change (alpha m) (target m) z))
         + Sum m in taps, (1 - mass (alpha m) (target m) window) * Rabs (W m)) by lra.
    (** Keys beyond the window get what the window leaves. *)
    set (f := fun k => Rabs (Sum m in taps, W m * change (alpha m) (target m) k)).
    set (inside := fun k => if in_dec position_eq_dec k window then true else false).
    assert (Hsplit : Permutation.Permutation keys (filter inside keys ++ filter (fun k => negb (inside k)) keys)).
    { clear. induction keys as [|k l IH]; [constructor|]. simpl. destruct (inside k); simpl.
      - now constructor.
      - etransitivity; [apply Permutation.perm_skip, IH|]. apply Permutation.Permutation_middle. }
    rewrite (sum_permutation _ _ _ Hsplit), sum_app. apply Rplus_le_compat.
    - apply sum_incl.
      + now apply NoDup_filter.
      + intros k Hk. apply filter_In in Hk. destruct Hk as [_ Hk]. unfold inside in Hk.
        now destruct (in_dec position_eq_dec k window).
      + intros; apply Rabs_pos.
    - set (rest := filter (fun k => negb (inside k)) keys).
      assert (Hrest : forall k, In k rest -> In k keys /\ ~ In k window).
      { intros k Hk. apply filter_In in Hk. destruct Hk as [Hk H]. split; [assumption|]. unfold inside in H.
        now destruct (in_dec position_eq_dec k window). }
      apply Rle_trans with (Sum k in rest, Sum m in taps, share (alpha m) (target m) k * Rabs (W m)).
      + apply sum_le. intros k Hk. eapply Rle_trans; [apply sum_abs|]. apply sum_le. intros m Hm.
        rewrite Rabs_mult, Rmult_comm. apply Rmult_le_compat_r; [apply Rabs_pos|].
        unfold change, is_target. destruct (position_eq_dec k (target m)) as [->|].
        * exfalso. apply (proj2 (Hrest _ Hk)). now apply Htarget.
        * rewrite Rminus_0_r, Rabs_pos_eq; [lra|]. left. now apply share_positive.
      + rewrite sum_swap. apply sum_le. intros m Hm. rewrite sum_scale_r.
        apply Rmult_le_compat_r; [apply Rabs_pos|].
        enough (mass (alpha m) (target m) (window ++ rest) <= 1).
        { unfold mass in *. rewrite sum_app in *. lra. }
        apply mass_at_most_1; [auto| |].
        * apply NoDup_append; [assumption|now apply NoDup_filter|]. intros k Hk Hk'. now apply (proj2 (Hrest k Hk')).
        * intros k Hk. rewrite (Hn m Hm). apply in_app_or in Hk. destruct Hk as [Hk|Hk]; auto. apply Hkeys. now apply Hrest.
  Qed.
End Bound.

(** ** The theorem *)

(** Where tap m is from the first pixel that an output reads, and the box that the kernel spans. *)
Definition corner_n (l : list axis) (i : position) : position := reads l i (map (fun _ => 0%Z) l).
Definition offset_n (l : list axis) (m : position) : position := reads l (map (fun _ => 0%Z) l) m.
Definition span (l : list axis) : list position := box (map (fun a => dilation a * (K a - 1) + 1)%nat l).

Lemma reads_corner_offset l i m :
  length i = length l -> length m = length l -> reads l i m = moved (corner_n l i) (offset_n l m).
Proof.
  unfold corner_n, offset_n. revert i m. induction l as [|a l IH]; intros [|x i] [|y m] H1 H2; try discriminate.
  - reflexivity.
  - injection H1 as H1. injection H2 as H2. simpl. f_equal; [lia|]. now apply IH.
Qed.

Lemma distance2_moved c k t :
  length k = length c -> length t = length c -> distance2 (moved c k) (moved c t) = distance2 k t.
Proof.
  revert k t. induction c as [|x c IH]; intros [|y k] [|z t] Hk Ht; try discriminate; [reflexivity|].
  injection Hk as Hk. injection Ht as Ht. simpl. rewrite IH by assumption.
  now replace (x + y - (x + z))%Z with (y - z)%Z by lia.
Qed.

Lemma moved_injective c k t :
  length k = length c -> length t = length c -> moved c k = moved c t -> k = t.
Proof.
  revert k t. induction c as [|x c IH]; intros [|y k] [|z t] Hk Ht; try discriminate; [reflexivity|].
  simpl. intros E. injection E as E1 E2. f_equal; [lia|]. apply IH; auto.
Qed.

Lemma span_in_box l sizes i z :
  Forall (fun a => (0 < stride a)%nat) l -> Forall (fun a => (0 < K a)%nat) l -> is_output_n l sizes i ->
  In z (span l) -> In (moved (corner_n l i) z) (box sizes).
Proof.
  intros Hs HK Hi Hz. unfold span in Hz. apply in_box in Hz. apply in_box. unfold corner_n.
  revert sizes i z Hs HK Hi Hz.
  induction l as [|a l IH]; intros [|P sizes] [|x i] z Hs HK Hi Hz; simpl in Hi; try contradiction;
    inversion Hz as [|? y ? z' Hy Hz']; subst; simpl; constructor.
  - inversion_clear Hs. inversion_clear HK. destruct Hi as [Hx _].
    assert (Hlt : (Z.to_nat x < output_size P (K a) (stride a) (dilation a))%nat) by lia.
    apply output_size_spec in Hlt; [|assumption|assumption]. nia.
  - inversion_clear Hs. inversion_clear HK. destruct Hi as [_ Hi]. now apply IH.
Qed.

Lemma offset_in_span l m : In m (box (map K l)) -> In (offset_n l m) (span l).
Proof.
  intros Hm. apply in_box in Hm. unfold span. apply in_box. unfold offset_n. revert m Hm.
  induction l as [|a l IH]; intros m Hm; inversion Hm as [|? y ? m' Hy Hm']; subst; simpl; constructor; auto. nia.
Qed.

(** sum over the window of |sum_h W_h u_h(z)|, and what borders and the window leave out can add. *)
Definition kernel_change (l : list axis) (taps : list position) (alpha W : position -> R) (window : list position) : R :=
  (Sum z in window, Rabs (Sum m in taps, W m * change (alpha m) (offset_n l m) z))
  + Sum m in taps, ((1 - mass (alpha m) (offset_n l m) (span l)) + (1 - mass (alpha m) (offset_n l m) window))
      * Rabs (W m).

(** What is asked of a window: different points, the taps among them. The larger it is, the smaller is what it leaves
    out. *)
Definition window_of (g : geometry_n) (window : list position) : Prop :=
  NoDup window /\ (forall z, In z window -> length z = length (axes g)) /\
  (forall m, In m (taps g) -> In (offset_n (axes g) m) window).

Lemma channel_change g W alpha sizes X i o c window :
  valid_n g -> Forall (fun a => (0 < K a)%nat) (axes g) -> (forall m, 0 < alpha m) ->
  is_output_n (axes g) sizes i -> window_of g window ->
  Rabs (channel_difference g W alpha (box sizes) X i o c)
  <= osc (box sizes) X (o / outputs g * inputs g + c)%nat / 2
     * kernel_change (axes g) (taps g) alpha (W o c) window.
Proof.
  intros Hvalid HK Ha Hout (Hwindow & Hlwindow & Htaps).
  destruct (length_output _ _ _ Hout) as [Hi Hsizes]. unfold channel_difference.
  set (n := length (axes g)) in *. set (corner := corner_n (axes g) i).
  assert (Hltap : forall m, In m (taps g) -> length m = n).
  { intros m Hm. apply length_in_box in Hm. now rewrite map_length in Hm. }
  assert (Hlzero : length (map (fun _ : axis => 0%Z) (axes g)) = n) by apply map_length.
  assert (Hlcorner : length corner = n) by now apply length_reads.
  assert (Hloffset : forall m, In m (taps g) -> length (offset_n (axes g) m) = n).
  { intros m Hm. apply length_reads; auto. }
  assert (Htarget : forall m, In m (taps g) -> target_n g i m = moved corner (offset_n (axes g) m)).
  { intros m Hm. unfold target_n. rewrite query_center_n by auto. now apply reads_corner_offset; auto. }
  set (x := fun k => X k (o / outputs g * inputs g + c)%nat).
  set (t := fun m => moved corner (offset_n (axes g) m)).
  set (gap := fun k => Sum m in taps g, W o c m
    * (softmax (box sizes) (fun k => - alpha m * distance2 k (t m)) k - is_target (t m) k)).
  assert (Hkeys : forall m, In m (taps g) -> In (t m) (box sizes)).
  { intros m Hm. unfold t. rewrite <- Htarget by assumption. now apply target_in_box. }
  (** What the taps read together is a sum over the keys with weights that add up to 0. *)
  match goal with |- Rabs ?S <= _ =>
    replace S with (Sum k in box sizes, gap k * X k (o / outputs g * inputs g + c)%nat) end.
  2: { unfold gap. rewrite (sum_ext (box sizes) _ (fun k => Sum m in taps g, W o c m *
         (softmax (box sizes) (fun k => - alpha m * distance2 k (t m)) k * x k - is_target (t m) k * x k))).
       2: { intros k _. rewrite <- sum_scale_r. apply sum_ext; intros m _. unfold x. ring. }
       rewrite sum_swap. apply sum_ext; intros m Hm. rewrite sum_scale, sum_minus. f_equal.
       rewrite sum_single_position by auto using box_distinct. rewrite Htarget by assumption. reflexivity. }
  eapply Rle_trans; [apply balanced_sum|].
  { unfold gap. rewrite sum_swap. apply sum_zero. intros m Hm. rewrite sum_scale, sum_minus.
    rewrite (softmax_total (box sizes) _ (t m)) by auto.
    rewrite (sum_ext (box sizes) _ (fun k => is_target (t m) k * 1)) by (intros; ring).
    rewrite sum_single_position by auto using box_distinct. ring. }
  apply Rmult_le_compat_l.
  { pose proof (osc_nonneg_all (box sizes) X (o / outputs g * inputs g + c)). lra. }
  assert (Hmove : forall l, (forall z, In z l -> length z = n) -> NoDup l -> NoDup (map (moved corner) l)).
  { intros l Hl Hd. apply NoDup_map; [assumption|]. intros y z Hy Hz. apply moved_injective; rewrite Hlcorner; auto. }
  assert (Hlspan : forall z, In z (span (axes g)) -> length z = n).
  { intros z Hz. apply length_in_box in Hz. now rewrite map_length in Hz. }
  assert (Hshare : forall m z, In m (taps g) -> length z = n ->
    share (alpha m) (t m) (moved corner z) = share (alpha m) (offset_n (axes g) m) z).
  { intros m z Hm Hz. unfold share, t. rewrite distance2_moved by (rewrite Hlcorner; auto).
    rewrite length_moved by (rewrite Hlcorner; auto). now rewrite Hloffset, Hlcorner by assumption. }
  assert (Hmass : forall m l, In m (taps g) -> (forall z, In z l -> length z = n) ->
    mass (alpha m) (t m) (map (moved corner) l) = mass (alpha m) (offset_n (axes g) m) l).
  { intros m l Hm Hl. unfold mass. rewrite sum_map. apply sum_ext; intros z Hz. apply Hshare; auto. }
  apply Rle_trans with
    ((Sum z in map (moved corner) window, Rabs (Sum m in taps g, W o c m * change (alpha m) (t m) z))
     + Sum m in taps g, ((1 - mass (alpha m) (t m) (map (moved corner) (span (axes g))))
       + (1 - mass (alpha m) (t m) (map (moved corner) window))) * Rabs (W o c m)).
  - unfold gap. apply (heads_together alpha (box sizes) Ha (box_distinct sizes) (taps g) t (W o c) n).
    + intros m Hm. split; [auto|]. unfold t. apply in_map. auto.
    + intros m Hm. unfold t. rewrite length_moved by (rewrite Hlcorner; auto). exact Hlcorner.
    + intros k Hk. apply length_in_box in Hk. lia.
    + apply Hmove; [assumption|apply box_distinct].
    + intros k Hk. apply in_map_iff in Hk. destruct Hk as (z & <- & Hz). now apply span_in_box.
    + apply Hmove; auto.
    + intros k Hk. apply in_map_iff in Hk. destruct Hk as (z & <- & Hz).
      rewrite length_moved; rewrite Hlcorner; auto.
    + intros m Hm. unfold t. apply in_map. now apply offset_in_span.
  - right. unfold kernel_change. f_equal.
    + rewrite sum_map. apply sum_ext; intros z Hz. f_equal. apply sum_ext; intros m Hm. f_equal.
      unfold change. rewrite Hshare by auto. f_equal. unfold is_target, t.
      destruct (position_eq_dec (moved corner z) (moved corner (offset_n (axes g) m))) as [E|E],
        (position_eq_dec z (offset_n (axes g) m)) as [E'|E']; try reflexivity.
      * exfalso. apply E'. apply (moved_injective corner); rewrite ?Hlcorner; auto.
      * exfalso. apply E. now rewrite E'.
    + apply sum_ext; intros m Hm. rewrite !Hmass by auto. reflexivity.
Qed.

(** The layer differs from the convolution by at most sum_c osc_c / 2 times the change of the kernel of channel c: for
    every kernel, alpha_h > 0, image, grid of keys and window. *)
Theorem smoothed_kernel d r g W b alpha sizes X i o window :
  enough d g -> extends_encoding (length (axes g)) r -> valid_n g -> Forall (fun a => (0 < K a)%nat) (axes g) ->
  (forall m, 0 < alpha m) -> is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat -> window_of g window ->
  Rabs (mhsa (attention_n d r g W b alpha) (box sizes) X (query_n (axes g) i) o - conv_n g W b X i o)
  <= Sum c in seq 0 (inputs g), osc (box sizes) X (o / outputs g * inputs g + c)%nat / 2
     * kernel_change (axes g) (taps g) alpha (W o c) window.
Proof.
  intros Henough Hr Hvalid HK Ha Hout Ho Hwindow. rewrite difference_n by assumption.
  eapply Rle_trans; [apply sum_abs|]. apply sum_le; intros c _. now apply channel_change.
Qed.

(** Both bounds hold for every input channel, so for each the smaller one may be taken: what certify returns as the tail
    of soft attention. *)
Theorem certified_tail d r g W b alpha sizes X i o window :
  enough d g -> extends_encoding (length (axes g)) r -> valid_n g -> Forall (fun a => (0 < K a)%nat) (axes g) ->
  (forall m, 0 < alpha m) -> is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat -> window_of g window ->
  Rabs (mhsa (attention_n d r g W b alpha) (box sizes) X (query_n (axes g) i) o - conv_n g W b X i o)
  <= Sum c in seq 0 (inputs g), osc (box sizes) X (o / outputs g * inputs g + c)%nat
     * Rmin (Sum m in taps g, tau_n (length (axes g)) (alpha m) * Rabs (W o c m))
            (kernel_change (axes g) (taps g) alpha (W o c) window / 2).
Proof.
  intros Henough Hr Hvalid HK Ha Hout Ho Hwindow. rewrite difference_n by assumption.
  eapply Rle_trans; [apply sum_abs|]. apply sum_le; intros c _.
  unfold Rmin. destruct Rle_dec; [now apply channel_tail|].
  pose proof (channel_change g W alpha sizes X i o c window Hvalid HK Ha Hout Hwindow). lra.
Qed.
