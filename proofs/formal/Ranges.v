(** * Ranges at depth: what a chord leaves, and why every number of a graph stays in its range

    A network near an image is a graph of linear maps, each with a bounded error: its rounding, and what the map leaves
    of an operation that bends. The maps are right where every number is in the range that they were made for. Beside
    proofs/claims/certificate/ranges.py (claims chords, ranges-hold); the code is
    convert/certificate/network/linearised.py. *)

From Coq Require Import Arith Lia Lra.
From Conv2Attn Require Import Sums.

(** ** A chord past a kink *)

(** A function with slope s below 0, and s + d above: a rectifier with s = 0 and d = 1, an absolute value with -1 and 2. *)
Definition kinked (s d x : R) : R := s * x + d * Rmax 0 x.

(** The slope of its chord from -p to q. *)
Definition chord (s d p q : R) : R := ((s + d) * q + s * p) / (p + q).

Theorem chord_encloses s d p q x :
  0 <= d -> 0 <= p -> 0 <= q -> 0 < p + q -> - p <= x <= q ->
  0 <= kinked s d x - chord s d p q * x <= d * (p * q / (p + q)).
Proof.
  intros Hd Hp Hq Hpq Hx.
  assert (0 < / (p + q)) by now apply Rinv_0_lt_compat.
  replace (kinked s d x - chord s d p q * x) with (d * ((Rmax 0 x * (p + q) - x * q) / (p + q)))
    by (unfold kinked, chord; field; lra).
  enough (0 <= (Rmax 0 x * (p + q) - x * q) / (p + q) <= p * q / (p + q)) by (split; nra).
  unfold Rdiv. split; [apply Rmult_le_pos; [|lra]|apply Rmult_le_compat_r; [lra|]];
    unfold Rmax; destruct (Rle_dec 0 x); nra.
Qed.

(** With half of that added, it is off by no more than that half. *)
Corollary chord_in_the_middle s d p q x :
  0 <= d -> 0 <= p -> 0 <= q -> 0 < p + q -> - p <= x <= q ->
  let eta := d * (p * q / (p + q)) / 2 in Rabs (kinked s d x - (chord s d p q * x + eta)) <= eta.
Proof.
  intros Hd Hp Hq Hpq Hx eta. pose proof (chord_encloses s d p q x Hd Hp Hq Hpq Hx) as [Hl Hh].
  apply Rabs_le. unfold eta. lra.
Qed.

(** ** Numbers of a graph, in an order in which each comes after those that it reads *)

