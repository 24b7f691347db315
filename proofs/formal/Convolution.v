(** * Convolution, defined as the usual sum

    Every nn.Conv2d: kernel K1 x K2, stride, dilation, groups, bias, any padding. Like the geometry of
    convert/spec.py. *)

From Coq Require Import ZArith Arith Lia Lra.
From Conv2Attn Require Import Sums Encoding Grid.

(** An image gives each pixel a vector of channels; X k c is channel c of pixel k. *)
Definition image : Type := pixel -> vector.

Record geometry := Geometry {
  K1 : nat; K2 : nat;      (** rows and columns of the kernel *)
  s1 : nat; s2 : nat;      (** stride *)
  d1 : nat; d2 : nat;      (** dilation *)
  groups : nat;
  C_in_g : nat;            (** input channels of a group *)
  C_out_g : nat            (** output channels of a group *)
}.

Definition C_in (g : geometry) : nat := groups g * C_in_g g.
Definition C_out (g : geometry) : nat := groups g * C_out_g g.

(** The first pixel of the padded input that output (i, j) reads, and where tap (m, n) is from there. *)
Definition corner (g : geometry) (i j : nat) : pixel := (Z.of_nat (s1 g * i), Z.of_nat (s2 g * j)).
Definition tap (g : geometry) (m n : nat) : pixel := (Z.of_nat (d1 g * m), Z.of_nat (d2 g * n)).

(** A kernel as nn.Conv2d stores it: output channel, input channel within its group, row, column. *)
Definition kernel : Type := nat -> nat -> nat -> nat -> R.

(** The input channels that output channel o reads: those of its group. *)
Definition channel (g : geometry) (o c : nat) : nat := (o / C_out_g g) * C_in_g g + c.

(** b_o + sum over c, m, n of W[o, c, m, n] x[c, s1 i + d1 m, s2 j + d2 n], with X the padded input. *)
Definition conv (g : geometry) (W : kernel) (b : vector) (X : image) (i j o : nat) : R :=
  b o + Sum c in seq 0 (C_in_g g), Sum m in seq 0 (K1 g), Sum n in seq 0 (K2 g),
    W o c m n * X (add (corner g i j) (tap g m n)) (channel g o c).

(** ** Output size *)

(** floor((P - d (K - 1) - 1) / s) + 1 outputs along an axis of P pixels, if the kernel fits. *)
Definition output_size (P K s d : nat) : nat :=
  if (d * (K - 1) + 1 <=? P)%nat then ((P - d * (K - 1) - 1) / s + 1)%nat else 0%nat.

Example output_sizes :
  (output_size 4 3 1 1, output_size 7 3 2 1, output_size 7 3 1 3, output_size 2 3 1 1) = (2, 3, 1, 0)%nat.
Proof. reflexivity. Qed.

(** The output pixels of a convolution on an H x W padded input. *)
Definition is_output (g : geometry) (H W i j : nat) : Prop :=
  (i < output_size H (K1 g) (s1 g) (d1 g))%nat /\ (j < output_size W (K2 g) (s2 g) (d2 g))%nat.

(** The largest output is the last whose last tap is still on the axis. *)
Lemma output_size_spec P K s d i :
  (0 < s)%nat -> (0 < K)%nat -> ((i < output_size P K s d)%nat <-> (s * i + d * (K - 1) < P)%nat).
Proof.
  intros Hs HK. unfold output_size. destruct (Nat.leb_spec (d * (K - 1) + 1) P); [|lia].
  pose proof (Nat.div_mod (P - d * (K - 1) - 1) s ltac:(lia)).
  pose proof (Nat.mod_upper_bound (P - d * (K - 1) - 1) s ltac:(lia)).
  split; intros Hi; nia.
Qed.

(** Every pixel that a convolution reads is one of the padded input. *)
Lemma target_in_grid g H W i j m n :
  (0 < s1 g)%nat -> (0 < s2 g)%nat -> is_output g H W i j -> (m < K1 g)%nat -> (n < K2 g)%nat ->
  In (add (corner g i j) (tap g m n)) (grid H W).
Proof.
  intros Hs1 Hs2 [Hi Hj] Hm Hn.
  apply output_size_spec in Hi; [|lia|lia]. apply output_size_spec in Hj; [|lia|lia].
  apply in_grid. unfold corner, tap, add; simpl fst; simpl snd.
  assert (d1 g * m <= d1 g * (K1 g - 1))%nat by (apply Nat.mul_le_mono_l; lia).
  assert (d2 g * n <= d2 g * (K2 g - 1))%nat by (apply Nat.mul_le_mono_l; lia). lia.
Qed.

(** ** Padding *)

(** The image X of H x W pixels with zeros around it, [top] rows above and [left] columns to the left. Other padding
    modes are other functions: the theorems hold for every image on the padded grid. *)
Definition zero_pad (H W top left : nat) (X : image) : image := fun k =>
  let p := sub k (Z.of_nat top, Z.of_nat left) in
  if in_dec pixel_eq_dec p (grid H W) then X p else fun _ => 0.

Example zero_pad_values :
  let X := zero_pad 2 2 1 1 (fun p _ => IZR (2 * fst p + snd p + 1)) in
  map (fun k => X k 0%nat) [(0, 0); (1, 1); (1, 2); (2, 1); (2, 2); (2, 3)]%Z = [0; 1; 2; 3; 4; 0].
Proof. reflexivity. Qed.
