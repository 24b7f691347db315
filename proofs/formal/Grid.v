(** * The padded grid of keys, and how much of a head's attention misses its target on it

    Beside proofs/claims/certificate/tail.py (claim tail-bound). *)

From Coq Require Import ZArith Lia Lra Psatz FinFun.
From Conv2Attn Require Import Sums Encoding Softmax Theta.

(** The integers 0, ..., n - 1, and the pixels of an image with H rows and W columns. *)
Definition range (n : nat) : list Z := map Z.of_nat (seq 0 n).
Definition grid (H W : nat) : list pixel := list_prod (range H) (range W).

Example grid_2_by_3 : grid 2 3 = [(0, 0); (0, 1); (0, 2); (1, 0); (1, 1); (1, 2)]%Z.
Proof. reflexivity. Qed.

Lemma in_range z n : In z (range n) <-> (0 <= z < Z.of_nat n)%Z.
Proof.
  unfold range. rewrite in_map_iff. split.
  - intros (i & <- & Hi). apply in_seq in Hi. lia.
  - intros Hz. exists (Z.to_nat z). rewrite in_seq. lia.
Qed.

Lemma in_grid p H W : In p (grid H W) <-> (0 <= fst p < Z.of_nat H /\ 0 <= snd p < Z.of_nat W)%Z.
Proof. destruct p as [a b]. unfold grid, pixel. rewrite in_prod_iff, !in_range. reflexivity. Qed.

(** Lists without repetition. *)
Lemma NoDup_append {A} (l l' : list A) :
  NoDup l -> NoDup l' -> (forall x, In x l -> ~ In x l') -> NoDup (l ++ l').
Proof.
  induction l as [|a l IH]; intros Hl Hl' H; [assumption|]. inversion_clear Hl. simpl. constructor.
  - rewrite in_app_iff. specialize (H a). simpl in H. tauto.
  - apply IH; auto. intros x Hx. apply H. now right.
Qed.

Lemma NoDup_map {A B} (f : A -> B) (l : list A) :
  NoDup l -> (forall x y, In x l -> In y l -> f x = f y -> x = y) -> NoDup (map f l).
Proof.
  induction l as [|a l IH]; intros Hl Hf; [constructor|]. inversion_clear Hl. simpl. constructor.
  - rewrite in_map_iff. intros (x & E & Hx). rewrite (Hf x a) in Hx by (simpl; auto). contradiction.
  - apply IH; auto. intros x y Hx Hy. apply Hf; now right.
Qed.

Lemma range_shifted_distinct n t : NoDup (map (fun k => (k - t)%Z) (range n)).
Proof.
  apply Injective_map_NoDup; [intros a b; lia|].
  apply Injective_map_NoDup; [intros a b; lia|]. apply seq_NoDup.
Qed.

(** A sum over a 2-D grid as a product of two 1-D sums, each part of the series theta_3. *)
Lemma partition_le_theta3_squared H W alpha (t : pixel) :
  0 < alpha -> Sum k in grid H W, exp (- alpha * norm2 (sub k t)) <= theta3 (decay alpha) ^ 2.
Proof.
  intros Ha. pose proof (decay_range alpha Ha) as Hq.
  assert (axis : forall n c, 0 <= Sum k in range n, exp (- alpha * IZR (k - c) ^ 2) <= theta3 (decay alpha)).
  { intros n c. split; [apply sum_nonneg; intros; left; apply exp_pos|].
    rewrite <- (sum_map (fun k => (k - c)%Z) (range n) (fun z => exp (- alpha * IZR z ^ 2))).
    apply sum_integers_le_theta3; auto using range_shifted_distinct. }
  unfold grid, pixel. rewrite sum_pairs.
  rewrite (sum_ext (range H) _ (fun a => Sum b in range W,
    exp (- alpha * IZR (a - fst t) ^ 2) * exp (- alpha * IZR (b - snd t) ^ 2))).
  2: { intros a _. apply sum_ext; intros b _. unfold norm2, sub; simpl fst; simpl snd.
       rewrite <- exp_plus. f_equal. ring. }
  rewrite sum_product. destruct (axis H (fst t)), (axis W (snd t)).
  replace (theta3 (decay alpha) ^ 2) with (theta3 (decay alpha) * theta3 (decay alpha)) by ring.
  apply Rmult_le_compat; auto.
Qed.

(** A head whose score is -alpha |k - t|^2 plus what all keys share keeps all but tau for its target t, whatever the
    size of the image. *)
Theorem grid_tail H W alpha (t : pixel) (s : pixel -> R) c :
  0 < alpha -> In t (grid H W) -> (forall k, In k (grid H W) -> s k = - alpha * norm2 (sub k t) + c) ->
  1 - softmax (grid H W) s t <= tau alpha.
Proof.
  intros Ha Ht Hs. pose proof (decay_range alpha Ha) as Hq.
  pose proof (theta3_at_least_1 (decay alpha) ltac:(lra)) as H1.
  rewrite softmax_inverse by assumption. unfold tau.
  rewrite (sum_ext _ _ (fun k => exp (- alpha * norm2 (sub k t)))).
  2: { intros k Hk. f_equal. rewrite (Hs k Hk), (Hs t Ht), norm2_diagonal. ring. }
  enough (/ theta3 (decay alpha) ^ 2 <= / Sum k in grid H W, exp (- alpha * norm2 (sub k t))) by lra.
  apply Rinv_le_contravar; [|now apply partition_le_theta3_squared].
  now apply partition_positive with t.
Qed.

(** In particular, in a form without theta_3. *)
Corollary grid_tail_simple H W alpha (t : pixel) :
  0 < alpha -> In t (grid H W) ->
  1 - softmax (grid H W) (fun k => - alpha * norm2 (sub k t)) t <= 4 * decay alpha / (1 - decay alpha) ^ 2.
Proof.
  intros Ha Ht. destruct (tau_bounds alpha Ha) as (_ & H1 & H2 & H3).
  pose proof (grid_tail H W alpha t (fun k => - alpha * norm2 (sub k t)) 0 Ha Ht) as Htail.
  assert (1 - softmax (grid H W) (fun k => - alpha * norm2 (sub k t)) t <= tau alpha) by (apply Htail; intros; ring).
  lra.
Qed.
