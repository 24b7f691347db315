(** * A program that checks certificates, and the proof that it is right

    [check] takes what a report claims of a layer and what is stored of it, all in integers, and says [Accepted] only if
    [certificate_of_one_hot_attention] gives the claimed bound. Beside proofs/claims/certificate/rounding.py (claim
    rounded-sum) and proofs/claims/computing/exact_scores.py (claim exact-scores); it is extracted to OCaml by
    checker/Extraction.v, with what StoredNumbers.v makes of bits. *)

From Coq Require Import ZArith Reals List Bool Lia Lra Psatz.
From Flocq Require Import Core IEEE754.BinarySingleNaN.
From Conv2Attn Require Import Sums Encoding Attention Box ConvolutionN Summation Rounding Binary OneHot Certificate ExactRegime.
From Conv2Attn Require Import TheoremN Overflow FloatSoftmax Literal.
Import ListNotations.
Open Scope Z_scope.

(** ** Binary numbers m 2^e, as pairs of integers *)

Definition dyadic : Type := Z * Z.

(** x at an exponent that is not larger than its own. *)
Definition at_exponent (e : Z) (x : dyadic) : Z := Z.shiftl (fst x) (snd x - e).
Definition add (x y : dyadic) : dyadic :=
  let e := Z.min (snd x) (snd y) in (at_exponent e x + at_exponent e y, e).
Definition mul (x y : dyadic) : dyadic := (fst x * fst y, snd x + snd y).
Definition opposite (x : dyadic) : dyadic := (- fst x, snd x).
Definition size (x : dyadic) : dyadic := (Z.abs (fst x), snd x).
Definition at_most (x y : dyadic) : bool := fst (add x (opposite y)) <=? 0.
Definition same (x y : dyadic) : bool := at_most x y && at_most y x.
Definition larger (x y : dyadic) : dyadic := if at_most x y then y else x.

(** ** What is claimed, and what is stored *)

