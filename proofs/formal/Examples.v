(** * A 3 x 3 convolution of a 4 x 4 image, evaluated both ways

    With alpha = ln 2 the softmax weights are powers of 1/2, so that soft attention has rational values, too. *)

From Coq Require Import ZArith Arith Lia Lra.
From Conv2Attn Require Import Sums Encoding Softmax Theta Grid.
From Conv2Attn Require Import Convolution Attention Construction Theorem1 Factorisation.

(** One channel, 4 x 4 pixels. *)
Definition entry (rows : list (list R)) (i j : nat) : R := nth j (nth i rows []) 0.

Definition picture : image := fun p _ => entry
  [[3; 1; 4; 1];
   [5; 9; 2; 6];
   [5; 3; 5; 8];
   [9; 7; 9; 3]] (Z.to_nat (fst p)) (Z.to_nat (snd p)).

Definition weights : kernel := fun _ _ => entry
  [[1;  2;  0];
   [0; -1;  3];
   [2;  0; -2]].

Definition bias : vector := fun _ => 7.

Definition plain : geometry :=
  {| K1 := 3; K2 := 3; s1 := 1; s2 := 1; d1 := 1; d2 := 1; groups := 1; C_in_g := 1; C_out_g := 1 |}.

Lemma outputs_of_plain i j : is_output plain 4 4 i j <-> (i < 2)%nat /\ (j < 2)%nat.
Proof. unfold is_output, output_size. simpl. lia. Qed.

(** By hand: 3 + 2 * 1 - 9 + 3 * 2 + 2 * 5 - 2 * 5 + 7 = 9 at (0, 0). *)
Example convolution_values :
  conv plain weights bias picture 0 0 0 = 9 /\ conv plain weights bias picture 0 1 0 = 22 /\
  conv plain weights bias picture 1 0 0 = 42 /\ conv plain weights bias picture 1 1 0 = 47.
Proof. unfold conv, weights, picture, bias, channel, entry; simpl. lra. Qed.

(** Attention with alpha = ln 2 is far from one-hot: q = 1/2, and a neighbour weighs half as much as the target. *)
Lemma decay_ln_2 : decay (ln 2) = 1 / 2.
Proof. unfold decay. rewrite exp_Ropp, exp_ln by lra. lra. Qed.

Lemma smoothing_ln_2 n t k :
  smoothing n (ln 2) t k
  = (1 / 2) ^ (Z.abs_nat (k - t) * Z.abs_nat (k - t))
    / Sum l in range n, (1 / 2) ^ (Z.abs_nat (l - t) * Z.abs_nat (l - t)).
Proof.
  unfold smoothing, softmax. rewrite exp_square, decay_ln_2. f_equal.
  apply sum_ext; intros l _. now rewrite exp_square, decay_ln_2.
Qed.

Definition soft_layer : layer pixel := attention_of_conv plain weights bias (fun _ => ln 2).

(** The smoothing matrix of an axis of four pixels: row t, column k. *)
Lemma smoothing_of_four :
  map (fun t => map (smoothing 4 (ln 2) t) (range 4)) (range 4) =
  [[512 / 801; 256 / 801; 32 / 801; 1 / 801];
   [8 / 33; 16 / 33; 8 / 33; 1 / 33];
   [1 / 33; 8 / 33; 16 / 33; 8 / 33];
   [1 / 801; 32 / 801; 256 / 801; 512 / 801]].
Proof.
  cbn [range map seq Z.of_nat Pos.of_succ_nat Pos.succ]. rewrite !smoothing_ln_2. simpl.
  repeat match goal with |- _ :: _ = _ :: _ => f_equal end; lra.
Qed.

Example attention_values :
  mhsa soft_layer (grid 4 4) picture (query plain 0 0) 0%nat = 2073268156 / 77633721 /\
  mhsa soft_layer (grid 4 4) picture (query plain 0 1) 0%nat = 845726 / 32307 /\
  mhsa soft_layer (grid 4 4) picture (query plain 1 0) 0%nat = 2612363596 / 77633721 /\
  mhsa soft_layer (grid 4 4) picture (query plain 1 1) 0%nat = 2668343638 / 77633721.
