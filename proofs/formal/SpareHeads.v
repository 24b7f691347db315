(** * Spare heads: any heads beside those of a layer, with a block of W_out of their own

    A layer with M more heads is the layer plus what these heads give through their block of W_out, whatever they look at;
    where the block is 0 they add exactly 0. So Theorem 1 holds with heads to spare that read the content, before training
    and after it. Beside proofs/claims/theorem/spare_heads.py (claims spare-heads, identity-with-spare-heads); the code is
    convert/layer/spare.py. *)

From Coq Require Import Arith Lia Lra.
From Conv2Attn Require Import Sums Encoding Softmax Convolution Attention.
From Conv2Attn Require Import Grid Construction Theorem1 Box ConvolutionN TheoremN.

Section Spare.
Context {P : Type} {Hpositions : positions P}.
Implicit Types (L : layer P) (keys : list P) (X : P -> vector) (q : P).

(** The layer L with M more heads S, whose block of the output projection is W: a row for each head's entries. *)
Definition with_spare (M : nat) (S : nat -> head) (W : matrix) L : layer P := {|
  D_in := D_in L; D_k := D_k L; D_p := D_p L; D_h := D_h L; D_out := D_out L; N_h := N_h L + M;
  encoding := encoding L;
  heads := fun h => if (h <? N_h L)%nat then heads L h else S (h - N_h L)%nat;
  W_out := fun j o => if (j <? N_h L * D_h L)%nat then W_out L j o else W (j - N_h L * D_h L)%nat o;
  b_out := b_out L
|}.

(** What the spare heads give at query q: sum over heads j of head_j W_j. *)
Definition spare_output (M : nat) (S : nat -> head) (W : matrix) L keys X q : vector := fun o =>
  Sum j in seq 0 M, Sum d in seq 0 (D_h L), head_output L (S j) keys X q d * W (j * D_h L + d)%nat o.

Lemma sum_seq_from (start n : nat) (f : nat -> R) :
  Sum i in seq start n, f i = Sum i in seq 0 n, f (start + i)%nat.
Proof.
  revert start f. induction n as [|n IH]; intros start f; [reflexivity|].
  cbn [seq sum_over]. rewrite Nat.add_0_r. f_equal. rewrite (IH (S start) f), (IH 1%nat (fun i => f (start + i)%nat)).
  apply sum_ext; intros i _. f_equal. lia.
Qed.

(** Heads beside a layer's add what they give, for all scores, values, queries, keys and contents. *)
Theorem spare_heads_add M S W L keys X q o :
  mhsa (with_spare M S W L) keys X q o = mhsa L keys X q o + spare_output M S W L keys X q o.
Proof.
  rewrite !mhsa_is_sum_over_heads. unfold spare_output. cbn [with_spare N_h D_h b_out heads W_out].
  rewrite seq_app, sum_app, (sum_seq_from (0 + N_h L)).
  match goal with |- ?A + ?B + ?b = ?C + ?b + ?D => enough (A = C /\ B = D) as [-> ->] by ring end.
  split; apply sum_ext; intros h Hh; apply in_seq in Hh; apply sum_ext; intros d Hd; apply in_seq in Hd.
  - rewrite (proj2 (Nat.ltb_lt h (N_h L))), (proj2 (Nat.ltb_lt (h * D_h L + d) (N_h L * D_h L))) by nia. reflexivity.
  - rewrite (proj2 (Nat.ltb_ge (0 + N_h L + h) (N_h L))) by lia.
    rewrite (proj2 (Nat.ltb_ge ((0 + N_h L + h) * D_h L + d) (N_h L * D_h L))) by nia.
    replace (0 + N_h L + h - N_h L)%nat with h by lia.
    replace ((0 + N_h L + h) * D_h L + d - N_h L * D_h L)%nat with (h * D_h L + d)%nat by nia. reflexivity.
Qed.

(** So heads whose block of W_out is 0 add exactly 0. *)
Corollary spare_heads_at_0 M S W L keys X q o :
  (forall j, (j < M * D_h L)%nat -> W j o = 0) -> mhsa (with_spare M S W L) keys X q o = mhsa L keys X q o.
Proof.
  intros H. rewrite spare_heads_add. unfold spare_output. rewrite sum_zero; [ring|].
  intros j Hj. apply in_seq in Hj. apply sum_zero. intros d Hd. apply in_seq in Hd. rewrite H by nia. ring.
Qed.
End Spare.

(** Theorem 1 with spare heads: the layer is nearer than eps to the convolution plus what they give; with W_out = 0, to the
    convolution. For the kernel of one tap that is the identity it is the input plus attention: the non-local block. *)
Corollary theorem_1_with_spare_heads M S W' d r g W b B eps :
  enough d g -> extends_encoding (length (axes g)) r -> valid_n g -> 0 <= B -> 0 < eps ->
  forall alpha, alpha_for g W B eps <= alpha ->
  forall sizes X i o, (forall k c, In k (box sizes) -> Rabs (X k c) <= B) ->
  is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat ->
  let L := attention_n d r g W b (fun _ => alpha) in
  Rabs (mhsa (with_spare M S W' L) (box sizes) X (query_n (axes g) i) o
        - (conv_n g W b X i o + spare_output M S W' L (box sizes) X (query_n (axes g) i) o)) < eps.
Proof.
  intros Henough Hr Hvalid HB Heps alpha Ha sizes X i o HX Hout Ho L. rewrite spare_heads_add.
  match goal with |- Rabs (?A + ?C - (?D + ?C)) < _ => replace (A + C - (D + C)) with (A - D) by ring end.
  now apply theorem_1_whole with (B := B).
Qed.

(** Two heads beside two of a layer: rows 0 to 3 of W_out are the layer's where D_h = 2, and row 4 is the block's first. *)
Example rows_of_w_out (S : nat -> head) (L : layer pixel) (W : matrix) o : N_h L = 2%nat -> D_h L = 2%nat ->
  W_out (with_spare 2 S W L) 3%nat o = W_out L 3%nat o /\ W_out (with_spare 2 S W L) 4%nat o = W 0%nat o.
Proof. intros HN HD. cbn [with_spare W_out]. now rewrite HN, HD. Qed.
