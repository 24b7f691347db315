(** * Without padded keys, attention whose values see content alone is not the zero-padded convolution

    Softmax weights add up to 1, so attention over the pixels of a constant image gives the same at every query: whatever
    its heads, its encoding, its content terms and its projections. A convolution with zeros around the image does not.
    A [layer] here projects the content X to values; one that adds or appends positions to it first is another.
    Beside proofs/claims/theorem/padded_keys.py (claim padded-keys) and convert/spec.py, whose keys are all pixels of the padded image. *)

From Coq Require Import ZArith Arith Lia Lra.
From Conv2Attn Require Import Sums Encoding Softmax Grid Convolution Attention.

(** What every head gives on a constant image is its value, and no more. *)
Theorem constant_image_constant_output {P} `{positions P} (L : layer P) (keys : list P) (x : vector) (q q' : P) o :
  keys <> [] -> mhsa L keys (fun _ => x) q o = mhsa L keys (fun _ => x) q' o.
Proof.
  intros Hkeys. destruct keys as [|key keys]; [congruence|].
  rewrite !mhsa_is_sum_over_heads. f_equal. apply sum_ext; intros h _. apply sum_ext; intros d _. f_equal.
  unfold head_output. rewrite !sum_scale_r. f_equal. unfold probability.
  rewrite !(softmax_total (key :: keys) _ key) by (now left). reflexivity.
Qed.

(** A 3 x 3 box filter. *)
Definition box_geometry : geometry :=
  {| K1 := 3; K2 := 3; s1 := 1; s2 := 1; d1 := 1; d2 := 1; groups := 1; C_in_g := 1; C_out_g := 1 |}.
Definition box_kernel : kernel := fun _ _ _ _ => 1.
Definition ones : image := fun _ _ => 1.

(** With zeros around a 3 x 3 image of ones it gives 4 in the corner and 9 in the middle. *)
Example box_of_ones :
  let Y := conv box_geometry box_kernel (fun _ => 0) (zero_pad 3 3 1 1 ones) in Y 0%nat 0%nat 0%nat = 4 /\ Y 1%nat 1%nat 0%nat = 9.
Proof. unfold conv, zero_pad, ones, box_kernel, channel. simpl. lra. Qed.

(** So every such layer whose keys see the image and not its padding is off by at least 5/2 at one of these two outputs,
    wherever their queries sit: it neither computes this convolution nor approaches it, as the layer with padded keys
    does. *)
Theorem without_padded_keys_no_convolution {P} `{positions P} (L : layer P) (keys : list P) (b : vector)
    (query : nat -> nat -> P) :
  keys <> [] ->
  let error i j := Rabs (mhsa L keys (fun _ _ => 1) (query i j) 0%nat
    - conv box_geometry box_kernel b (zero_pad 3 3 1 1 ones) i j 0) in
  5 / 2 <= error 0%nat 0%nat \/ 5 / 2 <= error 1%nat 1%nat.
Proof.
  intros Hkeys error. unfold error.
  rewrite (constant_image_constant_output L keys (fun _ => 1) (query 0 0)%nat (query 1 1)%nat) by assumption.
  set (y := mhsa L keys (fun _ _ => 1) (query 1 1)%nat 0%nat).
  destruct box_of_ones as [H4 H9]. cbv zeta in H4, H9. unfold conv in H4, H9 |- *.
  match type of H4 with _ + ?A = _ => replace A with 4 by lra end.
  match type of H9 with _ + ?A = _ => replace A with 9 by lra end.
  destruct (Rle_dec (5 / 2) (Rabs (y - (b 0%nat + 4)))); [now left|right].
  split_Rabs; lra.
Qed.
