(** * The checker as a program in OCaml

    What is extracted is [check] of Checker.v and [number_of_bits] of StoredNumbers.v. Integers become Zarith's, by the
    mapping of Coq's standard library and the three below; natural numbers and lists stay what Coq defines. Trusted
    are extraction, this mapping, Zarith and GMP, OCaml's compiler, and main.ml, which reads bytes. *)

From Coq Require Import ZArith Extraction ExtrOcamlBasic ExtrOcamlZBigInt.
From Conv2Attn Require Import Checker StoredNumbers.

Extract Constant Z.pow =>
 "Big_int_Z.(fun x y -> if sign_big_int y < 0 then zero_big_int else power_big_int_positive_int x (int_of_big_int y))".
Extract Constant Z.leb => "Big_int_Z.le_big_int".
Extract Constant Z.ltb => "Big_int_Z.lt_big_int".

Extraction "checker.ml" check number_of_bits.