Proof.
  pose proof smoothing_of_four as E. cbn [range map seq Z.of_nat Pos.of_succ_nat Pos.succ] in E. injection E.
  intros; unfold soft_layer; rewrite !smoothing_factorisation by (unfold C_out; simpl; lia).
  unfold conv, smooth, weights, picture, bias, channel, entry. simpl.
  repeat match goal with H : smoothing _ _ _ _ = _ |- _ => rewrite H; clear H end.
  repeat split; field.
Qed.

(** The certificate of this layer: osc = 9 - 1 and the taps add up to 11, so that the error is at most 88 tau ... *)
Ltac in_list := simpl; repeat first [left; lra | right].
Ltac below := simpl; intros ? H; repeat (destruct H as [<-|H]; [lra|]); contradiction.

Example range_of_picture : weighted_range plain weights (grid 4 4) picture 0%nat = 88.
Proof.
  unfold weighted_range, osc, minimum, picture, weights, entry, channel. cbn [plain C_in_g K1 K2 seq sum_over].
  rewrite (maximum_unique _ 9), (maximum_unique _ (- (1))) by (below || in_list). simpl.
  repeat ((rewrite Rabs_pos_eq by lra) || (rewrite Rabs_left by lra)). lra.
Qed.

(** ... and below 1/1000 from alpha = 19 on. *)
Example attention_near_convolution alpha i j :
  19 <= alpha -> (i < 2)%nat -> (j < 2)%nat ->
  Rabs (mhsa (attention_of_conv plain weights bias (fun _ => alpha)) (grid 4 4) picture (query plain i j) 0%nat
        - conv plain weights bias picture i j 0) < 1 / 1000.
Proof.
  intros Ha Hi Hj. apply theorem_1_limit.
  - split; simpl; lia.
  - lra.
  - unfold alpha_0, largest_range. cbn [C_out plain groups C_out_g Nat.mul Nat.add seq map maximum].
    rewrite range_of_picture. apply Rle_trans with 19; [|assumption].
    rewrite <- (ln_exp 19). apply Rlt_le, ln_increasing; [lra|].
    replace 19 with (INR 19 * 1) by (simpl; lra). rewrite exp_multiple.
    apply Rlt_le_trans with (2 ^ 19); [lra|]. apply pow_incr. pose proof (exp_ineq1 1). lra.
  - now apply outputs_of_plain.
  - unfold C_out; simpl; lia.
Qed.

(** ** Stride 2 x 1, dilation 1 x 2, two groups: output channel 1 reads input channel 1 only *)

Definition strided : geometry :=
  {| K1 := 2; K2 := 2; s1 := 2; s2 := 1; d1 := 1; d2 := 2; groups := 2; C_in_g := 1; C_out_g := 1 |}.

(** The picture and its transpose. *)
Definition two_channels : image := fun p c => match c with O => picture p 0%nat | _ => picture (snd p, fst p) 0%nat end.

Definition two_kernels : kernel := fun o _ =>
  match o with O => entry [[1; 2]; [3; -1]] | _ => entry [[2; 0]; [1; -3]] end.

Example strided_values :
  map (fun o => conv strided two_kernels bias two_channels 1 1 o) [0; 1]%nat = [44; 8].
Proof. unfold conv, two_kernels, two_channels, picture, bias, entry; simpl. f_equal; [lra|f_equal; lra]. Qed.

(** The value projection of tap (0, 1) is block diagonal: rows are input channels, columns output channels. *)
Example block_diagonal :
  map (fun c => map (value_projection strided two_kernels 0 1 c) [0; 1]%nat) [0; 1]%nat = [[2; 0]; [0; 0]] /\
  map (fun c => map (value_projection strided two_kernels 1 0 c) [0; 1]%nat) [0; 1]%nat = [[3; 0]; [0; 1]].
Proof. split; reflexivity. Qed.
