(** * The quadratic relative positional encoding (draft, eq. (9)-(11), with D_p = 3)

    Beside proofs/claims/theorem/encoding.py (claim encoding-identity) and proofs/claims/theorem/one_hot.py (claim
    unique-maximum); the code is convert/heads/encoding.py. *)

From Coq Require Import ZArith Lia Lra Psatz.
From Conv2Attn Require Import Sums.

(** ** Pixels *)

(** (row, column); also the difference of two pixels. *)
Definition pixel : Type := Z * Z.

Definition add (p d : pixel) : pixel := ((fst p + fst d)%Z, (snd p + snd d)%Z).
Definition sub (k q : pixel) : pixel := ((fst k - fst q)%Z, (snd k - snd q)%Z).

(** |delta|^2 *)
Definition norm2 (d : pixel) : R := IZR (fst d) ^ 2 + IZR (snd d) ^ 2.

Definition pixel_eq_dec : forall p q : pixel, {p = q} + {p <> q}.
Proof. intros p q; decide equality; apply Z.eq_dec. Defined.

(** Two different pixels are at least 1 apart. *)
Lemma norm2_gap p q : p <> q -> 1 <= norm2 (sub p q).
Proof.
  destruct p as [a b], q as [c d]; intros H. unfold norm2, sub; simpl fst; simpl snd.
  rewrite !pow_IZR, <- plus_IZR. apply IZR_le. simpl.
  assert (a <> c \/ b <> d) as [Hn|Hn].
  { destruct (Z.eq_dec a c); [right|left]; congruence. }
  all: nia.
Qed.

Lemma norm2_diagonal p : norm2 (sub p p) = 0.
Proof. unfold norm2, sub; simpl fst; simpl snd. rewrite !Z.sub_diag. ring. Qed.

(** ** Vectors *)

(** A vector or a matrix is the function of its indices; how far they run stands beside it. *)
Definition vector : Type := nat -> R.
Definition matrix : Type := nat -> nat -> R.

(** The vector with these entries. *)
Definition vec (entries : list R) : vector := fun i => nth i entries 0.

(** u . v in R^n *)
Definition dot (n : nat) (u v : vector) : R := Sum i in seq 0 n, u i * v i.

Example dot_in_R3 : dot 3 (vec [1; 2; 3]) (vec [4; 5; 6]) = 32.
Proof. unfold dot, vec; simpl; lra. Qed.

(** ** The encoding *)

(** r_delta = (|delta|^2, delta_1, delta_2) *)
Definition relative_encoding (d : pixel) : vector := vec [norm2 d; IZR (fst d); IZR (snd d)].

(** v = -alpha (1, -2 Delta_1, -2 Delta_2), for the centre of attention Delta *)
Definition head_vector (alpha : R) (center : pixel) : vector :=
  vec [- alpha; 2 * alpha * IZR (fst center); 2 * alpha * IZR (snd center)].

(** Draft, eq. (11), up to a constant that the softmax does not see. It holds for every alpha. *)
Theorem encoding_identity alpha center d :
  dot 3 (head_vector alpha center) (relative_encoding d)
  = - alpha * norm2 (sub d center) + alpha * norm2 center.
Proof.
  unfold dot, head_vector, relative_encoding, vec, norm2, sub; simpl.
  rewrite !minus_IZR. ring.
Qed.

(** The score is largest at the centre only, and there is a gap of alpha below it. *)
Theorem unique_maximum alpha center d :
  0 < alpha -> d <> center ->
  dot 3 (head_vector alpha center) (relative_encoding d)
  <= dot 3 (head_vector alpha center) (relative_encoding center) - alpha.
Proof.
  intros Ha Hd. rewrite !encoding_identity, norm2_diagonal.
  pose proof (norm2_gap _ _ Hd). nra.
Qed.

(** ** n dimensions: D_p = n + 1 *)

(** A point of R^n, as the list of its coordinates; Z^n has integer ones. *)
Definition norm2_n (x : list R) : R := Sum c in x, c ^ 2.

Definition sub_n (x y : list R) : list R := map (fun p => fst p - snd p) (combine x y).

(** r = (|delta|^2, delta_1, ..., delta_n) and v = -alpha (1, -2 Delta_1, ..., -2 Delta_n) *)
Definition relative_encoding_n (d : list R) : vector := vec (norm2_n d :: d).
Definition head_vector_n (alpha : R) (center : list R) : vector :=
  vec (- alpha :: map (fun c => 2 * alpha * c) center).

Lemma dot_cons n a u b v : dot (S n) (vec (a :: u)) (vec (b :: v)) = a * b + dot n (vec u) (vec v).
Proof. unfold dot. cbn [seq sum_over]. rewrite sum_shift. reflexivity. Qed.

Theorem encoding_identity_n alpha n (center d : list R) :
  length center = n -> length d = n ->
  dot (n + 1) (head_vector_n alpha center) (relative_encoding_n d)
  = - alpha * norm2_n (sub_n d center) + alpha * norm2_n center.
Proof.
  intros Hc Hd. rewrite Nat.add_1_r. unfold head_vector_n, relative_encoding_n. rewrite dot_cons.
  enough (dot n (vec (map (fun c => 2 * alpha * c) center)) (vec d)
          = alpha * norm2_n d + (- alpha * norm2_n (sub_n d center) + alpha * norm2_n center)) by lra.
  revert center d Hc Hd. induction n as [|n IH]; intros [|c center] [|x d]; try discriminate.
  - intros _ _. unfold dot, norm2_n. simpl. ring.
  - intros Hc Hd. injection Hc as Hc. injection Hd as Hd. simpl map. rewrite dot_cons, (IH _ _ Hc Hd).
    unfold norm2_n, sub_n. simpl. ring.
Qed.

(** Two different points of Z^n are at least 1 apart. *)
Theorem unique_maximum_n alpha (center d : list Z) :
  0 < alpha -> length d = length center -> d <> center ->
  - alpha * norm2_n (sub_n (map IZR d) (map IZR center)) <= - alpha.
Proof.
  intros Ha Hl Hd. enough (1 <= norm2_n (sub_n (map IZR d) (map IZR center))) by nra.
  revert center Hl Hd. induction d as [|x d IH]; intros [|c center] Hl Hd; try discriminate; [congruence|].
  injection Hl as Hl. unfold norm2_n, sub_n in *. simpl.
  rewrite <- minus_IZR.
  assert (0 <= Sum c0 in map (fun p => fst p - snd p) (combine (map IZR d) (map IZR center)), c0 * (c0 * 1)).
  { apply sum_nonneg; intros; nra. }
  destruct (Z.eq_dec x c) as [->|Hx].
  - rewrite Z.sub_diag. specialize (IH center Hl). simpl in IH.
    assert (d <> center) by congruence. specialize (IH H0). nra.
  - enough (1 <= IZR (x - c) * (IZR (x - c) * 1)) by lra.
    rewrite Rmult_1_r, <- mult_IZR. apply IZR_le. nia.
Qed.
