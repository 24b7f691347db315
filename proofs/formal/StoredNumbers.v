(** * From the bits of a stored number to the number m 2^e that the checker computes with

    float16, bfloat16, float32 and float64 as IEEE 754 lays them out in bits; Flocq says what the bits mean. Beside
    proofs/claims/certificate/rounding.py (claim rounded-sum). *)

From Coq Require Import ZArith Reals.
From Flocq Require Import Core IEEE754.Binary IEEE754.Bits.
From Conv2Attn Require Import Checker.
Open Scope Z_scope.

(** The number with these bits, of a format with a fraction of [mw] bits and an exponent of [ew]; none if infinite or NaN. *)
Definition decoded (mw ew bits : Z) : option dyadic :=
  match binary_float_of_bits_aux mw ew bits with
  | F754_zero _ => Some (0, 0)
  | F754_finite negative m e => Some (if negative then Zneg m else Zpos m, e)
  | _ => None
  end.

(** Widths of fraction and exponent, by the checker's number of a dtype. *)
Definition widths (dtype : Z) : Z * Z :=
  match dtype with 0 => (10, 5) | 1 => (7, 8) | 2 => (23, 8) | _ => (52, 11) end.

Definition number_of_bits (dtype bits : Z) : option dyadic :=
  decoded (fst (widths dtype)) (snd (widths dtype)) bits.

Example one_and_the_smallest_numbers :
  number_of_bits 2 1065353216 = Some (8388608, -23) /\ number_of_bits 2 2147483649 = Some (-1, -149)
  /\ number_of_bits 0 1 = Some (1, -24) /\ number_of_bits 1 1 = Some (1, -133) /\ number_of_bits 3 1 = Some (1, -1074)
  /\ number_of_bits 2 2139095040 = None.
Proof. vm_compute. repeat split. Qed.

(** What is decoded is the real number that these bits are in IEEE 754, and finite. *)
Theorem decoded_is_the_number mw ew (Hmw : 0 < mw) (Hew : 0 < ew) (Hmax : mw + 1 < 2 ^ (ew - 1)) bits x :
  decoded mw ew bits = Some x ->
  is_finite _ _ (binary_float_of_bits mw ew Hmw Hew Hmax bits) = true
  /\ B2R _ _ (binary_float_of_bits mw ew Hmw Hew Hmax bits) = number x.
Proof.
  intros H. unfold binary_float_of_bits. cbv zeta. rewrite B2R_FF2B, is_finite_FF2B. unfold decoded in H.
  destruct (binary_float_of_bits_aux mw ew bits) as [s|s|s pl|s m e]; try discriminate; injection H as <-;
    (split; [reflexivity|]); unfold number; simpl FF2R; [now rewrite Rmult_0_l|].
  unfold F2R. now destruct s.
Qed.
