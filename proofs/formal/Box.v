(** * Grids with any number of axes, and how much of a head's attention misses its target on them

    Beside proofs/claims/certificate/tail.py (claim tail-bound) and proofs/claims/theorem/encoding.py (claim
    encoding-identity). With two axes this is Grid.v. *)

From Coq Require Import ZArith Lia Lra Psatz FinFun.
From Conv2Attn Require Import Sums Encoding Softmax Theta Grid Attention.

(** ** Positions *)

(** A point of Z^n; also the difference of two. *)
Definition position : Type := list Z.

Fixpoint moved (p d : position) : position :=
  match p, d with x :: p', y :: d' => (x + y)%Z :: moved p' d' | _, _ => [] end.
Fixpoint from (k q : position) : position :=
  match k, q with x :: k', y :: q' => (x - y)%Z :: from k' q' | _, _ => [] end.

#[export] Instance points : positions position := from.

(** |k - t|^2 *)
Fixpoint distance2 (k t : position) : R :=
  match k, t with x :: k', y :: t' => IZR (x - y) ^ 2 + distance2 k' t' | _, _ => 0 end.

Example distance_in_space : distance2 [1; 2; 3]%Z [0; 4; 3]%Z = 5.
Proof. simpl. lra. Qed.

Lemma distance2_nonneg k t : 0 <= distance2 k t.
Proof.
  revert t. induction k as [|x k IH]; intros [|y t]; simpl; try lra. specialize (IH t).
  pose proof (pow2_ge_0 (IZR (x - y))). simpl in *. lra.
Qed.

Lemma distance2_diagonal t : distance2 t t = 0.
Proof. induction t as [|y t IH]; simpl; [reflexivity|]. rewrite IH, Z.sub_diag. ring. Qed.

(** Two different points are at least 1 apart. *)
Lemma distance2_gap k t : length k = length t -> k <> t -> 1 <= distance2 k t.
Proof.
  revert t. induction k as [|x k IH]; intros [|y t] Hl Hne; try discriminate; [congruence|].
  injection Hl as Hl. simpl distance2. pose proof (distance2_nonneg k t). destruct (Z.eq_dec x y) as [->|Hxy].
  - rewrite Z.sub_diag. assert (1 <= distance2 k t) by (apply IH; congruence). simpl. lra.
  - assert (1 <= IZR (x - y) ^ 2) by (rewrite pow_IZR; apply IZR_le; simpl; nia). lra.
Qed.

Lemma distance2_norm k t : distance2 k t = norm2_n (sub_n (map IZR k) (map IZR t)).
Proof.
  revert t. induction k as [|x k IH]; intros [|y t]; try reflexivity.
  simpl. rewrite IH, minus_IZR. unfold norm2_n, sub_n. simpl. ring.
Qed.

(** Moving both by the same does not change it. *)
Lemma distance2_from k q d :
  length q = length k -> distance2 (from k q) d = distance2 k (moved q d).
Proof.
  revert q d. induction k as [|x k IH]; intros [|y q] [|z d] H; try discriminate; try reflexivity.
  injection H as H. simpl. rewrite IH by assumption.
  now replace (x - y - z)%Z with (x - (y + z))%Z by lia.
Qed.

Lemma length_moved p d : length d = length p -> length (moved p d) = length p.
Proof. revert d. induction p as [|x p IH]; intros [|y d] H; try discriminate; simpl; auto. Qed.

Lemma length_from k q : length q = length k -> length (from k q) = length k.
Proof. revert q. induction k as [|x k IH]; intros [|y q] H; try discriminate; simpl; auto. Qed.

(** ** Boxes *)

(** All points whose coordinates are in the lists, one list an axis; a grid has a range on every axis. *)
Fixpoint points_of (axes : list (list Z)) : list position :=
  match axes with
  | [] => [[]]
  | axis :: rest => flat_map (fun z => map (cons z) (points_of rest)) axis
  end.

Definition box (sizes : list nat) : list position := points_of (map range sizes).

Example box_2_by_3 : box [2; 3]%nat = map (fun p => [fst p; snd p]) (grid 2 3).
Proof. reflexivity. Qed.

Lemma in_points_of axes p : In p (points_of axes) <-> Forall2 (fun axis x => In x axis) axes p.
Proof.
  revert p. induction axes as [|axis axes IH]; intros p; simpl.
  - split; [intros [<-|[]]; constructor|]. intros H. inversion H. now left.
  - rewrite in_flat_map. split.
    + intros (z & Hz & Hp). apply in_map_iff in Hp. destruct Hp as (p' & <- & Hp'). constructor; auto. now apply IH.
    + intros H. inversion H as [|? z ? p' Hz Hp']; subst. exists z. split; [assumption|].
      apply in_map. now apply IH.
Qed.

Lemma in_box p sizes : In p (box sizes) <-> Forall2 (fun n x => 0 <= x < Z.of_nat n)%Z sizes p.
Proof.
  unfold box. rewrite in_points_of. revert p. induction sizes as [|n sizes IH]; intros p; simpl.
  - split; intros H; inversion H; constructor.
  - split; intros H; inversion H; subst; constructor; auto; try (now apply in_range); now apply IH.
