(** * Multi-head self-attention with relative positions, as the paper defines it

    Scores (draft, eq. (7)), softmax over all keys, value projection, concatenation of heads, output projection.
    Beside proofs/claims/theorem/decomposition.py (claim decomposition-relative) and proofs/claims/errata/passages.py (claim errata-draft); the
    code is convert/layer/layer.py and convert/engines/literal.py. *)

From Coq Require Import Arith Lia Lra.
From Conv2Attn Require Import Sums Encoding Softmax Convolution.

(** Where queries and keys sit: pixels, or points of a grid with any number of axes. Attention sees of them what leads
    from one to the other. *)
Class positions (P : Type) := difference : P -> P -> P.
#[export] Instance pixels : positions pixel := sub.

(** M x, for a matrix with n columns. *)
Definition apply (n : nat) (M : matrix) (x : vector) : vector := fun i => dot n (M i) x.

Definition zero_matrix : matrix := fun _ _ => 0.
Definition zero_vector : vector := fun _ => 0.
Definition identity : matrix := fun i j => if (i =? j)%nat then 1 else 0.

(** What a head learns. *)
Record head := Head {
  W_qry : matrix;      (** D_k x D_in, for the content of the query *)
  W_key : matrix;      (** D_k x D_in, for the content of the key *)
  W_pos : matrix;      (** D_k x D_p, for the relative position: the paper's W_key with a hat *)
  u : vector;          (** D_k *)
  v : vector;          (** D_k *)
  W_val : matrix       (** D_in x D_h *)
}.

(** A layer: its dimensions, its positional encoding r_delta in R^(D_p), its heads, and the output projection. *)
Record layer (P : Type) := Layer {
  D_in : nat; D_k : nat; D_p : nat; D_h : nat; D_out : nat; N_h : nat;
  encoding : P -> vector;
  heads : nat -> head;
  W_out : matrix;      (** (N_h D_h) x D_out *)
  b_out : vector       (** D_out *)
}.
Arguments D_in {P}. Arguments D_k {P}. Arguments D_p {P}. Arguments D_h {P}. Arguments D_out {P}. Arguments N_h {P}.
Arguments encoding {P}. Arguments heads {P}. Arguments W_out {P}. Arguments b_out {P}.

Section Attention.
Context {P : Type} {Hpositions : positions P}.
Implicit Types (L : layer P) (keys : list P) (X : P -> vector) (q k : P).

(** The four terms of draft, eq. (7): content and content, content and position, u and content, v and position. *)
Definition score L (h : head) X q k : R :=
  let r := encoding L (difference k q) in
  dot (D_k L) (apply (D_in L) (W_qry h) (X q)) (apply (D_in L) (W_key h) (X k))
  + dot (D_k L) (apply (D_in L) (W_qry h) (X q)) (apply (D_p L) (W_pos h) r)
  + dot (D_k L) (u h) (apply (D_in L) (W_key h) (X k))
  + dot (D_k L) (v h) (apply (D_p L) (W_pos h) r).

(** Attention probabilities: softmax over all keys. *)
Definition probability L (h : head) keys X q : P -> R :=
  softmax keys (score L h X q).

(** Row q of softmax(A) X W_val. *)
Definition head_output L (h : head) keys X q : vector := fun d =>
  Sum k in keys, probability L h keys X q k * Sum c in seq 0 (D_in L), X k c * W_val h c d.

(** Heads one after the other, D_h entries each. *)
Definition concat L keys X q : vector := fun j =>
  head_output L (heads L (j / D_h L)) keys X q (j mod D_h L).

(** concat(heads) W_out + b_out *)
Definition mhsa L keys X q : vector := fun o =>
  (Sum j in seq 0 (N_h L * D_h L), concat L keys X q j * W_out L j o) + b_out L o.

(** The concatenation of (1, 2) and (3, 4) is (1, 2, 3, 4). *)
Example indices_of_a_concatenation :
  map (fun j => nth (j mod 2) (nth (j / 2) [[1; 2]; [3; 4]] []) 0) (seq 0 4) = [1; 2; 3; 4].
Proof. reflexivity. Qed.

(** Projecting the concatenation is the same as adding up the heads, each with its own block of W_out. *)
Lemma mhsa_is_sum_over_heads L keys X q o :
  mhsa L keys X q o =
  (Sum h in seq 0 (N_h L), Sum d in seq 0 (D_h L),
    head_output L (heads L h) keys X q d * W_out L (h * D_h L + d)%nat o) + b_out L o.
Proof.
  unfold mhsa, concat. f_equal.
  rewrite <- (sum_blocks (N_h L) (D_h L)
    (fun h d => head_output L (heads L h) keys X q d * W_out L (h * D_h L + d)%nat o)).
  apply sum_ext; intros j Hj. apply in_seq in Hj. f_equal. f_equal.
  rewrite Nat.mul_comm. apply Nat.div_mod. nia.
Qed.

(** ** What the zero and the identity matrix do *)

Lemma apply_zero n x i : apply n zero_matrix x i = 0.
Proof. unfold apply, dot, zero_matrix. apply sum_zero; intros; ring. Qed.

Lemma dot_zero_l n x y : (forall i, (i < n)%nat -> x i = 0) -> dot n x y = 0.
Proof. intros H. apply sum_zero; intros i Hi. apply in_seq in Hi. rewrite H by lia. ring. Qed.

Lemma dot_zero_r n x y : (forall i, (i < n)%nat -> y i = 0) -> dot n x y = 0.
Proof. intros H. apply sum_zero; intros i Hi. apply in_seq in Hi. rewrite H by lia. ring. Qed.

Lemma apply_identity n x i : (i < n)%nat -> apply n identity x i = x i.
Proof.
  intros Hi. unfold apply, dot. rewrite <- (sum_single n i x Hi).
  apply sum_ext; intros j _. unfold identity. rewrite Nat.eqb_sym. destruct (j =? i)%nat; ring.
Qed.

Lemma apply_identity_beyond n x i : (n <= i)%nat -> apply n identity x i = 0.
Proof.
  intros Hi. apply sum_zero; intros j Hj. apply in_seq in Hj. unfold identity.
  rewrite (proj2 (Nat.eqb_neq i j)) by lia. ring.
Qed.

(** If W_qry = W_key = 0 and W_pos is the identity matrix, with rows of zeros below it where D_k is larger than D_p, only
    the term v . r_delta is left. Where D_k is smaller, W_pos has the first rows of the identity, and v must not need the
    others. *)
Lemma score_of_position L (h : head) X q k :
  W_qry h = zero_matrix -> W_key h = zero_matrix -> W_pos h = identity ->
  (forall i, (D_k L <= i < D_p L)%nat -> v h i = 0) ->
  score L h X q k = dot (D_p L) (v h) (encoding L (difference k q)).
Proof.
  intros Hq Hk Hp Hv. unfold score. rewrite Hq, Hk, Hp.
  rewrite !(dot_zero_l _ (apply _ zero_matrix _)), dot_zero_r by (intros; apply apply_zero).
  rewrite !Rplus_0_l. set (r := encoding L (difference k q)). set (m := Nat.min (D_k L) (D_p L)).
  assert (Hsplit : forall n f, (m <= n)%nat -> (forall i, (m <= i < n)%nat -> f i = 0) ->
    Sum i in seq 0 n, f i = Sum i in seq 0 m, f i).
  { intros n f Hn Hf. replace n with (m + (n - m))%nat by lia.
    rewrite seq_app, sum_app, (sum_zero (seq (0 + m) _)); [ring|]. intros i Hi. apply in_seq in Hi. apply Hf. lia. }
  unfold dot. rewrite (Hsplit (D_k L)), (Hsplit (D_p L)).
  - apply sum_ext; intros i Hi. apply in_seq in Hi. now rewrite apply_identity by lia.
  - lia.
  - intros i Hi. rewrite Hv by lia. ring.
  - lia.
  - intros i Hi. rewrite apply_identity_beyond by lia. ring.
Qed.
End Attention.
