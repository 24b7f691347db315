(** * The certificate of one-hot attention: rounding on both sides

    What certify returns in the exact regime, for every order of every sum: |fl(Attention) - Conv| and |fl(Conv) - Conv| are
    each at most gamma_m sum |W||x| and what underflow and the rounding of the output add. Beside
    proofs/claims/certificate/rounding.py (claim rounded-sum) and proofs/claims/certificate/underflow.py (claim
    underflow-errors); the code is convert/bounds/rounding.py. *)

From Coq Require Import ZArith Reals Lia Lra Psatz Permutation.
From Flocq Require Import Core.
From Conv2Attn Require Import Sums Encoding Softmax Grid Convolution Attention Box ConvolutionN Theta TheoremN SmoothedKernel.
From Conv2Attn Require Import Summation Rounding Binary OneHot.
Open Scope R_scope.

(** ** The terms of both sides *)

Section Terms.
Variables (g : geometry_n) (W : kernel_n) (b : vector) (X : position -> vector) (sizes : list nat).
Variables (i : position) (o : nat).
Local Notation channel_of c := (o / outputs g * inputs g + c)%nat.

(** The bias, and a weight times a pixel for each input channel and tap. *)
Definition conv_terms : list (R * R) :=
  (1, b o) :: flat_map (fun c => map (fun m => (W o c m, X (reads (axes g) i m) (channel_of c))) (taps g))
    (seq 0 (inputs g)).

(** The bias, and a probability times a weight times a pixel for each input channel, head and key. *)
Definition attention_terms (p : position -> position -> R) : list (R * R) :=
  (1, b o) :: flat_map (fun c => flat_map (fun m => map (fun k => (p m k * W o c m, X k (channel_of c))) (box sizes))
    (taps g)) (seq 0 (inputs g)).

(** m = K^n C_in / groups + 1 *)
Definition term_count : nat := S (length (taps g) * inputs g).

Lemma length_flat_map_same {A B} (h : A -> list B) (l : list A) n :
  (forall a, In a l -> length (h a) = n) -> length (flat_map h l) = (length l * n)%nat.
Proof.
  induction l as [|a l IH]; intros H; [reflexivity|]. simpl. rewrite app_length, IH, H; simpl; auto.
  intros; apply H; now right.
Qed.

Lemma live_length l : (live l <= length l)%nat.
Proof. unfold live. induction l as [|p l IH]; simpl; [lia|]. destruct (negb _); simpl; lia. Qed.

Lemma conv_terms_live : (live conv_terms <= term_count)%nat.
Proof.
  eapply Nat.le_trans; [apply live_length|]. unfold conv_terms, term_count. simpl.
  rewrite (length_flat_map_same _ _ (length (taps g))) by (intros; now rewrite map_length).
  rewrite seq_length. lia.
Qed.

Lemma conv_terms_value : Sum q in conv_terms, value q = conv_n g W b X i o.
Proof.
  unfold conv_terms, conv_n, value. simpl. rewrite Rmult_1_l. f_equal.
  rewrite sum_flat_map. apply sum_ext; intros c _. now rewrite sum_map.
Qed.

(** sum |W||x| + |b| over the pixels that the convolution reads *)
Definition absolute_sum : R := Rabs (b o) + Sum c in seq 0 (inputs g), Sum m in taps g,
  Rabs (W o c m) * Rabs (X (reads (axes g) i m) (channel_of c)).

Lemma conv_terms_absolute : Sum q in conv_terms, Rabs (value q) = absolute_sum.
Proof.
  unfold conv_terms, absolute_sum, value. simpl. rewrite Rmult_1_l. f_equal.
  rewrite sum_flat_map. apply sum_ext; intros c _. rewrite sum_map. apply sum_ext; intros m _. apply Rabs_mult.
Qed.

(** Attention is one-hot: head m gives its target 1 and every other key 0. *)
Definition one_hot_at (p : position -> position -> R) : Prop :=
  forall m k, In m (taps g) -> In k (box sizes) -> p m k = is_target (target_n g i m) k.

Hypothesis Hvalid : valid_n g.
Hypothesis Hout : is_output_n (axes g) sizes i.

(** Of the keys of a head one is left. *)
Lemma one_key_is_left (f : position -> R) (target : position) (w : R) :
  In target (box sizes) ->
  Nat.le (live (map (fun k => (is_target target k * w, f k)) (box sizes))) 1 /\
  Sum q in map (fun k => (is_target target k * w, f k)) (box sizes), value q = w * f target /\
  Sum q in map (fun k => (is_target target k * w, f k)) (box sizes), Rabs (value q) = Rabs w * Rabs (f target).
