(** * gamma_m: what rounding costs a sum of m products, in any order

    Beside proofs/claims/certificate/rounding.py (claim rounded-sum) and proofs/claims/certificate/underflow.py (claim
    underflow-errors); the code is [gamma] in convert/bounds/rounding.py. *)

From Coq Require Import Bool Arith Lia Lra Psatz Permutation.
From Conv2Attn Require Import Sums Summation.
Open Scope bool_scope.
Open Scope R_scope.

(** gamma_m = m u / (1 - m u) *)
Definition gamma (m : nat) (u : R) : R := INR m * u / (1 - INR m * u).

Lemma power_gamma m u : 0 <= u -> INR m * u < 1 -> (1 + u) ^ m - 1 <= gamma m u.
Proof.
  intros Hu Hm. unfold gamma.
  assert (H : (1 - INR m * u) * (1 + u) ^ m <= 1).
  { clear Hm. assert (0 <= u * u) by nra. induction m as [|m IH]; [simpl; lra|]. rewrite S_INR. simpl pow.
    pose proof (pos_INR m). assert (0 <= (1 + u) ^ m) by (apply pow_le; lra).
    assert ((1 - (INR m + 1) * u) * (1 + u) <= 1 - INR m * u) by nra.
    replace ((1 - (INR m + 1) * u) * ((1 + u) * (1 + u) ^ m)) with ((1 - (INR m + 1) * u) * (1 + u) * (1 + u) ^ m) by ring.
    nra. }
  apply Rmult_le_reg_r with (1 - INR m * u); [lra|].
  replace (INR m * u / (1 - INR m * u) * (1 - INR m * u)) with (INR m * u) by (field; lra). lra.
Qed.

Lemma gamma_nonneg m u : 0 <= u -> INR m * u < 1 -> 0 <= gamma m u.
Proof.
  intros Hu Hm. pose proof (power_gamma m u Hu Hm). assert (1 <= (1 + u) ^ m) by (apply pow_R1_Rle; lra). lra.
Qed.

Lemma gamma_grows m n u : 0 <= u -> (m <= n)%nat -> INR n * u < 1 -> gamma m u <= gamma n u.
Proof.
  intros Hu Hmn Hn. apply le_INR in Hmn. pose proof (pos_INR m). unfold gamma.
  assert (INR m * u <= INR n * u) by (apply Rmult_le_compat_r; lra). assert (0 <= INR m * u) by (apply Rmult_le_pos; lra).
  apply Rmult_le_compat; try lra; [left; apply Rinv_0_lt_compat; lra|]. apply Rinv_le_contravar; lra.
Qed.

(** Thirteen terms in single precision. *)
Example gamma_of_thirteen : gamma 13 (/ 2 ^ 24) = 13 / 16777203.
Proof. unfold gamma. simpl INR. field. Qed.

(** ** Terms *)

Definition value (p : R * R) : R := fst p * snd p.

Lemma exact_terms t : exact t = Sum p in terms t, value p.
Proof.
  unfold value. induction t as [x|a t IH|l IHl r IHr]; simpl.
  - ring.
  - rewrite sum_map, IH, <- sum_scale. apply sum_ext; intros p _. simpl. ring.
  - now rewrite sum_app, IHl, IHr.
Qed.

Lemma absolute_terms t : absolute t = Sum p in terms t, Rabs (value p).
Proof.
  unfold value. induction t as [x|a t IH|l IHl r IHr]; simpl.
  - rewrite Rmult_1_l. ring.
  - rewrite sum_map, IH, <- sum_scale. apply sum_ext; intros p _. simpl. now rewrite <- Rabs_mult, Rmult_assoc.
  - now rewrite sum_app, IHl, IHr.
Qed.

(** How many terms are not zero. *)
Definition live (l : list (R * R)) : nat := length (filter (fun p => negb (is_zero (value p))) l).

Lemma is_zero_product a x : is_zero (a * x) = is_zero a || is_zero x.
Proof.
  unfold is_zero. destruct (Req_EM_T a 0) as [->|Ha], (Req_EM_T x 0) as [->|Hx]; simpl;
    destruct Req_EM_T as [E|E]; try reflexivity; exfalso; try (apply E; ring).
  apply Rmult_integral in E. tauto.
Qed.

Lemma live_scaled a l : live (map (fun p => (a * fst p, snd p)) l) = if is_zero a then 0%nat else live l.
Proof.
  unfold live. induction l as [|p l IH]; simpl; [now destruct (is_zero a)|].
  assert (E : is_zero (value (a * fst p, snd p)) = is_zero a || is_zero (value p)).
  { unfold value. simpl. now rewrite !is_zero_product, orb_assoc. }
  rewrite E. destruct (is_zero a); simpl; [exact IH|]. destruct (is_zero (value p)); simpl; [exact IH|now rewrite IH].
Qed.