Section Graph.
Variable J : nat -> nat -> R.  (* J u w: the entry of u's map for w *)
Hypothesis in_order : forall u w, (u <= w)%nat -> J u w = 0.

(** The sum over all paths from v to u of the products of their entries, of paths with less than [fuel] steps. *)
Fixpoint paths (fuel u v : nat) : R :=
  match fuel with
  | O => 0
  | S fuel => (if (u =? v)%nat then 1 else 0) + Sum w in seq 0 u, J u w * paths fuel w v
  end.

Definition path u v : R := paths (S u) u v.

Lemma enough_fuel fuel u v : (u < fuel)%nat -> paths fuel u v = path u v.
Proof.
  revert fuel v. induction u as [u IH] using lt_wf_ind. intros [|fuel] v Hf; [lia|].
  unfold path. cbn [paths]. f_equal. apply sum_ext. intros w Hw. apply in_seq in Hw.
  now rewrite (IH w ltac:(lia) fuel v ltac:(lia)), (IH w ltac:(lia) u v ltac:(lia)).
Qed.

Lemma path_step u v : path u v = (if (u =? v)%nat then 1 else 0) + Sum w in seq 0 u, J u w * path w v.
Proof.
  unfold path at 1. cbn [paths]. f_equal. apply sum_ext. intros w Hw. apply in_seq in Hw.
  now rewrite enough_fuel by lia.
Qed.

Lemma no_path_back u v : (u < v)%nat -> path u v = 0.
Proof.
  revert v. induction u as [u IH] using lt_wf_ind. intros v Hv. rewrite path_step.
  destruct (Nat.eqb_spec u v); [lia|]. rewrite sum_zero; [ring|].
  intros w Hw. apply in_seq in Hw. rewrite IH by lia. ring.
Qed.

Lemma sum_up_to u n (f : nat -> R) :
  (u <= n)%nat -> (forall v, (u <= v)%nat -> f v = 0) -> Sum v in seq 0 n, f v = Sum v in seq 0 u, f v.
Proof.
  intros Hu Hf. replace n with (u + (n - u))%nat by lia. rewrite seq_app, sum_app.
  rewrite (sum_zero (seq (0 + u) (n - u))); [ring|]. intros v Hv. apply in_seq in Hv. apply Hf. lia.
Qed.

(** Differences d between a program's numbers and ours, and what is added at each, tau. *)
Variables d tau : nat -> R.

Definition maps_at u : Prop := d u = Sum w in seq 0 u, J u w * d w + tau u.

(** What is added at all numbers goes along all paths. *)
Lemma along_paths u :
  (forall w, (w <= u)%nat -> maps_at w) -> d u = Sum v in seq 0 (S u), path u v * tau v.
Proof.
  induction u as [u IH] using lt_wf_ind. intros H.
  rewrite (H u) by lia.
  rewrite (sum_ext (seq 0 u) _ (fun w => Sum v in seq 0 (S u), J u w * path w v * tau v)).
  - rewrite sum_swap.
    rewrite (sum_ext (seq 0 (S u)) (fun v => path u v * tau v)
      (fun v => (if (v =? u)%nat then tau v else 0) + Sum w in seq 0 u, J u w * path w v * tau v)).
    + rewrite sum_plus, sum_single by lia. ring.
    + intros v _. rewrite path_step, Nat.eqb_sym, sum_scale_r. destruct (v =? u)%nat; ring.
  - intros w Hw. apply in_seq in Hw. rewrite (IH w) by (lia || (intros; apply H; lia)).
    rewrite <- sum_scale. rewrite (sum_up_to (S w) (S u)).
    + apply sum_ext. intros v _. ring.
    + lia.
    + intros v Hv. rewrite no_path_back by lia. ring.
Qed.

Variable e : nat -> R.  (* bound on what is added *)
Definition reach u : R := Sum v in seq 0 (S u), Rabs (path u v) * e v.

(** If every operation is its map and no more than e beside it as long as what comes before is in range, and a number
    that is no farther than its reach is in range, then all are: the first that were not would have all others in theirs. *)
Theorem every_number_is_in_range (in_range : nat -> Prop) :
  (forall u, (forall w, (w < u)%nat -> in_range w) -> maps_at u /\ Rabs (tau u) <= e u) ->
  (forall u, (forall w, (w < u)%nat -> in_range w) -> Rabs (d u) <= reach u -> in_range u) ->
  forall u, in_range u /\ Rabs (d u) <= reach u.
Proof.
  intros Hstep Hrange.
  assert (Hreach : forall u, (forall w, (w < u)%nat -> in_range w) -> Rabs (d u) <= reach u).
  { intros u Hu. rewrite along_paths.
    - eapply Rle_trans; [apply sum_abs|]. apply sum_le. intros v Hv. apply in_seq in Hv.
      rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|]. apply Hstep. intros w Hw. apply Hu. lia.
    - intros w Hw. apply Hstep. intros x Hx. apply Hu. lia. }
  assert (Hin : forall u, in_range u) by (intros u; induction u as [u IH] using lt_wf_ind; auto).
  auto.
Qed.

(** So ranges D that are no narrower than what they must hold do hold, at any depth. *)
Corollary ranges_hold (D : nat -> R) :
  (forall u, (forall w, (w < u)%nat -> Rabs (d w) <= D w) -> maps_at u /\ Rabs (tau u) <= e u) ->
  (forall u, reach u <= D u) -> forall u, Rabs (d u) <= D u.
Proof.
  intros Hstep HD u. apply (every_number_is_in_range (fun u => Rabs (d u) <= D u)); [exact Hstep|].
  intros v _ Hv. eapply Rle_trans; [exact Hv|apply HD].
Qed.

(** A backward pass that errs by h: whatever numbers g it gives, what it misses is the sum of h d. *)
Theorem a_backward_pass_that_errs n out (g : nat -> R) :
  (out < n)%nat -> (forall u, (u < n)%nat -> maps_at u) ->
  let h x := (if (x =? out)%nat then 1 else 0) + Sum w in seq 0 n, J w x * g w - g x in
  d out = Sum w in seq 0 n, g w * tau w + Sum x in seq 0 n, h x * d x.
Proof.
  intros Hout Hmaps h.
  assert (Htau : Sum w in seq 0 n, g w * tau w
    = Sum w in seq 0 n, g w * d w - Sum w in seq 0 n, Sum x in seq 0 n, J w x * g w * d x).
  { rewrite <- sum_minus. apply sum_ext. intros w Hw. apply in_seq in Hw.
    rewrite (sum_up_to w n) by (lia || (intros v Hv; rewrite in_order by lia; ring)).
    rewrite (sum_ext (seq 0 w) _ (fun x => g w * (J w x * d x))) by (intros; ring).
    rewrite sum_scale. pose proof (Hmaps w ltac:(lia)) as H. unfold maps_at in H. rewrite H at 1. ring. }
  rewrite Htau, sum_swap, <- (sum_single n out d Hout).
  unfold h.
  rewrite (sum_ext (seq 0 n) (fun x => (_ + _ - _) * d x)
    (fun x => (if (x =? out)%nat then d x else 0) + (Sum w in seq 0 n, J w x * g w * d x) - g x * d x)).
  - rewrite sum_minus, sum_plus. ring.
  - intros x _. rewrite (sum_scale_r (d x)). destruct (x =? out)%nat; ring.
Qed.
End Graph.

(** A residual block: one path past the number in the middle, and one through it. *)
Example paths_of_a_residual (a b c : R) :
  path (fun u w => match u, w with 1%nat, O => a | 2%nat, O => b | 2%nat, 1%nat => c | _, _ => 0 end) 2 0 = b + c * a.
Proof. unfold path. simpl. ring. Qed.
