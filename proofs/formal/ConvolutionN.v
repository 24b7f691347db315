(** * Convolution with any number of axes: Conv1d, Conv2d, Conv3d, ...

    Beside proofs/claims/theorem/assembly.py (claim dimension-assembly). With two axes this is
    Convolution.v, which PyTorch's numbers are compared with in Examples.v. *)

From Coq Require Import ZArith Arith Lia Lra.
From Conv2Attn Require Import Sums Encoding Grid Convolution Attention Box.

(** What a convolution says of one axis: taps, stride and dilation. *)
Record axis := Axis { K : nat; stride : nat; dilation : nat }.

Record geometry_n := Geometry_n {
  axes : list axis;
  groups_n : nat;
  inputs : nat;     (** input channels of a group *)
  outputs : nat     (** output channels of a group *)
}.

(** The taps of a kernel, each with its index on every axis. *)
Definition taps (g : geometry_n) : list position := box (map K (axes g)).

(** A kernel: output channel, input channel within its group, tap. *)
Definition kernel_n : Type := nat -> nat -> position -> R.

(** What tap m of output i reads: s i + d m on every axis of the padded input. *)
Fixpoint reads (l : list axis) (i m : position) : position :=
  match l, i, m with
  | a :: l', x :: i', y :: m' => (Z.of_nat (stride a) * x + Z.of_nat (dilation a) * y)%Z :: reads l' i' m'
  | _, _, _ => []
  end.

(** b_o + sum over c and m of W[o, c, m] x[channel, s i + d m], with X the padded input. *)
Definition conv_n (g : geometry_n) (W : kernel_n) (b : vector) (X : position -> vector) (i : position) (o : nat) : R :=
  b o + Sum c in seq 0 (inputs g), Sum m in taps g,
    W o c m * X (reads (axes g) i m) (o / outputs g * inputs g + c)%nat.

(** The outputs on a padded grid of these sizes, and what the theorems need: positive strides. *)
Fixpoint is_output_n (l : list axis) (sizes : list nat) (i : position) : Prop :=
  match l, sizes, i with
  | a :: l', P :: sizes', x :: i' =>
      (0 <= x < Z.of_nat (output_size P (K a) (stride a) (dilation a)))%Z /\ is_output_n l' sizes' i'
  | [], [], [] => True
  | _, _, _ => False
  end.

Definition valid_n (g : geometry_n) : Prop := Forall (fun a => (0 < stride a)%nat) (axes g).

(** A kernel (1, 2, -1) with stride 2 and dilation 1, and one with two axes, 1 x 2. *)
Example conv_1d_values :
  let g := {| axes := [{| K := 3; stride := 2; dilation := 1 |}]; groups_n := 1; inputs := 1; outputs := 1 |} in
  let W := fun _ _ m => nth (Z.to_nat (hd 0%Z m)) [1; 2; -1] 0 in
  let X := fun p _ => nth (Z.to_nat (hd 0%Z p)) [3; 1; 4; 1; 5] 0 in
  conv_n g W (fun _ => 10) X [0]%Z 0 = 11 /\ conv_n g W (fun _ => 10) X [1]%Z 0 = 11.
Proof. unfold conv_n, taps; simpl. lra. Qed.

(** Every pixel that a convolution reads is one of the padded input. *)
Lemma reads_in_box l sizes i m :
  Forall (fun a => (0 < stride a)%nat) l -> is_output_n l sizes i -> In m (box (map K l)) ->
  In (reads l i m) (box sizes).
Proof.
  intros Hs Hi Hm. apply in_box in Hm. apply in_box. revert sizes i m Hs Hi Hm.
  induction l as [|a l IH]; intros [|P sizes] [|x i] m Hs Hi Hm; simpl in Hi; try contradiction;
    inversion Hm as [|? y ? m' Hy Hm']; subst; simpl; constructor.
  - inversion_clear Hs. destruct Hi as [Hx _].
    destruct (Z.to_nat x <? output_size P (K a) (stride a) (dilation a))%nat eqn:E.
    + apply Nat.ltb_lt in E. apply output_size_spec in E; [|assumption|lia]. nia.
    + apply Nat.ltb_ge in E. lia.
  - inversion_clear Hs. destruct Hi as [_ Hi]. now apply IH.
Qed.

Lemma length_reads l i m : length i = length l -> length m = length l -> length (reads l i m) = length l.
Proof.
  revert i m. induction l as [|a l IH]; intros [|x i] [|y m] H1 H2; try discriminate; simpl; auto.
Qed.

Lemma length_output l sizes i : is_output_n l sizes i -> length i = length l /\ length sizes = length l.
Proof.
  revert sizes i. induction l as [|a l IH]; intros [|P sizes] [|x i] H; simpl in H; try contradiction; auto.
  destruct H as [_ H]. destruct (IH _ _ H). simpl. auto.
Qed.

(** ** Where queries and heads sit *)

(** The kernel's middle tap, floor((K - 1) / 2) on every axis; the query of output i sits under it. *)
Definition middle_n (l : list axis) : position := map (fun a => Z.of_nat ((K a - 1) / 2)) l.
Definition query_n (l : list axis) (i : position) : position := reads l i (middle_n l).

(** The centre of tap m is counted from there: d (m - m_0) on every axis. *)
Fixpoint center_n (l : list axis) (m : position) : position :=
  match l, m with
  | a :: l', y :: m' => (Z.of_nat (dilation a) * (y - Z.of_nat ((K a - 1) / 2)))%Z :: center_n l' m'
  | _, _ => []
  end.

(** So a head looks where its tap reads. *)
Lemma query_center_n l i m :
  length i = length l -> length m = length l -> moved (query_n l i) (center_n l m) = reads l i m.
Proof.
  unfold query_n. revert i m. induction l as [|a l IH]; intros [|x i] [|y m] H1 H2; try discriminate; [reflexivity|].
  simpl. f_equal; [lia|]. apply IH; [now injection H1|now injection H2].
Qed.

Lemma length_middle_n l : length (middle_n l) = length l.
Proof. apply map_length. Qed.

Lemma length_center_n l m : length m = length l -> length (center_n l m) = length l.
Proof. revert m. induction l as [|a l IH]; intros [|y m] H; try discriminate; simpl; auto. Qed.