Lemma live_app l l' : live (l ++ l') = (live l + live l')%nat.
Proof. unfold live. now rewrite filter_app, app_length. Qed.

Lemma live_permutation l l' : Permutation l l' -> live l = live l'.
Proof.
  unfold live. induction 1 as [|p l l' H IH|p q l|l l' l'' H1 IH1 H2 IH2]; simpl; [reflexivity| | |congruence].
  - destruct (is_zero (value p)); simpl; congruence.
  - destruct (is_zero (value p)), (is_zero (value q)); reflexivity.
Qed.

Lemma null_live t : null t = (live (terms t) =? 0)%nat.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl.
  - unfold live. simpl. unfold value. simpl. rewrite Rmult_1_l. now destruct (is_zero x).
  - rewrite live_scaled, IH. now destruct (is_zero a).
  - rewrite live_app, IHl, IHr. destruct (live (terms l)) eqn:E; [reflexivity|]. simpl. reflexivity.
Qed.

(** A sum has at most as many roundings on the way of a term as it has terms that are not zero; one less if nothing is
    multiplied. *)
Lemma plain_depth t : plain t -> (depth t <= live (terms t) - 1)%nat.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; [lia| |].
  - intros [Ha Ht]. rewrite live_scaled. specialize (IH Ht). unfold is_zero, is_one.
    destruct (Req_EM_T a 0); simpl; [lia|]. destruct (null t); [lia|].
    destruct (Req_EM_T a 1); [assumption|tauto].
  - intros [Hl Hr]. specialize (IHl Hl). specialize (IHr Hr). rewrite live_app, !null_live.
    destruct (Nat.eqb_spec (live (terms l)) 0), (Nat.eqb_spec (live (terms r)) 0); lia.
Qed.

Lemma single_depth t : single t -> (depth t <= live (terms t))%nat.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; [lia| |].
  - rewrite live_scaled. intros Hs. destruct (is_zero a) eqn:Ha; simpl in *; [lia|].
    rewrite null_live. destruct (Nat.eqb_spec (live (terms t)) 0); [lia|].
    destruct (is_one a); [now apply IH|]. pose proof (plain_depth t Hs). lia.
  - intros [Hl Hr]. specialize (IHl Hl). specialize (IHr Hr). rewrite live_app, !null_live.
    destruct (Nat.eqb_spec (live (terms l)) 0), (Nat.eqb_spec (live (terms r)) 0); lia.
Qed.

Lemma products_live t : (products t <= live (terms t))%nat.
Proof.
  induction t as [x|a t IH|l IHl r IHr]; simpl; [lia| |].
  - rewrite live_scaled, null_live. destruct (is_zero a); simpl; [lia|].
    destruct (Nat.eqb_spec (live (terms t)) 0); [lia|]. destruct (is_one a); lia.
  - rewrite live_app. lia.
Qed.

(** ** The error of a sum, in any order *)

(** What underflow can add: m products of which each loses at most [tiny]. *)
Definition underflow (A : arithmetic) (m : nat) : R := (1 + gamma m (unit A)) * INR m * tiny A.

(** However a machine adds up these terms, and fuses or does not fuse products into sums: if at most m of them are not
    zero, it is off by at most gamma_m of the sum of their absolute values, and by underflow. *)
Theorem rounded_sum A t y l m :
  computes A t y -> single t -> Permutation (terms t) l -> (live l <= m)%nat -> INR m * unit A < 1 ->
  Rabs (y - Sum p in l, value p) <= gamma m (unit A) * (Sum p in l, Rabs (value p)) + underflow A m.
Proof.
  intros Hc Hs Hl Hm Hu. pose proof (unit_positive A) as Hu0. pose proof (tiny_nonneg A) as Ht0.
  rewrite <- (sum_permutation _ _ _ Hl), <- (sum_permutation _ _ _ Hl), <- exact_terms, <- absolute_terms.
  rewrite <- (live_permutation _ _ Hl) in Hm.
  eapply Rle_trans; [now apply (tree_error A)|].
  eapply Rle_trans.
  { apply (error_grows A _ m); [|apply absolute_nonneg]. pose proof (single_depth t Hs). lia. }
  pose proof (power_gamma m (unit A) ltac:(lra) Hu) as Hpow.
  pose proof (absolute_nonneg t). pose proof (products_live t). unfold error_of, underflow.
  assert (1 <= (1 + unit A) ^ m) by (apply pow_R1_Rle; lra).
  assert (INR (products t) <= INR m) by (apply le_INR; lia). pose proof (pos_INR (products t)).
  apply Rplus_le_compat; [apply Rmult_le_compat_r; lra|].
  apply Rmult_le_compat_r; [assumption|]. apply Rmult_le_compat; lra.
Qed.

(** A sum of numbers of which one is not zero is that number, in any order: nothing is rounded. *)
Theorem single_term_is_exact A t y l x :
  computes A t y -> plain t -> Permutation (terms t) l -> (live l <= 1)%nat -> Sum p in l, value p = x -> y = x.
Proof.
  intros Hc Hp Hl Hlive <-. rewrite <- (sum_permutation _ _ _ Hl), <- exact_terms.
  rewrite <- (live_permutation _ _ Hl) in Hlive.
  assert (Hs : single t).
  { clear - Hp. induction t as [x|a t IH|l IHl r IHr]; simpl in *; auto.
    - destruct Hp. destruct (is_zero a || is_one a); auto.
    - destruct Hp; auto. }
  pose proof (tree_error A t y Hc Hs) as H. pose proof (plain_depth t Hp).
  replace (depth t) with 0%nat in H by lia. rewrite (plain_products t Hp) in H. unfold error_of in H. simpl in H.
  assert (Rabs (y - exact t) <= 0) by lra. pose proof (Rabs_pos (y - exact t)).
  assert (Rabs (y - exact t) = 0) as E by lra. destruct (Req_dec (y - exact t) 0) as [|Hne]; [lra|].
  apply Rabs_no_R0 in Hne. contradiction.
Qed.