(** Where a convolution's taps fall. What does not enter the bound, padding and its mode, is compared all the same. *)
Record shape := Shape {
  kernel_size : list Z; strides : list Z; dilations : list Z; padding : list Z;
  group_count : Z; inputs_of_group : Z; outputs_of_group : Z
}.

(** A report's certificate: the layer's geometry, alpha, dtype, the range of its input, and the bound. *)
Record claim := Claim {
  claimed_shape : shape; claimed_alpha : dyadic; claimed_dtype : Z; low : dyadic; high : dyadic;
  claimed_bound : dyadic
}.

(** An output channel: its weights, input channel by input channel and tap by tap, and its bias. *)
Record channel := Channel { weights : list dyadic; bias : dyadic }.

(** The layer as it is stored. No number has an exponent below [exponent]. *)
Record stored := Stored {
  stored_shape : shape; stored_dtype : Z; alphas : list dyadic; centers : list (list dyadic);
  exponent : Z; channels : list channel
}.

Inductive verdict := Accepted | Other_shape | Other_dtype | Other_alpha | Not_one_hot | Other_centers | Malformed
  | May_overflow | Too_small | Too_large.

(** ** The formats: of weights and outputs, and of the sums; the alpha from which attention is one-hot *)

Definition output_format (dtype : Z) : option format :=
  match dtype with 0 => Some binary16 | 1 => Some bfloat16 | 2 => Some binary32 | 3 => Some binary64 | _ => None end.
Definition sum_format (dtype : Z) : format := if dtype =? 3 then binary64 else binary32.
Definition is_shorter (dtype : Z) : bool := dtype <? 2.
Definition threshold (dtype : Z) : dyadic := if dtype =? 3 then (746, 0) else (104, 0).
(** Below 2 to this every number is finite; and up to this alpha every score, on a grid where scores are exact. *)
Definition largest_exponent (dtype : Z) : Z := match dtype with 0 => 15 | 3 => 1023 | _ => 127 end.
Definition largest_alpha (dtype : Z) : dyadic := (1, emax (sum_format dtype) - 2 - precision (sum_format dtype)).

(** ** The check *)

Definition list_equal (a b : list Z) : bool := if list_eq_dec Z.eq_dec a b then true else false.
Definition same_shape (a b : shape) : bool :=
  list_equal (kernel_size a) (kernel_size b) && list_equal (strides a) (strides b)
  && list_equal (dilations a) (dilations b) && list_equal (padding a) (padding b)
  && (group_count a =? group_count b) && (inputs_of_group a =? inputs_of_group b)
  && (outputs_of_group a =? outputs_of_group b).

Fixpoint axes_of (k s d : list Z) : option (list axis) :=
  match k, s, d with
  | [], [], [] => Some []
  | x :: k', y :: s', z :: d' =>
      if (0 <? x) && (0 <? y) && (0 <? z)
      then option_map (cons (Axis (Z.to_nat x) (Z.to_nat y) (Z.to_nat z))) (axes_of k' s' d') else None
  | _, _, _ => None
  end.

(** The geometry of the theorems. *)
Definition geometry_of (s : shape) : option geometry_n :=
  if (0 <? group_count s) && (0 <? inputs_of_group s) && (0 <? outputs_of_group s) then
    option_map (fun l => Geometry_n l (Z.to_nat (group_count s)) (Z.to_nat (inputs_of_group s))
      (Z.to_nat (outputs_of_group s))) (axes_of (kernel_size s) (strides s) (dilations s))
  else None.

Definition sits_at (center : list dyadic) (m : list Z) : bool :=
  (length center =? length m)%nat && forallb (fun p => same (fst p) (snd p, 0)) (combine center m).

Definition at_taps (g : geometry_n) (centers : list (list dyadic)) : bool :=
  (length centers =? length (taps g))%nat
  && forallb (fun p => sits_at (fst p) (center_n (axes g) (snd p))) (combine centers (taps g)).

(** The sum of absolute values, how many are below 2^small but not 0, and whether all exponents are at least [e]. *)
Definition totals (e small : Z) (l : list dyadic) : Z * Z * bool :=
  fold_left (fun acc x =>
    let '(total, count, fits) := acc in
    let n := Z.abs (at_exponent e x) in
    (total + n, if (0 <? n) && (n <? small) then count + 1 else count, fits && (e <=? snd x))) l (0, 0, true).

(** 2 A (m + shorter 2^(p - p_out)) + ..., which is the bound times 2^p - m: no fraction is left. *)
Definition bound_times (dtype m : Z) (r total : dyadic) (small_count : Z) (b : dyadic) : dyadic :=
  let f := sum_format dtype in
  let fo := match output_format dtype with Some fo => fo | None => f end in
  let q := 2 ^ precision f - m in
  let a := add (mul r total) (size b) in
  let relative := m + (if is_shorter dtype then 2 ^ (precision f - precision fo) else 0) in
  let flushed := mul r (small_count * 2 ^ precision f, lowest f + precision f - 1) in
  let under := mul (add (1, 0) total) (q, lowest f + 2 * precision f + 7) in
  let shorter := if is_shorter dtype then mul (add (2, 0) total) (q, lowest fo) else (0, 0) in
  mul (2, 0) (add (mul a (relative, 0)) (add flushed (add under shorter))).

(** A channel is right, and the bound times 2^p - m. *)
Definition check_channel (c : claim) (s : stored) (m : Z) (r : dyadic) (ch : channel) : verdict * dyadic :=
  let dtype := stored_dtype s in
  let f := sum_format dtype in
  let e := exponent s in
  let '(n, count, fits) := totals e (Z.shiftl 1 (lowest f + precision f - 1 - e)) (weights ch) in
  let total := (n, e) in
  let needed := bound_times dtype m r total count (bias ch) in
  let q := 2 ^ precision f - m in
  let verdict :=
    if negb fits || negb (e <=? snd (bias ch)) || negb (Z.of_nat (length (weights ch)) =? m - 1) then Malformed
    else if negb (at_most (mul (4, 0) (add (mul r total) (size (bias ch)))) (1, largest_exponent dtype)) then May_overflow
    else if at_most needed (mul (claimed_bound c) (q, 0)) then Accepted else Too_small in
  (verdict, needed).

(** The first verdict that is not [Accepted], and the largest bound. *)
Definition check_channels (c : claim) (s : stored) (m : Z) (r : dyadic) : verdict * dyadic :=
  fold_left (fun acc ch =>
    match fst acc with
    | Accepted => let '(v, needed) := check_channel c s m r ch in (v, larger (snd acc) needed)
    | _ => acc
    end) (channels s) (Accepted, (0, 0)).

(** A bound that is more than 2^-20 larger than the theorem's is not the theorem's: it is another layer's or range's.
    Added is what underflow may come to where every weight is about 0. *)
Definition not_loose (f : format) (c : claim) (q : Z) (needed : dyadic) : bool :=
  at_most (mul (claimed_bound c) (q, 0)) (add (mul needed (2 ^ 20 + 1, -20)) (1, lowest f + 3 * precision f + 10)).

Definition input_size (c : claim) : dyadic := larger (size (low c)) (size (high c)).

Definition check (c : claim) (s : stored) : verdict :=
  if negb (same_shape (claimed_shape c) (stored_shape s)) then Other_shape
  else if negb (claimed_dtype c =? stored_dtype s) then Other_dtype
  else match output_format (stored_dtype s), geometry_of (stored_shape s) with
  | Some _, Some g =>
    if negb (forallb (at_most (threshold (stored_dtype s))) (alphas s)) then Not_one_hot
    else if negb (match alphas s with a :: _ => same a (claimed_alpha c) | [] => false end) then Other_alpha
    else if negb (forallb (fun a => at_most a (largest_alpha (stored_dtype s))) (alphas s)) then May_overflow
    else if negb (at_taps g (centers s)) then Other_centers
    else
    let m := Z.of_nat (length (taps g)) * inputs_of_group (stored_shape s) + 1 in
    let q := 2 ^ precision (sum_format (stored_dtype s)) - m in
    let e := exponent s in
    if negb ((0 <? q - m) && (Z.of_nat (length (channels s)) =? group_count (stored_shape s) * outputs_of_group (stored_shape s))
      && forallb (fun x => e <=? snd x) (low c :: high c :: claimed_alpha c :: alphas s)
      && (e <=? lowest (sum_format (stored_dtype s)) + precision (sum_format (stored_dtype s)) - 1)) then Malformed
    else match check_channels c s m (input_size c) with
    | (Accepted, needed) => if not_loose (sum_format (stored_dtype s)) c q needed then Accepted else Too_large
    | (other, _) => other
    end
  | _, _ => Malformed
  end.

(** ** It is right *)

Open Scope R_scope.

Definition number (x : dyadic) : R := IZR (fst x) * bpow radix2 (snd x).

Lemma number_at_exponent e x : (e <= snd x)%Z -> IZR (at_exponent e x) * bpow radix2 e = number x.
Proof.
  intros He. unfold at_exponent, number. rewrite Z.shiftl_mul_pow2 by lia. rewrite mult_IZR.
  change (2 ^ (snd x - e))%Z with (Zpower radix2 (snd x - e)). rewrite IZR_Zpower by lia.
  rewrite Rmult_assoc, <- bpow_plus. do 2 f_equal. lia.
Qed.

Lemma number_add x y : number (add x y) = number x + number y.
Proof.
  unfold add. set (e := Z.min (snd x) (snd y)). unfold number at 1. simpl. rewrite plus_IZR, Rmult_plus_distr_r.
  rewrite !number_at_exponent by (unfold e; lia). reflexivity.
Qed.

Lemma number_mul x y : number (mul x y) = number x * number y.
Proof. unfold mul, number. simpl. rewrite mult_IZR, bpow_plus. ring. Qed.

Lemma number_opposite x : number (opposite x) = - number x.
Proof. unfold opposite, number. simpl. rewrite opp_IZR. ring. Qed.

Lemma number_size x : number (size x) = Rabs (number x).
Proof. unfold size, number. simpl. rewrite abs_IZR, Rabs_mult, (Rabs_pos_eq (bpow _ _)) by apply bpow_ge_0. reflexivity. Qed.

Lemma number_integer n : number (n, 0%Z) = IZR n.
Proof. unfold number. simpl. ring. Qed.

Lemma at_most_spec x y : at_most x y = true -> number x <= number y.
Proof.
  unfold at_most. intros H. apply Z.leb_le in H. apply IZR_le in H.
  assert (Hle : number (add x (opposite y)) <= 0).
  { unfold number. pose proof (bpow_gt_0 radix2 (snd (add x (opposite y)))). nra. }
  rewrite number_add, number_opposite in Hle. lra.
Qed.

Lemma at_most_false x y : at_most x y = false -> number y <= number x.
Proof.
  unfold at_most. intros H. apply Z.leb_gt in H. apply IZR_lt in H.
  assert (Hle : 0 <= number (add x (opposite y))).
  { unfold number. pose proof (bpow_gt_0 radix2 (snd (add x (opposite y)))). nra. }
  rewrite number_add, number_opposite in Hle. lra.
Qed.

Lemma same_spec x y : same x y = true -> number x = number y.
Proof.
  unfold same. intros H. apply andb_true_iff in H. destruct H as [H1 H2].
  apply at_most_spec in H1. apply at_most_spec in H2. lra.
Qed.

Lemma larger_spec x y : number x <= number (larger x y) /\ number y <= number (larger x y).
Proof.
  unfold larger. destruct (at_most x y) eqn:E; [apply at_most_spec in E|apply at_most_false in E]; lra.
Qed.

Lemma totals_spec e small l n count :
  totals e small l = (n, count, true) ->
  IZR n * bpow radix2 e = (Sum x in l, Rabs (number x)) /\ (0 <= count)%Z.
Proof.
  unfold totals. assert (H : forall acc n count,
    fold_left (fun acc x => let '(total, count, fits) := acc in let n := Z.abs (at_exponent e x) in
      ((total + n)%Z, (if (0 <? n)%Z && (n <? small)%Z then count + 1 else count)%Z, fits && (e <=? snd x)%Z)) l acc
    = (n, count, true) ->
    snd acc = true /\ IZR n * bpow radix2 e = IZR (fst (fst acc)) * bpow radix2 e + (Sum x in l, Rabs (number x))
    /\ (snd (fst acc) <= count)%Z).
  { induction l as [|x l IH]; intros [[t k] fits] n' count' E.
    - simpl in E. injection E as -> -> ->. simpl. repeat split; [ring|lia].
    - simpl in E. apply IH in E. destruct E as (Hfits & Hn & Hk). simpl in Hfits, Hn, Hk |- *.
      apply andb_true_iff in Hfits. destruct Hfits as [-> He]. apply Z.leb_le in He. split; [reflexivity|]. split.
      + rewrite Hn, plus_IZR, abs_IZR, <- number_at_exponent with (e := e) by assumption.
        rewrite Rabs_mult, (Rabs_pos_eq (bpow _ _)) by apply bpow_ge_0. ring.
      + destruct (_ && _)%bool in Hk; lia. }
  intros E. apply H in E. simpl in E. destruct E as (_ & Hn & Hk). split; [lra|assumption].
Qed.

(** What the stored numbers are as a kernel and a bias: W[o, c, m] in the order in which they are stored. *)
Definition holds (g : geometry_n) (W : kernel_n) (b : vector) (chs : list channel) : Prop :=
  forall o ch, nth_error chs o = Some ch ->
  map number (weights ch) = flat_map (fun c => map (W o c) (taps g)) (seq 0 (inputs g)) /\ b o = number (bias ch).

Lemma weight_sum_stored g W b chs o ch :
  holds g W b chs -> nth_error chs o = Some ch -> weight_sum g W o = Sum x in weights ch, Rabs (number x).
Proof.
  intros Hholds Ho. destruct (Hholds o ch Ho) as [Hw _]. unfold weight_sum.
  rewrite <- (sum_map number (weights ch) Rabs), Hw, sum_flat_map.
  apply sum_ext; intros c _. now rewrite sum_map.
Qed.

(** The bound times 2^p - m is the bound. *)
Lemma bound_times_spec dtype fo m r total count b :
  output_format dtype = Some fo -> (0 < 2 ^ precision (sum_format dtype) - m)%Z -> (0 <= m)%Z ->
  number (bound_times dtype m r total count b)
  = 2 * side (sum_format dtype) fo (is_shorter dtype) (Z.to_nat m) (number r * number total + Rabs (number b))
      (number total) (number r * (IZR count * bpow radix2 (lowest (sum_format dtype) + precision (sum_format dtype) - 1)))
    * IZR (2 ^ precision (sum_format dtype) - m).
Proof.
  intros Hfo Hq Hm. unfold bound_times. rewrite Hfo. set (f := sum_format dtype) in *.
  set (q := (2 ^ precision f - m)%Z) in *.
  assert (Hp : (0 < precision f)%Z) by (unfold f, sum_format; destruct (_ =? _)%Z; reflexivity).
  assert (Hpo : is_shorter dtype = true -> (0 <= precision f - precision fo)%Z).
  { unfold f, sum_format, is_shorter. intros Hs. apply Z.ltb_lt in Hs.
    assert (dtype < 0 \/ dtype = 0 \/ dtype = 1)%Z as [Hneg|[->| ->]] by lia.
    - destruct dtype; try lia. discriminate.
    - injection Hfo as <-. simpl. lia.
    - injection Hfo as <-. simpl. lia. }
  rewrite !number_mul, !number_add, !number_mul, !number_add, !number_size, !number_mul, !number_integer.
  assert (E1 : IZR (2 ^ precision f) = bpow radix2 (precision f)) by (rewrite <- IZR_Zpower by lia; reflexivity).
  assert (E2 : roundoff f * bpow radix2 (precision f) = 1).
  { unfold roundoff. rewrite <- bpow_plus. replace (- precision f + precision f)%Z with 0%Z by lia. reflexivity. }
  assert (Hq' : 0 < IZR q) by (apply IZR_lt in Hq; exact Hq).
  assert (E3 : IZR q = bpow radix2 (precision f) - IZR m) by (unfold q; rewrite minus_IZR, E1; reflexivity).
  assert (E4 : INR (Z.to_nat m) = IZR m) by (rewrite INR_IZR_INZ, Z2Nat.id by assumption; reflexivity).
  pose proof (bpow_gt_0 radix2 (precision f)) as Hpow.
  assert (Eg : gamma (Z.to_nat m) (roundoff f) * IZR q = IZR m).
  { unfold gamma. rewrite E4, E3. replace (roundoff f) with (/ bpow radix2 (precision f)).
    - field. rewrite E3 in Hq'. lra.
    - apply Rmult_eq_reg_r with (bpow radix2 (precision f)); [|lra]. rewrite E2. field. lra. }
  assert (Eg1 : (1 + gamma (Z.to_nat m) (roundoff f)) * IZR q = bpow radix2 (precision f)) by (rewrite Rmult_plus_distr_r, Eg, E3; ring).
  unfold side, underflow_part. destruct (is_shorter dtype) eqn:Es.
  - specialize (Hpo eq_refl).
    assert (E5 : IZR (2 ^ (precision f - precision fo)) = roundoff fo * bpow radix2 (precision f)).
    { change 2%Z with (radix_val radix2) at 1. rewrite IZR_Zpower by assumption. unfold roundoff.
      rewrite <- bpow_plus. f_equal. lia. }
    rewrite !number_mul, !number_add, !number_integer, plus_IZR, E5.
    unfold number. cbn [fst snd]. rewrite mult_IZR, E1, <- Eg1, <- Eg. ring.
  - rewrite Z.add_0_r, number_integer. unfold number. cbn [fst snd]. rewrite mult_IZR, E1, <- Eg1, <- Eg. ring.
Qed.

Lemma axes_of_length k s d l : axes_of k s d = Some l -> Forall (fun a => (0 < stride a)%nat) l.
Proof.
  revert s d l. induction k as [|x k IH]; intros [|y s] [|z d] l; simpl; try discriminate.
  - intros E. injection E as <-. constructor.
  - destruct (0 <? x)%Z, (0 <? y)%Z eqn:Ey, (0 <? z)%Z; simpl; try discriminate.
    destruct (axes_of k s d) as [l'|] eqn:E; simpl; try discriminate. intros E'. injection E' as <-.
    constructor; [|now apply (IH s d)]. simpl. apply Z.ltb_lt in Ey. lia.
Qed.

Lemma geometry_of_spec s g :
  geometry_of s = Some g ->
  valid_n g /\ Z.of_nat (inputs g) = inputs_of_group s
  /\ Z.of_nat (groups_n g * outputs g) = (group_count s * outputs_of_group s)%Z.
Proof.
  unfold geometry_of. destruct (0 <? group_count s)%Z eqn:E1, (0 <? inputs_of_group s)%Z eqn:E2,
    (0 <? outputs_of_group s)%Z eqn:E3; simpl; try discriminate.
  destruct axes_of as [l|] eqn:E; simpl; try discriminate. intros Eg. injection Eg as <-.
  apply Z.ltb_lt in E1, E2, E3. unfold valid_n. simpl. repeat split; [now apply axes_of_length in E|lia|lia].
Qed.

(** A channel that is accepted has a bound that is at most the claimed one, and does not overflow. *)
Lemma check_channel_spec c s m r ch needed fo :
  output_format (stored_dtype s) = Some fo ->
  (0 < 2 ^ precision (sum_format (stored_dtype s)) - m)%Z -> (0 <= m)%Z ->
  check_channel c s m r ch = (Accepted, needed) ->
  4 * (number r * (Sum x in weights ch, Rabs (number x)) + Rabs (number (bias ch)))
  <= bpow radix2 (largest_exponent (stored_dtype s)) /\
  exists flushed, (0 <= number r -> 0 <= flushed) /\
  2 * side (sum_format (stored_dtype s)) fo (is_shorter (stored_dtype s)) (Z.to_nat m)
    (number r * (Sum x in weights ch, Rabs (number x)) + Rabs (number (bias ch)))
    (Sum x in weights ch, Rabs (number x)) flushed <= number (claimed_bound c).
Proof.
  intros Hfo Hq Hm. unfold check_channel.
  destruct totals as [[n count] fits] eqn:Et.
  destruct (negb fits || _ || _) eqn:E1; [discriminate|].
  destruct (negb (at_most (mul _ _) _)) eqn:E3; [discriminate|].
  destruct (at_most (bound_times _ _ _ _ _ _) _) eqn:E2; [|discriminate]. intros _.
  apply orb_false_iff in E1. destruct E1 as [E1 _]. apply orb_false_iff in E1. destruct E1 as [E1 _].
  apply negb_false_iff in E1. subst fits. destruct (totals_spec _ _ _ _ _ Et) as [Hn Hcount].
  apply at_most_spec in E2. rewrite (bound_times_spec _ fo) in E2 by assumption.
  assert (Et' : number (n, exponent s) = Sum x in weights ch, Rabs (number x)) by exact Hn.
  rewrite Et', number_mul, number_integer in E2.
  split.
  { apply negb_false_iff, at_most_spec in E3.
    rewrite number_mul, number_add, number_mul, number_size, number_integer, Et' in E3.
    unfold number at 4 in E3. cbn [fst snd] in E3. now rewrite Rmult_1_l in E3. }
  eexists. split; [|apply Rmult_le_reg_r with (2 := E2)].
  - intros Hr. apply Rmult_le_pos; [assumption|]. apply Rmult_le_pos; [now apply IZR_le|apply bpow_ge_0].
  - now apply IZR_lt.
Qed.

Lemma check_channels_spec c s m r needed :
  check_channels c s m r = (Accepted, needed) ->
  forall o ch, nth_error (channels s) o = Some ch -> exists n, check_channel c s m r ch = (Accepted, n).
Proof.
  unfold check_channels. set (step := fun acc ch => match fst acc with
    | Accepted => let '(v, needed) := check_channel c s m r ch in (v, larger (snd acc) needed) | _ => acc end).
  assert (H : forall l acc, fold_left step l acc = (Accepted, needed) ->
    fst acc = Accepted /\ forall ch, In ch l -> exists n, check_channel c s m r ch = (Accepted, n)).
  { induction l as [|ch l IH]; intros acc E.
    - simpl in E. subst acc. split; [reflexivity|contradiction].
    - simpl in E. apply IH in E. destruct E as [E Hl]. unfold step in E.
      destruct (fst acc) eqn:Ea; try (rewrite Ea in E; discriminate). split; [reflexivity|].
      intros ch' [<-|Hch]; [|now apply Hl]. destruct (check_channel c s m r ch) as [v n]. simpl in E. subst v. now exists n. }
  intros E o ch Ho. apply H in E. destruct E as [_ E]. apply E. now apply nth_error_In in Ho.
Qed.

Lemma sum_format_spec dtype alpha growth :
  number (threshold dtype) <= alpha -> growth <= 101 / 100 ->
  growth * exp (- alpha) < half_smallest (sum_format dtype).
Proof.
  unfold threshold, sum_format. destruct (one_hot_thresholds alpha) as (H1 & _ & H2 & _).
  pose proof (exp_pos (- alpha)). destruct (dtype =? 3)%Z; rewrite number_integer; intros Ha Hg.
  - specialize (H2 Ha). nra.
  - specialize (H1 Ha). nra.
Qed.

(** What [check] knows of what it accepts: the layer is the one that is stored, with heads at its taps and alphas of at
    least the threshold and not too large, no sum is large, and the theorem's bound is at most the claimed one. *)
Lemma accepted_layer c s :
  check c s = Accepted ->
  exists g fo, geometry_of (stored_shape s) = Some g /\ output_format (stored_dtype s) = Some fo
  /\ at_taps g (centers s) = true /\ Forall (fun a => number (threshold (stored_dtype s)) <= number a) (alphas s)
  /\ Forall (fun a => number a <= number (largest_alpha (stored_dtype s))) (alphas s)
  /\ INR (term_count g) * roundoff (sum_format (stored_dtype s)) <= / 2
  /\ forall W b o, holds g W b (channels s) -> (o < groups_n g * outputs g)%nat ->
  4 * (number (input_size c) * weight_sum g W o + Rabs (b o)) <= bpow radix2 (largest_exponent (stored_dtype s)) /\
  exists flushed, 0 <= flushed /\
  bound (sum_format (stored_dtype s)) fo (is_shorter (stored_dtype s)) g W b (number (input_size c)) flushed o
  <= number (claimed_bound c).
Proof.
  unfold check. destruct (negb (same_shape _ _)); [discriminate|]. destruct (negb (_ =? _)%Z); [discriminate|].
  destruct (output_format (stored_dtype s)) as [fo|] eqn:Hfo'; [|discriminate].
  destruct (geometry_of (stored_shape s)) as [g|] eqn:Hg; [|discriminate].
  destruct (negb (forallb (at_most _) (alphas s))) eqn:Halphas; [discriminate|].
  destruct (negb (match alphas s with [] => _ | _ => _ end)); [discriminate|].
  destruct (negb (forallb (fun a => at_most a _) (alphas s))) eqn:Hlargest; [discriminate|].
  destruct (negb (at_taps _ _)) eqn:Htaps; [discriminate|].
  set (f := sum_format (stored_dtype s)) in *.
  set (m := (Z.of_nat (length (taps g)) * inputs_of_group (stored_shape s) + 1)%Z).
  destruct (negb (_ && _ && _ && _)) eqn:Hform; [discriminate|].
  destruct (check_channels c s m (input_size c)) as [v needed] eqn:Hchannels.
  destruct v; try discriminate. intros _.
  apply negb_false_iff in Halphas, Hlargest, Htaps, Hform.
  apply andb_true_iff in Hform. destruct Hform as [Hform _]. apply andb_true_iff in Hform. destruct Hform as [Hform _].
  apply andb_true_iff in Hform. destruct Hform as [Hq Hcount]. apply Z.ltb_lt in Hq. apply Z.eqb_eq in Hcount.
  destruct (geometry_of_spec _ _ Hg) as (Hvalid & Hinputs & Houtputs).
  exists g, fo. do 3 (split; [assumption || reflexivity|]). split.
  { apply Forall_forall. intros a Ha. rewrite forallb_forall in Halphas. apply at_most_spec, Halphas, Ha. }
  split.
  { apply Forall_forall. intros a Ha. rewrite forallb_forall in Hlargest. apply at_most_spec, Hlargest, Ha. }
  assert (Hm : Z.of_nat (term_count g) = m) by (unfold term_count, m; rewrite <- Hinputs; lia).
  assert (Hm' : Z.to_nat m = term_count g) by lia.
  assert (Hsize : 0 <= number (input_size c)).
  { unfold input_size. pose proof (larger_spec (size (low c)) (size (high c))) as [H _]. rewrite number_size in H.
    pose proof (Rabs_pos (number (low c))). lra. }
  split.
  { assert (Hf : (0 < precision f)%Z) by (unfold f, sum_format; destruct (_ =? _)%Z; reflexivity).
    assert (H2 : IZR (2 * m) <= bpow radix2 (precision f)).
    { rewrite <- IZR_Zpower by lia. apply IZR_le. change (Zpower radix2 (precision f)) with (2 ^ precision f)%Z. lia. }
    rewrite mult_IZR in H2. rewrite INR_IZR_INZ, Hm. unfold roundoff. pose proof (bpow_gt_0 radix2 (- precision f)).
    assert (H3 : bpow radix2 (precision f) * bpow radix2 (- precision f) = 1).
    { rewrite <- bpow_plus. replace (precision f + - precision f)%Z with 0%Z by lia. reflexivity. }
    nra. }
  intros W b o Hholds Ho.
  destruct (nth_error (channels s) o) as [ch|] eqn:Hch.
  2: { apply nth_error_None in Hch. lia. }
  destruct (check_channels_spec _ _ _ _ _ Hchannels o ch Hch) as [n Hn].
  destruct (check_channel_spec c s m (input_size c) ch n fo Hfo' ltac:(fold f; lia) ltac:(lia) Hn)
    as (Hlarge & flushed & Hflushed & Hbound).
  fold f in Hbound. rewrite Hm' in Hbound. rewrite <- (weight_sum_stored g W b _ o ch Hholds Hch) in Hbound, Hlarge.
  destruct (Hholds o ch Hch) as [_ Hb]. rewrite <- Hb in Hbound, Hlarge. split; [exact Hlarge|].
  exists flushed. split; [auto|exact Hbound].
Qed.

(** What [check] accepts is true: whatever order sums have, computed attention and computed convolution differ by at most
    the claimed bound, for every image within the claimed range, at every output. The layer is the one that is stored:
    its geometry g, its weights and biases, and heads at its taps, with alphas of at least the threshold. *)
Theorem check_is_right c s :
  check c s = Accepted ->
  exists g fo, geometry_of (stored_shape s) = Some g /\ output_format (stored_dtype s) = Some fo
  /\ at_taps g (centers s) = true /\ Forall (fun a => number (threshold (stored_dtype s)) <= number a) (alphas s)
  /\ forall (Hf : (0 < precision (sum_format (stored_dtype s)))%Z) (Hfo : (0 < precision fo)%Z) W b,
  holds g W b (channels s) ->
  forall X sizes i o (p : position -> position -> R) t_attention t_conv y_attention y_conv,
  is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat ->
  (forall k ch, In k (box sizes) -> Rabs (X k ch) <= number (input_size c)) ->
  one_hot_at g sizes i p ->
  single t_attention -> Permutation.Permutation (terms t_attention) (attention_terms g W b X sizes o p) ->
  outcome (sum_format (stored_dtype s)) fo Hf (is_shorter (stored_dtype s)) t_attention y_attention ->
  single t_conv -> Permutation.Permutation (terms t_conv) (conv_terms g W b X i o) ->
  outcome (sum_format (stored_dtype s)) fo Hf (is_shorter (stored_dtype s)) t_conv y_conv ->
  Rabs (y_attention - y_conv) <= number (claimed_bound c).
Proof.
  intros Hcheck. destruct (accepted_layer c s Hcheck) as (g & fo & Hg & Hfo' & Htaps & Halphas & _ & Hm & Haccepted).
  exists g, fo. do 4 (split; [assumption|]).
  intros Hf Hfo W b Hholds X sizes i o p ta tc ya yc Hout Ho HX Hp Hsa Hpa Hya Hsc Hpc Hyc.
  destruct (Haccepted W b o Hholds Ho) as (_ & flushed & Hflushed & Hbound).
  destruct (geometry_of_spec _ _ Hg) as (Hvalid & _). eapply Rle_trans; [|exact Hbound].
  apply (certificate_of_one_hot_attention (sum_format (stored_dtype s)) fo Hf Hfo (is_shorter (stored_dtype s)) g W b X sizes
    i o p ta tc ya yc (number (input_size c)) flushed); auto.
Qed.

(** The formats of a dtype, and 2^E of [largest_exponent] in them. *)
Lemma formats_of dtype fo :
  output_format dtype = Some fo ->
  (0 < precision (sum_format dtype) < emax (sum_format dtype))%Z /\ (0 < precision fo < emax fo)%Z
  /\ (lowest (sum_format dtype) + precision (sum_format dtype) <= largest_exponent dtype < emax (sum_format dtype))%Z
  /\ (lowest fo <= largest_exponent dtype < emax fo)%Z /\ (is_shorter dtype = false -> fo = sum_format dtype).
Proof.
  intros Hfo. assert (Hd : (dtype = 0 \/ dtype = 1 \/ dtype = 2 \/ dtype = 3)%Z).
  { destruct dtype as [|[[|[]|]|[|[]|]|]|]; simpl in Hfo; try discriminate; auto. }
  destruct Hd as [-> |[-> |[-> | ->]]]; injection Hfo as <-; unfold emax; simpl; repeat split; lia || discriminate.
Qed.

(** Nor does anything overflow. In IEEE 754's numbers, with a largest one, infinities and NaN, what is given out is finite
    and within the claimed bound, in the orders of the engines: where a weight multiplies one pixel, not a sum of several. *)
Theorem check_is_right_with_a_largest_number c s :
  check c s = Accepted ->
  exists g fo, geometry_of (stored_shape s) = Some g /\ output_format (stored_dtype s) = Some fo /\
  let f := sum_format (stored_dtype s) in
  forall (Hf : (0 < precision f)%Z) (Hmax : (precision f < emax f)%Z)
    (Hfo : (0 < precision fo)%Z) (Hmaxo : (precision fo < emax fo)%Z) W b,
  holds g W b (channels s) ->
  forall X sizes i o (p : position -> position -> R) t_attention t_conv (z_attention z_conv : float f),
  is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat ->
  (forall k ch, In k (box sizes) -> Rabs (X k ch) <= number (input_size c)) ->
  one_hot_at g sizes i p ->
  single t_attention -> Permutation.Permutation (terms t_attention) (attention_terms g W b X sizes o p) ->
  in_order g W X sizes o t_attention -> runs f Hf Hmax t_attention z_attention ->
  single t_conv -> Permutation.Permutation (terms t_conv) (conv_terms g W b X i o) ->
  in_order g W X sizes o t_conv -> runs f Hf Hmax t_conv z_conv ->
  let y_attention := converted fo Hfo Hmaxo z_attention in
  let y_conv := converted fo Hfo Hmaxo z_conv in
  is_finite y_attention = true /\ is_finite y_conv = true /\
  Rabs (B2R y_attention - B2R y_conv) <= number (claimed_bound c).
Proof.
  intros Hcheck. destruct (accepted_layer c s Hcheck) as (g & fo & Hg & Hfo' & _ & _ & _ & Hm & Haccepted).
  exists g, fo. do 2 (split; [assumption|]). cbv zeta.
  intros Hf Hmax Hfo Hmaxo W b Hholds X sizes i o p ta tc za zc Hout Ho HX Hp Hsa Hpa Hoa Hza Hsc Hpc Hoc Hzc.
  destruct (geometry_of_spec _ _ Hg) as (Hvalid & _).
  destruct (formats_of _ _ Hfo') as (_ & _ & HE & HEo & Hsame).
  destruct (Haccepted W b o Hholds Ho) as (Hlarge & flushed & Hflushed & Hbound).
  destruct (one_hot_runs_are_finite (sum_format (stored_dtype s)) Hf Hmax g W b X sizes i o p (number (input_size c))
    (largest_exponent (stored_dtype s)) ta tc za zc) as [(Hfa & Hca & Hya) (Hfc & Hcc & Hyc)]; auto.
  destruct (converted_is_nearest fo Hfo Hmaxo za (largest_exponent (stored_dtype s)) Hfa Hya HEo) as [Hfina Ea].
  destruct (converted_is_nearest fo Hfo Hmaxo zc (largest_exponent (stored_dtype s)) Hfc Hyc HEo) as [Hfinc Ec].
  split; [assumption|]. split; [assumption|]. eapply Rle_trans; [|exact Hbound].
  assert (Houtcome : forall t z, computes (ieee (sum_format (stored_dtype s)) Hf) t z ->
    outcome (sum_format (stored_dtype s)) fo Hf (is_shorter (stored_dtype s)) t (nearest fo z)).
  { intros t z Hz. exists z. split; [assumption|]. destruct (is_shorter (stored_dtype s)); [reflexivity|].
    rewrite (Hsame eq_refl). apply nearest_of_representable. now apply computes_number in Hz. }
  rewrite Ea, Ec.
  apply (certificate_of_one_hot_attention (sum_format (stored_dtype s)) fo Hf Hfo (is_shorter (stored_dtype s)) g W b X sizes
    i o p ta tc _ _ (number (input_size c)) flushed); auto.
Qed.

(** Powers of two are numbers, and what is known of an accepted alpha that is one. *)
Lemma powers_are_numbers dtype n : (0 <= n)%Z -> representable (sum_format dtype) (bpow radix2 n).
Proof.
  intros Hn. apply generic_format_bpow. unfold exponents, FLT_exp, sum_format. destruct (_ =? _)%Z; simpl; lia.
Qed.

Lemma accepted_alpha c s e growth :
  check c s = Accepted -> In (bpow radix2 e) (map number (alphas s)) -> growth <= 101 / 100 ->
  let f := sum_format (stored_dtype s) in
  (lowest f <= e)%Z /\ (precision f + e <= emax f - 2)%Z /\ representable f (bpow radix2 e)
  /\ growth * exp (- bpow radix2 e) < half_smallest f.
Proof.
  intros Hcheck He HE. destruct (accepted_layer c s Hcheck) as (g & fo & _ & _ & _ & Halphas & Hlargest & _). cbv zeta.
  apply in_map_iff in He. destruct He as (a & Ea & Ha). rewrite Forall_forall in Halphas, Hlargest.
  specialize (Halphas a Ha). specialize (Hlargest a Ha). rewrite Ea in Halphas, Hlargest.
  assert (H0 : (0 <= e)%Z).
  { destruct (Z_lt_le_dec e 0) as [Hneg|]; [exfalso|assumption].
    assert (H : bpow radix2 e <= bpow radix2 0) by (apply bpow_le; lia). simpl in H.
    unfold threshold in Halphas. destruct (_ =? _)%Z in Halphas; rewrite number_integer in Halphas; lra. }
  split; [unfold sum_format; destruct (_ =? _)%Z; simpl; lia|]. split.
  { unfold number, largest_alpha in Hlargest. cbn [fst snd] in Hlargest. rewrite Rmult_1_l in Hlargest.
    apply le_bpow in Hlargest. lia. }
  split; [now apply powers_are_numbers|]. now apply sum_format_spec.
Qed.

(** Attention of what is accepted is one-hot, with an exp that is at most 1 % too large, if its alphas are powers of two:
    that of a softmax over all keys, and that of a softmax for each axis. *)
Theorem accepted_is_one_hot c s :
  check c s = Accepted ->
  exists g, geometry_of (stored_shape s) = Some g /\
  forall (Hf : (0 < precision (sum_format (stored_dtype s)))%Z) (E : exponential (sum_format (stored_dtype s))) sizes i
    (e : position -> Z),
  growth E <= 101 / 100 -> is_output_n (axes g) sizes i ->
  (forall m, In m (taps g) -> In (bpow radix2 (e m)) (map number (alphas s))) ->
  (forall p scores shared,
    (forall m, In m (taps g) -> computes_scores _ Hf (e m) (box sizes)
      (fun k => distance2 k (target_n g i m)) (shared m) (scores m)) ->
    (forall m, In m (taps g) -> computes_softmax _ Hf E (box sizes) (scores m) (target_n g i m) (p m)) ->
    one_hot_at g sizes i p) /\
  (forall tables,
    (forall m, In m (taps g) -> computes_tables _ Hf E (e m) sizes (target_n g i m) (tables m)) ->
    one_hot_at g sizes i (fun m => table_product (tables m))).
Proof.
  intros Hcheck. destruct (accepted_layer c s Hcheck) as (g & fo & Hg & _).
  destruct (geometry_of_spec _ _ Hg) as (Hvalid & _). exists g. split; [assumption|].
  intros Hf E sizes i e HE Hout He. set (f := sum_format (stored_dtype s)) in *.
  assert (Hone : representable f 1) by (now apply (powers_are_numbers (stored_dtype s) 0)).
  assert (Hexp : forall m, In m (taps g) -> (lowest f <= e m)%Z /\ representable f (bpow radix2 (e m))
    /\ growth E * exp (- bpow radix2 (e m)) < half_smallest f).
  { intros m Hm. destruct (accepted_alpha c s (e m) (growth E) Hcheck (He m Hm) HE) as (H1 & _ & H2 & H3). auto. }
  split.
  - intros p scores shared Hs Hp. now apply (joint_softmax_is_one_hot f Hf E g sizes i p scores e shared).
  - intros tables Ht. now apply (separable_softmax_is_one_hot f Hf E g sizes i tables e).
Qed.

(** The same in IEEE 754's numbers, with a largest one: scores and what softmax computes from them do not overflow. *)
Theorem accepted_is_one_hot_with_a_largest_number c s :
  check c s = Accepted ->
  exists g, geometry_of (stored_shape s) = Some g /\
  let f := sum_format (stored_dtype s) in
  forall (Hf : (0 < precision f)%Z) (Hmax : (precision f < emax f)%Z) (E : float_exponential f) sizes i (e : position -> Z),
  growth (on_numbers E) <= 101 / 100 -> is_output_n (axes g) sizes i ->
  (forall m, In m (taps g) -> In (bpow radix2 (e m)) (map number (alphas s))) ->
  (forall (p scores : position -> position -> float f) shared,
    (forall m, In m (taps g) -> runs_scores f Hf Hmax (e m) (box sizes)
      (fun k => distance2 k (target_n g i m)) (shared m) (scores m)) ->
    (forall m, In m (taps g) -> runs_softmax f Hf Hmax E (box sizes) (scores m) (target_n g i m) (p m)) ->
    one_hot_at g sizes i (fun m k => B2R (p m k))) /\
  (forall tables : position -> list (Z -> float f),
    (forall m, In m (taps g) -> runs_tables f Hf Hmax E (e m) sizes (target_n g i m) (tables m)) ->
    one_hot_at g sizes i (fun m => table_product (map (fun q z => B2R (q z)) (tables m)))).
Proof.
  intros Hcheck. destruct (accepted_is_one_hot c s Hcheck) as (g & Hg & Hone).
  destruct (geometry_of_spec _ _ Hg) as (Hvalid & _). exists g. split; [assumption|]. cbv zeta.
  intros Hf Hmax E sizes i e HE Hout He. set (f := sum_format (stored_dtype s)) in *.
  destruct (Hone Hf (on_numbers E) sizes i e HE Hout He) as [Hjoint Hseparable].
  assert (Hexp : forall m, In m (taps g) -> (lowest f <= e m)%Z /\ (precision f + e m <= emax f - 2)%Z
    /\ representable f (bpow radix2 (e m)) /\ growth (on_numbers E) * exp (- bpow radix2 (e m)) < half_smallest f).
  { intros m Hm. apply (accepted_alpha c s (e m) _ Hcheck (He m Hm) HE). }
  split.
  - intros p scores shared Hs Hp.
    pose proof (joint_softmax_is_finite f Hf Hmax E g sizes i p scores e shared Hvalid Hout Hexp Hs Hp) as H.
    apply (Hjoint (fun m k => B2R (p m k)) (fun m k => B2R (scores m k)) shared); intros m Hm; apply (H m Hm).
  - intros tables Ht. apply (Hseparable (fun m => map (fun q z => B2R (q z)) (tables m))). intros m Hm.
    destruct (Hexp m Hm) as (H1 & H2 & H3 & H4).
    apply (tables_are_finite f Hf Hmax E (e m) sizes (target_n g i m) (tables m)); auto. now apply target_in_box.
Qed.

(** All of it for one softmax over all keys, as the literal engine has it: dot products v . r_delta, softmax, values and
    sums. For alphas that are powers of two, every image within the claimed range, and a grid on which scores are exact, what
    attention and convolution give out is finite, and they differ by at most the claimed bound. Assumed of hardware is that
    every operation is rounded to nearest, once or fused, and that exp is at most 1 % too large; of the sums, [in_order],
    which Literal.v proves of two orders. *)
Theorem literal_attention_is_right c s :
  check c s = Accepted ->
  exists g fo, geometry_of (stored_shape s) = Some g /\ output_format (stored_dtype s) = Some fo /\
  let f := sum_format (stored_dtype s) in
  forall (Hf : (0 < precision f)%Z) (Hmax : (precision f < emax f)%Z)
    (Hfo : (0 < precision fo)%Z) (Hmaxo : (precision fo < emax fo)%Z) (E : float_exponential f) W b (e : position -> Z),
  growth (on_numbers E) <= 101 / 100 -> holds g W b (channels s) ->
  (forall m, In m (taps g) -> In (bpow radix2 (e m)) (map number (alphas s))) ->
  forall X sizes i o (score probability : position -> position -> float f)
    t_attention t_conv (z_attention z_conv : float f),
  is_output_n (axes g) sizes i -> (o < groups_n g * outputs g)%nat ->
  (forall k ch, In k (box sizes) -> Rabs (X k ch) <= number (input_size c)) ->
  (forall m, In m (taps g) -> (farthest sizes (center_n (axes g) m) <= 2 ^ precision f)%Z) ->
  (forall m k, In m (taps g) -> In k (box sizes) -> runs_dot_product f Hf Hmax (e m)
    (center_n (axes g) m) (difference k (query_n (axes g) i)) (score m k)) ->
  (forall m, In m (taps g) -> runs_softmax f Hf Hmax E (box sizes) (score m) (target_n g i m) (probability m)) ->
  single t_attention ->
  Permutation.Permutation (terms t_attention) (attention_terms g W b X sizes o (fun m k => B2R (probability m k))) ->
  in_order g W X sizes o t_attention -> runs f Hf Hmax t_attention z_attention ->
  single t_conv -> Permutation.Permutation (terms t_conv) (conv_terms g W b X i o) ->
  in_order g W X sizes o t_conv -> runs f Hf Hmax t_conv z_conv ->
  let y_attention := converted fo Hfo Hmaxo z_attention in
  let y_conv := converted fo Hfo Hmaxo z_conv in
  is_finite y_attention = true /\ is_finite y_conv = true /\
  Rabs (B2R y_attention - B2R y_conv) <= number (claimed_bound c).
Proof.
  intros Hcheck. destruct (check_is_right_with_a_largest_number c s Hcheck) as (g & fo & Hg & Hfo' & Hright).
  destruct (accepted_is_one_hot_with_a_largest_number c s Hcheck) as (g' & Hg' & Hone).
  rewrite Hg in Hg'. injection Hg' as <-. destruct (geometry_of_spec _ _ Hg) as (Hvalid & _).
  exists g, fo. do 2 (split; [assumption|]). cbv zeta in Hright, Hone |- *.
  intros Hf Hmax Hfo Hmaxo E W b e HE Hholds He X sizes i o score p ta tc za zc Hout Ho HX Hfar Hscore Hp.
  apply (Hright Hf Hmax Hfo Hmaxo W b Hholds X sizes i o (fun m k => B2R (p m k))); auto.
  destruct (Hone Hf Hmax E sizes i e HE Hout He) as [Hjoint _].
  apply (Hjoint p score (fun m => bpow radix2 (e m) * norm2_n (map IZR (center_n (axes g) m)))); [|assumption].
  intros m Hm. destruct (accepted_alpha c s (e m) _ Hcheck (He m Hm) HE) as (Hlow & _).
  apply literal_scores; auto.
Qed.