Proof.
  intros Ht. pose proof (box_distinct sizes) as Hd. split; [|split].
  - revert Ht Hd. generalize (box sizes) as l. intros l _ Hd.
    assert (H : forall l, NoDup l -> ~ In target l -> live (map (fun k => (is_target target k * w, f k)) l) = 0%nat).
    { clear. induction l as [|k l IH]; intros Hd Hn; [reflexivity|]. inversion_clear Hd. unfold live in *. simpl.
      unfold value, is_target at 1. simpl. destruct (position_eq_dec k target) as [->|]; [exfalso; apply Hn; now left|].
      rewrite !Rmult_0_l. unfold is_zero at 1. destruct (Req_EM_T 0 0); [|congruence]. simpl. apply IH; auto.
      intros Hin. apply Hn. now right. }
    induction l as [|k l IH]; [unfold live; simpl; lia|]. inversion_clear Hd as [|? ? Hk Hd'].
    change (map (fun k => (is_target target k * w, f k)) (k :: l))
      with ([(is_target target k * w, f k)] ++ map (fun k => (is_target target k * w, f k)) l). rewrite live_app.
    destruct (position_eq_dec k target) as [->|Hne].
    + rewrite H by assumption. pose proof (live_length [(is_target target target * w, f target)]). simpl in *. lia.
    + assert (E : live [(is_target target k * w, f k)] = 0%nat).
      { unfold live, value, is_target. simpl. destruct (position_eq_dec k target); [contradiction|].
        rewrite !Rmult_0_l. unfold is_zero. destruct (Req_EM_T 0 0); [reflexivity|congruence]. }
      rewrite E. apply IH. assumption.
  - rewrite sum_map. unfold value. simpl.
    rewrite (sum_ext _ _ (fun k => is_target target k * (w * f k))) by (intros; ring).
    now rewrite sum_single_position.
  - rewrite sum_map. unfold value. simpl.
    rewrite (sum_ext _ _ (fun k => is_target target k * (Rabs w * Rabs (f k)))).
    + now rewrite sum_single_position.
    + intros k _. rewrite !Rabs_mult. unfold is_target. destruct (position_eq_dec k target); rewrite ?Rabs_R1, ?Rabs_R0; ring.
Qed.

Lemma live_flat_map {A} (h : A -> list (R * R)) (l : list A) n :
  (forall a, In a l -> (live (h a) <= n)%nat) -> (live (flat_map h l) <= length l * n)%nat.
Proof.
  induction l as [|a l IH]; intros H; [unfold live; simpl; lia|]. simpl. rewrite live_app.
  specialize (IH ltac:(intros; apply H; now right)). specialize (H a (or_introl eq_refl)). lia.
Qed.

(** So attention has the convolution's terms, and no others. *)
Lemma attention_terms_are_the_convolutions p :
  one_hot_at p ->
  (live (attention_terms p) <= term_count)%nat /\
  Sum q in attention_terms p, value q = conv_n g W b X i o /\
  Sum q in attention_terms p, Rabs (value q) = absolute_sum.
Proof.
  intros Hp. destruct (length_output _ _ _ Hout) as [Hi _].
  assert (Hterms : forall c m, In m (taps g) ->
    map (fun k => (p m k * W o c m, X k (channel_of c))) (box sizes)
    = map (fun k => (is_target (target_n g i m) k * W o c m, X k (channel_of c))) (box sizes)).
  { intros c m Hm. apply map_ext_in. intros k Hk. now rewrite Hp. }
  assert (Hreads : forall m, In m (taps g) -> target_n g i m = reads (axes g) i m).
  { intros m Hm. unfold target_n. apply query_center_n; [assumption|].
    apply length_in_box in Hm. now rewrite map_length in Hm. }
  assert (Hone := fun c m (Hm : In m (taps g)) => (one_key_is_left (fun k => X k (channel_of c)) (target_n g i m) (W o c m) (target_in_box g sizes i m Hvalid Hout Hm))). cbv beta in Hone.
  unfold attention_terms. split; [|split].
  - match goal with |- (live (?a :: ?l) <= _)%nat => change (a :: l) with ([a] ++ l) end. rewrite live_app.
    pose proof (live_length [(1, b o)]) as H1. simpl length in H1.
    assert (H2 : Nat.le (live (flat_map (fun c => flat_map (fun m => map (fun k => (p m k * W o c m, X k (channel_of c)))
      (box sizes)) (taps g)) (seq 0 (inputs g)))) (length (seq 0 (inputs g)) * (length (taps g) * 1))).
    { apply live_flat_map. intros c _. apply live_flat_map. intros m Hm. rewrite Hterms by assumption.
      now destruct (Hone c m Hm) as [H _]. }
    rewrite seq_length in H2. unfold term_count. lia.
  - unfold conv_n. simpl. unfold value at 1. simpl. rewrite Rmult_1_l. f_equal. rewrite sum_flat_map.
    apply sum_ext; intros c _. rewrite sum_flat_map. apply sum_ext; intros m Hm. rewrite Hterms by assumption.
    destruct (Hone c m Hm) as (_ & H & _). rewrite H, Hreads by assumption. reflexivity.
  - unfold absolute_sum. simpl. unfold value at 1. simpl. rewrite Rmult_1_l. f_equal. rewrite sum_flat_map.
    apply sum_ext; intros c _. rewrite sum_flat_map. apply sum_ext; intros m Hm. rewrite Hterms by assumption.
    destruct (Hone c m Hm) as (_ & _ & H). rewrite H, Hreads by assumption. reflexivity.
Qed.
End Terms.
