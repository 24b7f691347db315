(** * Finite sums of real numbers

    [Sum x in l, f x] adds up [f] over a list. Lists of indices below [n] are [seq 0 n]; the keys of attention, the
    taps of a kernel and the channels of an image are all summed over in this way. *)

From Coq Require Export Reals List.
From Coq Require Import Arith Lia Lra Permutation.
Export ListNotations.
Open Scope R_scope.

Fixpoint sum_over {A : Type} (l : list A) (f : A -> R) : R :=
  match l with
  | [] => 0
  | a :: rest => f a + sum_over rest f
  end.

Notation "'Sum' x 'in' l , e" := (sum_over l (fun x => e))
  (at level 41, x name, l at level 40, e at level 41, right associativity).

(** It means what it says: 1 + 4 + 9, and it binds like a product. *)
Example sum_of_squares : Sum x in [1; 2; 3], x * x = 14.
Proof. simpl; lra. Qed.

Section Sums.
  Context {A B : Type}.
  Implicit Types (l : list A) (f g : A -> R).

  Lemma sum_ext l f g : (forall x, In x l -> f x = g x) -> Sum x in l, f x = Sum x in l, g x.
  Proof.
    induction l as [|a l IH]; simpl; intros H; [reflexivity|].
    rewrite H by auto. rewrite IH; auto.
  Qed.

  Lemma sum_le l f g : (forall x, In x l -> f x <= g x) -> Sum x in l, f x <= Sum x in l, g x.
  Proof.
    induction l as [|a l IH]; simpl; intros H; [lra|].
    apply Rplus_le_compat; auto.
  Qed.

  Lemma sum_zero l f : (forall x, In x l -> f x = 0) -> Sum x in l, f x = 0.
  Proof.
    induction l as [|a l IH]; simpl; intros H; [reflexivity|].
    rewrite H, IH by auto. ring.
  Qed.

  Lemma sum_nonneg l f : (forall x, In x l -> 0 <= f x) -> 0 <= Sum x in l, f x.
  Proof.
    intros H. rewrite <- (sum_zero l (fun _ => 0)) by auto. now apply sum_le.
  Qed.

  Lemma sum_plus l f g : Sum x in l, (f x + g x) = Sum x in l, f x + Sum x in l, g x.
  Proof. induction l as [|a l IH]; simpl; [ring|rewrite IH; ring]. Qed.

  Lemma sum_minus l f g : Sum x in l, (f x - g x) = Sum x in l, f x - Sum x in l, g x.
  Proof. induction l as [|a l IH]; simpl; [ring|rewrite IH; ring]. Qed.

  Lemma sum_scale c l f : Sum x in l, c * f x = c * Sum x in l, f x.
  Proof. induction l as [|a l IH]; simpl; [ring|rewrite IH; ring]. Qed.

  Lemma sum_scale_r c l f : Sum x in l, f x * c = (Sum x in l, f x) * c.
  Proof. induction l as [|a l IH]; simpl; [ring|rewrite IH; ring]. Qed.

  (** The triangle inequality. *)
  Lemma sum_abs l f : Rabs (Sum x in l, f x) <= Sum x in l, Rabs (f x).
  Proof.
    induction l as [|a l IH]; simpl; [rewrite Rabs_R0; lra|].
    eapply Rle_trans; [apply Rabs_triang|lra].
  Qed.

  Lemma sum_app l l' f : Sum x in l ++ l', f x = Sum x in l, f x + Sum x in l', f x.
  Proof. induction l as [|a l IH]; simpl; [ring|rewrite IH; ring]. Qed.

  Lemma sum_map (h : B -> A) (l : list B) f : Sum x in map h l, f x = Sum y in l, f (h y).
  Proof. induction l as [|a l IH]; simpl; [reflexivity|rewrite IH; reflexivity]. Qed.

  Lemma sum_permutation l l' f : Permutation l l' -> Sum x in l, f x = Sum x in l', f x.
  Proof. induction 1; simpl; lra. Qed.

  (** One term of a sum of non-negative terms is at most the sum. *)
  Lemma term_le_sum l f x : (forall y, In y l -> 0 <= f y) -> In x l -> f x <= Sum y in l, f y.
  Proof.
    intros Hf Hx. destruct (in_split _ _ Hx) as (l1 & l2 & ->).
    rewrite sum_app; simpl.
    assert (0 <= Sum y in l1, f y) by (apply sum_nonneg; intros; apply Hf, in_or_app; auto).
    assert (0 <= Sum y in l2, f y) by (apply sum_nonneg; intros; apply Hf, in_or_app; simpl; auto).
    lra.
  Qed.

  (** Different indices of a larger list give at most the larger sum. *)
  Lemma sum_incl l l' f :
    NoDup l -> incl l l' -> (forall x, In x l' -> 0 <= f x) -> Sum x in l, f x <= Sum x in l', f x.
  Proof.
    revert l'. induction l as [|a l IH]; simpl; intros l' Hl Hi Hf; [now apply sum_nonneg|].
    inversion_clear Hl as [|? ? Ha Hl'].
    destruct (in_split a l') as (l1 & l2 & ->); [apply Hi; simpl; auto|].
    assert (Sum x in l, f x <= Sum x in l1 ++ l2, f x).
    { apply IH; auto.
      - intros x Hx. specialize (Hi x (or_intror Hx)). apply in_app_or in Hi. apply in_or_app.
        destruct Hi as [H|[->|H]]; auto. contradiction.
      - intros x Hx. apply Hf. apply in_app_or in Hx. apply in_or_app. simpl. tauto. }
    rewrite sum_app in *. simpl. lra.
  Qed.

End Sums.

(** The order of two sums may be changed. *)
Lemma sum_swap {A B} (l : list A) (l' : list B) (f : A -> B -> R) :
  Sum x in l, Sum y in l', f x y = Sum y in l', Sum x in l, f x y.
Proof.
  induction l as [|a l IH]; simpl.
  - symmetry. now apply sum_zero.
  - rewrite IH, <- sum_plus. reflexivity.
Qed.

(** A sum over pairs is a double sum; if the terms are products, it is a product of two sums. *)
Lemma sum_pairs {A B} (l : list A) (l' : list B) (f : A * B -> R) :
  Sum p in list_prod l l', f p = Sum x in l, Sum y in l', f (x, y).
Proof.
  induction l as [|a l IH]; simpl; [reflexivity|].
  rewrite sum_app, sum_map, IH. reflexivity.
Qed.

Lemma sum_product {A B} (l : list A) (l' : list B) (f : A -> R) (g : B -> R) :
  Sum x in l, Sum y in l', f x * g y = (Sum x in l, f x) * (Sum y in l', g y).
Proof.
  rewrite <- sum_scale_r. apply sum_ext; intros x _. apply sum_scale.
Qed.

(** ** Sums over indices below n *)

Lemma sum_shift n m (f : nat -> R) : Sum i in seq m n, f i = Sum i in seq 0 n, f (m + i)%nat.
Proof.
  revert m f. induction n as [|n IH]; intros m f; simpl; [reflexivity|].
  rewrite (IH (S m)), (IH 1%nat), Nat.add_0_r. f_equal.
  apply sum_ext; intros i _. f_equal; lia.
Qed.

(** The numbers below a * b are i * b + j with i < a and j < b. This is how a concatenation of a vectors of length b
    is indexed, and how a flat index runs over an a x b kernel. *)
Lemma sum_blocks a b (f : nat -> nat -> R) :
  Sum k in seq 0 (a * b), f (k / b)%nat (k mod b)%nat = Sum i in seq 0 a, Sum j in seq 0 b, f i j.
Proof.
  destruct b as [|b]; [rewrite Nat.mul_0_r; simpl; now rewrite sum_zero|].
  induction a as [|a IH]; [reflexivity|].
  rewrite seq_S, sum_app, <- IH. cbn [sum_over plus].
  replace (S a * S b)%nat with (a * S b + S b)%nat by lia.
  rewrite seq_app, sum_app. f_equal. cbn [plus].
  rewrite sum_shift, Rplus_0_r. apply sum_ext; intros j Hj. apply in_seq in Hj.
  rewrite Nat.add_comm, Nat.div_add, Nat.mod_add, Nat.div_small, Nat.mod_small by lia. reflexivity.
Qed.

(** A sum in which a single index counts. *)
Lemma sum_single n k (f : nat -> R) :
  (k < n)%nat -> Sum i in seq 0 n, (if (i =? k)%nat then f i else 0) = f k.
Proof.
  intros Hk. replace n with (k + S (n - k - 1))%nat by lia.
  rewrite seq_app, sum_app. simpl. rewrite Nat.eqb_refl, !sum_zero; [ring| |];
    intros i Hi; apply in_seq in Hi; destruct (Nat.eqb_spec i k); lia || reflexivity.
Qed.
