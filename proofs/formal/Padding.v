(** * Padding: what PyTorch puts around an image, as a map from positions to positions

    Beside convert/spec.py and proofs/claims/theorem/assembly.py (claim head-assembly). A padded image has, at every position, the value at some position of the image, or zero. *)

From Coq Require Import ZArith Lia Lra.
From Conv2Attn Require Import Sums Encoding Grid Box.

Inductive padding_mode := Zeros | Reflect | Replicate | Circular.

(** What position z of the padded axis holds, with n pixels of the image and [low] pixels before them: a pixel of the
    image, or nothing, which is zero. *)
Definition source (mode : padding_mode) (n low : nat) (z : Z) : option Z :=
  let p := (z - Z.of_nat low)%Z in
  let last := (Z.of_nat n - 1)%Z in
  match mode with
  | Zeros => if ((0 <=? p)%Z && (p <=? last)%Z)%bool then Some p else None
  | Reflect => Some (if (p <? 0)%Z then (- p)%Z else if (last <? p)%Z then (last + last - p)%Z else p)
  | Replicate => Some (Z.max 0 (Z.min p last))
  | Circular => Some (p mod Z.of_nat n)%Z
  end.

(** Four pixels, two more before them and three, or one, behind: an uneven "same" is [low] and [high] that differ. *)
Example sources_of_four :
  map (source Zeros 4 2) (range 7) = [None; None; Some 0; Some 1; Some 2; Some 3; None]%Z /\
  map (source Reflect 4 2) (range 9) = map Some [2; 1; 0; 1; 2; 3; 2; 1; 0]%Z /\
  map (source Replicate 4 2) (range 9) = map Some [0; 0; 0; 1; 2; 3; 3; 3; 3]%Z /\
  map (source Circular 4 2) (range 9) = map Some [2; 3; 0; 1; 2; 3; 0; 1; 2]%Z.
Proof. repeat split. Qed.

(** What PyTorch asks of reflection: less than the image on either side. *)
Definition allowed (mode : padding_mode) (n low high : nat) : Prop :=
  (0 < n)%nat /\ match mode with Reflect => (low < n /\ high < n)%nat | _ => True end.

Lemma source_in_image mode n low high z p :
  allowed mode n low high -> (0 <= z < Z.of_nat (n + low + high))%Z -> source mode n low z = Some p ->
  (0 <= p < Z.of_nat n)%Z.
Proof.
  unfold allowed, source. cbv zeta. intros [Hn Hmode] Hz. destruct mode.
  - destruct (Z.leb_spec 0 (z - Z.of_nat low)), (Z.leb_spec (z - Z.of_nat low) (Z.of_nat n - 1));
      simpl; intros E; inversion E; lia.
  - destruct Hmode. intros E. injection E as <-. destruct (Z.ltb_spec (z - Z.of_nat low) 0);
      [|destruct (Z.ltb_spec (Z.of_nat n - 1) (z - Z.of_nat low))]; lia.
  - intros E. injection E as <-. lia.
  - intros E. injection E as <-. apply Z.mod_pos_bound. lia.
Qed.

(** One axis of an image: how many pixels it has, and how many are put before and behind them. *)
Record padded_axis := Padded { pixels_of : nat; low : nat; high : nat }.

Definition padded_size (a : padded_axis) : nat := pixels_of a + low a + high a.

Fixpoint sources (mode : padding_mode) (l : list padded_axis) (k : position) : option position :=
  match l, k with
  | [], [] => Some []
  | a :: l', z :: k' =>
      match source mode (pixels_of a) (low a) z, sources mode l' k' with
      | Some p, Some p' => Some (p :: p')
      | _, _ => None
      end
  | _, _ => None
  end.

(** An image padded as a map says, and as a mode of PyTorch says. *)
Definition padded (where_from : position -> option position) (X : position -> vector) : position -> vector :=
  fun k => match where_from k with Some p => X p | None => fun _ => 0 end.
Definition pad (mode : padding_mode) (l : list padded_axis) := padded (sources mode l).

Example padded_values :
  let X := fun p _ => match p with [x; y] => IZR (2 * x + y + 1) | _ => 0 end in
  let l := [Padded 2 1 0; Padded 2 0 1] in
  map (fun k => pad Circular l X k 0%nat) (box [3; 3]%nat) = [3; 4; 3; 1; 2; 1; 3; 4; 3] /\
  map (fun k => pad Zeros l X k 0%nat) (box [3; 3]%nat) = [0; 0; 0; 1; 2; 0; 3; 4; 0].
Proof. split; reflexivity. Qed.

Definition allowed_all (mode : padding_mode) (l : list padded_axis) : Prop :=
  Forall (fun a => allowed mode (pixels_of a) (low a) (high a)) l.

Lemma sources_in_image mode l k p :
  allowed_all mode l -> In k (box (map padded_size l)) -> sources mode l k = Some p ->
  In p (box (map pixels_of l)).
Proof.
  intros Hl Hk. apply in_box in Hk. rewrite in_box. revert k p Hk.
  induction l as [|a l IH]; intros k p Hk; inversion Hk as [|? z ? k' Hz Hk']; subst; simpl.
  - intros E. injection E as <-. constructor.
  - inversion_clear Hl as [|? ? Ha Hl']. destruct source as [x|] eqn:E; [|discriminate].
    destruct (sources mode l k') as [p'|] eqn:E'; [|discriminate]. intros E''. injection E'' as <-.
    constructor; [|now apply (IH Hl' k')]. now apply (source_in_image mode _ (low a) (high a) z).
Qed.

(** Padding makes no value larger. *)
Theorem padded_within_bounds where_from X B keys pixels_in_image :
  0 <= B -> (forall k p, In k keys -> where_from k = Some p -> In p pixels_in_image) ->
  (forall p c, In p pixels_in_image -> Rabs (X p c) <= B) ->
  forall k c, In k keys -> Rabs (padded where_from X k c) <= B.
Proof.
  intros HB Hsource HX k c Hk. unfold padded. destruct (where_from k) as [p|] eqn:E; [eauto|].
  now rewrite Rabs_R0.
Qed.