Qed.

Lemma length_in_box p sizes : In p (box sizes) -> length p = length sizes.
Proof. intros H. apply in_box in H. induction H; simpl; congruence. Qed.

Lemma sum_flat_map {A B} (g : A -> list B) (l : list A) (f : B -> R) :
  Sum y in flat_map g l, f y = Sum x in l, Sum y in g x, f y.
Proof. induction l as [|a l IH]; simpl; [reflexivity|]. now rewrite sum_app, IH. Qed.

Lemma sum_points_of axis axes (f : position -> R) :
  Sum p in points_of (axis :: axes), f p = Sum z in axis, Sum p in points_of axes, f (z :: p).
Proof. simpl. rewrite sum_flat_map. apply sum_ext; intros z _. apply sum_map. Qed.

Lemma points_of_distinct axes : Forall (@NoDup Z) axes -> NoDup (points_of axes).
Proof.
  induction axes as [|axis axes IH]; intros H; [repeat constructor; simpl; tauto|].
  inversion_clear H as [|? ? Haxis Haxes]. specialize (IH Haxes). simpl.
  induction axis as [|z axis IHaxis]; [constructor|]. inversion_clear Haxis as [|? ? Hz Haxis']. simpl.
  assert (Hmap : NoDup (map (cons z) (points_of axes))).
  { apply Injective_map_NoDup; [intros a b E; now injection E|assumption]. }
  revert Hmap. generalize (IHaxis Haxis'). intros Hrest Hmap.
  assert (disjoint : forall p, In p (map (cons z) (points_of axes)) ->
    ~ In p (flat_map (fun z => map (cons z) (points_of axes)) axis)).
  { intros p Hp Hq. apply in_map_iff in Hp. destruct Hp as (p' & <- & _).
    apply in_flat_map in Hq. destruct Hq as (y & Hy & Hq). apply in_map_iff in Hq.
    destruct Hq as (q' & E & _). injection E as -> _. contradiction. }
  revert Hmap disjoint. generalize (map (cons z) (points_of axes)) as l. clear - Hrest.
  induction l as [|a l IHl]; intros Hl Hd; [assumption|]. inversion_clear Hl. simpl. constructor.
  - rewrite in_app_iff. specialize (Hd a (or_introl eq_refl)). tauto.
  - apply IHl; auto. intros p Hp. apply Hd. now right.
Qed.

Lemma range_distinct n : NoDup (range n).
Proof. apply Injective_map_NoDup; [intros a b; lia|apply seq_NoDup]. Qed.

Lemma box_distinct sizes : NoDup (box sizes).
Proof.
  apply points_of_distinct. induction sizes; simpl; constructor; auto using range_distinct.
Qed.

(** ** The tail: tau_n = 1 - theta_3(q)^-n for n axes *)

(** A sum over the points of lists is a product of sums over the axes, each part of the series theta_3. *)
Lemma points_of_le_theta3 alpha axes (t : position) :
  0 < alpha -> Forall (@NoDup Z) axes -> length t = length axes ->
  0 <= Sum k in points_of axes, exp (- alpha * distance2 k t) <= theta3 (decay alpha) ^ length axes.
Proof.
  intros Ha. pose proof (decay_range alpha Ha) as Hq. revert t.
  induction axes as [|axis axes IH]; intros [|x t] Hd Hl; try discriminate.
  - simpl. rewrite Rmult_0_r, exp_0. lra.
  - inversion_clear Hd as [|? ? Haxis Haxes]. injection Hl as Hl.
    rewrite sum_points_of. rewrite (sum_ext axis _ (fun z => Sum p in points_of axes,
      exp (- alpha * IZR (z - x) ^ 2) * exp (- alpha * distance2 p t))).
    2: { intros z _. apply sum_ext; intros p _. simpl distance2. rewrite <- exp_plus. f_equal. ring. }
    rewrite sum_product. destruct (IH t Haxes Hl) as [H0 H1]. simpl pow.
    assert (Hline : 0 <= Sum z in axis, exp (- alpha * IZR (z - x) ^ 2) <= theta3 (decay alpha)).
    { split; [apply sum_nonneg; intros; left; apply exp_pos|].
      rewrite <- (sum_map (fun k => (k - x)%Z) axis (fun z => exp (- alpha * IZR z ^ 2))).
      apply sum_integers_le_theta3; [assumption|]. apply Injective_map_NoDup; [intros a b; lia|assumption]. }
    split; [now apply Rmult_le_pos|]. apply Rmult_le_compat; tauto.
Qed.

(** Any finite set of points of Z^n. *)
Lemma points_le_theta3 alpha n (l : list position) (t : position) :
  0 < alpha -> NoDup l -> (forall p, In p l -> length p = n) -> length t = n ->
  Sum k in l, exp (- alpha * distance2 k t) <= theta3 (decay alpha) ^ n.
Proof.
  intros Ha Hl Hlength Ht.
  set (N := list_max (map (fun p => list_max (map Z.abs_nat p)) l)).
  set (axis := map (fun z => (z - Z.of_nat N)%Z) (range (S (2 * N)))).
  assert (Haxis : NoDup axis) by (apply Injective_map_NoDup; [intros a b; lia|apply range_distinct]).
  assert (Hin : forall x, (Z.abs_nat x <= N)%nat -> In x axis).
  { intros x Hx. apply in_map_iff. exists (x + Z.of_nat N)%Z. rewrite in_range. split; lia. }
  apply Rle_trans with (Sum k in points_of (repeat axis n), exp (- alpha * distance2 k t)).
  - apply sum_incl; [assumption| |intros; left; apply exp_pos].
    intros p Hp. apply in_points_of. specialize (Hlength p Hp).
    assert (Hp' : Forall (fun x => (Z.abs_nat x <= N)%nat) p).
    { apply Forall_forall. intros x Hx.
      assert (H1 : (list_max (map Z.abs_nat p) <= N)%nat).
      { pose proof (proj1 (list_max_le (map (fun p => list_max (map Z.abs_nat p)) l) _) (le_n _)) as H.
        rewrite Forall_forall in H. apply H. apply in_map_iff. now exists p. }
      pose proof (proj1 (list_max_le (map Z.abs_nat p) _) (le_n _)) as H. rewrite Forall_forall in H.
      specialize (H (Z.abs_nat x) (in_map _ _ _ Hx)). lia. }
    rewrite <- Hlength. clear - Hp' Hin. induction Hp'; simpl; constructor; auto.
  - pose proof (points_of_le_theta3 alpha (repeat axis n) t Ha) as H. rewrite repeat_length in H.
    apply H; [|assumption]. apply Forall_forall. intros a Hin'. apply repeat_spec in Hin'. now subst.
Qed.

Definition tau_n (n : nat) (alpha : R) : R := 1 - / theta3 (decay alpha) ^ n.

Lemma tau_n_2 alpha : tau_n 2 alpha = tau alpha.
Proof. reflexivity. Qed.

(** 0 <= tau_n <= 2 n q / (1 + q): it vanishes as alpha grows. *)
Theorem tau_n_bounds n alpha :
  0 < alpha -> let q := decay alpha in 0 <= tau_n n alpha <= 2 * INR n * q / (1 + q).
Proof.
  intros Ha q. pose proof (decay_range alpha Ha) as Hq. fold q in Hq.
  pose proof (theta3_at_least_1 q ltac:(lra)) as H1. pose proof (theta3_bound q ltac:(lra)) as H2.
  unfold tau_n. fold q. set (p := theta3 q) in *.
  assert (Hp : 1 <= p ^ n) by (rewrite <- (pow1 n); apply pow_incr; lra). split.
  - enough (/ p ^ n <= 1) by lra. rewrite <- Rinv_1. apply Rinv_le_contravar; lra.
  - set (r := (1 - q) / (1 + q)).
    assert (Hr : r <= / p).
    { unfold r. replace ((1 - q) / (1 + q)) with (/ ((1 + q) / (1 - q))) by (field; lra).
      apply Rinv_le_contravar; lra. }
    assert (Hr0 : 0 < r) by (unfold r; apply Rdiv_lt_0_compat; lra).
    assert (Hr1 : r = 1 - 2 * q / (1 + q)) by (unfold r; field; lra).
    assert (Bernoulli : 1 - INR n * (2 * q / (1 + q)) <= r ^ n).
    { assert (0 <= 2 * q / (1 + q)) by (apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat; lra]).
      clear - Hr0 Hr1 H. set (x := 2 * q / (1 + q)) in *.
      induction n as [|n IH]; [simpl; lra|]. rewrite S_INR. cbn [pow].
      apply Rle_trans with (r * (1 - INR n * x)); [|apply Rmult_le_compat_l; lra].
      rewrite Hr1. pose proof (pos_INR n). assert (0 <= INR n * x) by now apply Rmult_le_pos. nra. }
    assert (r ^ n <= (/ p) ^ n) by (apply pow_incr; lra). rewrite pow_inv in * by lra.
    replace (2 * INR n * q / (1 + q)) with (INR n * (2 * q / (1 + q))) by (field; lra). lra.
Qed.

(** A head whose score is -alpha |k - t|^2 plus what all keys share keeps all but tau_n for its target t, whatever the
    size of the grid. *)
Theorem box_tail alpha sizes (t : position) (s : position -> R) c :
  0 < alpha -> In t (box sizes) -> (forall k, In k (box sizes) -> s k = - alpha * distance2 k t + c) ->
  1 - softmax (box sizes) s t <= tau_n (length sizes) alpha.
Proof.
  intros Ha Ht Hs. rewrite softmax_inverse by assumption. unfold tau_n.
  rewrite (sum_ext _ _ (fun k => exp (- alpha * distance2 k t))).
  2: { intros k Hk. f_equal. rewrite (Hs k Hk), (Hs t Ht), distance2_diagonal. ring. }
  enough (/ theta3 (decay alpha) ^ length sizes <= / Sum k in box sizes, exp (- alpha * distance2 k t)) by lra.
  apply Rinv_le_contravar; [now apply partition_positive with t|].
  apply points_le_theta3; auto using box_distinct, length_in_box.
Qed.
