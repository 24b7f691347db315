(** * The literal engine: its scores, and the order of its sums

    A score is v . r_delta, added up in some order, fused or not, with a |delta|^2 that was added up before. On grids that
    are not too large it is -alpha |k - t|^2 and a constant, without rounding. Values are weighted pixels, which
    probabilities read; or pixels, which they read before weights multiply them. Beside
    proofs/claims/certificate/rounding.py (claim rounded-sum) and proofs/claims/computing/exact_scores.py (claim
    exact-scores); the code is convert/heads/encoding.py and convert/engines/literal.py. *)

From Coq Require Import ZArith Reals Lia Lra Psatz Permutation.
From Flocq Require Import Core IEEE754.BinarySingleNaN.
From Conv2Attn Require Import Sums Encoding Grid Attention Box ConvolutionN TheoremN SmoothedKernel.
From Conv2Attn Require Import Summation Rounding Binary ExactScores Certificate Overflow FloatSoftmax.
Import ListNotations.
Open Scope R_scope.
Local Notation power := (bpow radix2).

(** Products of two numbers, added in some order. *)
Fixpoint products_added (t : tree) : Prop :=
  match t with Scale _ (Leaf _) => True | Plus l r => products_added l /\ products_added r | _ => False end.

Lemma products_are_scores e t :
  products_added t ->
  (forall q, In q (terms t) -> exists m n, fst q = IZR m * power e /\ snd q = IZR n) -> score_tree e t.
Proof.
  induction t as [x|a t _|l IHl r IHr]; intros Ht Hq.
  - contradiction.
  - destruct t as [x| |]; try contradiction. destruct (Hq (a * 1, x)) as (m & n & Ea & Ex); [now left|].
    simpl in Ea, Ex. rewrite Rmult_1_r in Ea. subst. constructor.
  - destruct Ht. simpl in Hq. constructor; [apply IHl|apply IHr]; auto; intros q H'; apply Hq, in_or_app; auto.
Qed.

(** |delta|^2, and the products of v with r_delta, for alpha = 2^e. *)
Definition square_products (delta : list Z) : list (R * R) := map (fun d => (IZR d, IZR d)) delta.
Definition score_products (e : Z) (center delta : list Z) (squares : R) : list (R * R) :=
  (- power e, squares) :: map (fun p => (2 * power e * IZR (fst p), IZR (snd p))) (combine center delta).

(** Their integers, and how large they get. *)
Fixpoint squares_of (delta : list Z) : Z := match delta with [] => 0 | d :: rest => (d * d + squares_of rest)%Z end.
Fixpoint reach (center delta : list Z) : Z :=
  match center, delta with
  | c :: center', d :: delta' => (d * d + 2 * Z.abs (c * d) + reach center' delta')%Z
  | _, _ => 0%Z
  end.

Lemma squares_at_most_reach center delta :
  length center = length delta -> (0 <= squares_of delta <= reach center delta)%Z.
Proof.
  revert delta. induction center as [|c center IH]; intros [|d delta] Hl; try discriminate; cbn [squares_of reach]; [lia|].
  injection Hl as Hl. specialize (IH delta Hl). pose proof (Z.square_nonneg d). lia.
Qed.

Lemma square_products_sum delta :
  Sum q in square_products delta, value q = IZR (squares_of delta)
  /\ Sum q in square_products delta, Rabs (value q) = IZR (squares_of delta)
  /\ norm2_n (map IZR delta) = IZR (squares_of delta).
Proof.
  unfold square_products, norm2_n. induction delta as [|d delta (IH1 & IH2 & IH3)]; [simpl; now repeat split|].
  cbn [map sum_over squares_of]. rewrite IH1, IH2, IH3, plus_IZR, mult_IZR. unfold value. cbn [fst snd].
  rewrite (Rabs_pos_eq (IZR d * IZR d)) by apply (Rle_0_sqr (IZR d)). repeat split; ring.
Qed.

Lemma score_products_sum e center delta :
  length center = length delta ->
  Sum q in score_products e center delta (IZR (squares_of delta)), value q
  = - power e * norm2_n (sub_n (map IZR delta) (map IZR center)) + power e * norm2_n (map IZR center)
  /\ Sum q in score_products e center delta (IZR (squares_of delta)), Rabs (value q) = power e * IZR (reach center delta).
Proof.
  pose proof (bpow_gt_0 radix2 e) as He. unfold score_products, norm2_n, sub_n, value. cbn [sum_over fst snd].
  rewrite Rabs_mult, Rabs_Ropp, (Rabs_pos_eq (power e)) by lra.
  revert delta. induction center as [|c center IH]; intros [|d delta] Hl; try discriminate;
    cbn [combine map sum_over squares_of reach fst snd].
  - rewrite Rabs_R0. split; ring.
  - injection Hl as Hl. destruct (IH delta Hl) as [IH1 IH2].
    assert (Hs : 0 <= IZR (squares_of delta)) by (apply IZR_le, (squares_at_most_reach center delta Hl)).
    rewrite (Rabs_pos_eq (IZR (squares_of delta))) in IH2 by assumption.
    rewrite (Rabs_pos_eq (IZR (d * d + squares_of delta))) by (rewrite plus_IZR, mult_IZR; nra).
    rewrite !plus_IZR, !mult_IZR, abs_IZR, mult_IZR. split.
    + transitivity (- power e * (IZR d * IZR d) + 2 * power e * IZR c * IZR d
        + (- power e * IZR (squares_of delta) + Sum p in map (fun p => (2 * power e * IZR (fst p), IZR (snd p)))
          (combine center delta), fst p * snd p)); [ring|]. rewrite IH1. ring.
    + replace (2 * power e * IZR c * IZR d) with (2 * power e * (IZR c * IZR d)) by ring.
      rewrite (Rabs_mult (2 * power e)), (Rabs_pos_eq (2 * power e)) by lra.
      transitivity (power e * (IZR d * IZR d) + 2 * power e * Rabs (IZR c * IZR d)
        + (power e * IZR (squares_of delta) + Sum p in map (fun p => (2 * power e * IZR (fst p), IZR (snd p)))
          (combine center delta), Rabs (fst p * snd p))); [ring|]. rewrite IH2. ring.
Qed.

(** How large they get on a grid: sum over the axes of (P - 1)^2 + 2 |Delta| (P - 1). *)
Fixpoint farthest (sizes : list nat) (center : list Z) : Z :=
  match sizes, center with
  | P :: sizes', c :: center' => let d := (Z.of_nat P - 1)%Z in (d * d + 2 * (Z.abs c * d) + farthest sizes' center')%Z
  | _, _ => 0%Z
  end.

(** A 5 x 5 kernel on 2895 x 2895 pixels just fits into the 24 bits of single precision. *)
Example largest_grid :
  (farthest [2895; 2895]%nat [2; -2] <= 2 ^ 24)%Z /\ (2 ^ 24 < farthest [2896; 2896]%nat [2; -2])%Z.
Proof. split; [vm_compute; discriminate|vm_compute; reflexivity]. Qed.

Lemma reach_at_most sizes center k q :
  In k (box sizes) -> In q (box sizes) -> (reach center (from k q) <= farthest sizes center)%Z.
Proof.
  intros Hk Hq. apply in_box in Hk, Hq. revert center q Hq.
  induction Hk as [|P x sizes k Hx Hk IH]; intros [|c center] q Hq; inversion Hq as [|? y ? q' Hy Hq']; subst;
    cbn [reach farthest from]; try lia.
  specialize (IH center q' Hq'). rewrite Z.abs_mul.
  assert (Z.abs (x - y) <= Z.of_nat P - 1)%Z by lia.
  assert ((x - y) * (x - y) <= (Z.of_nat P - 1) * (Z.of_nat P - 1))%Z by nia.
  assert (Z.abs c * Z.abs (x - y) <= Z.abs c * (Z.of_nat P - 1))%Z by (apply Z.mul_le_mono_nonneg_l; lia). lia.
Qed.

Section Literal.
Variable f : format.
Hypothesis Hf : (0 < precision f)%Z.
Hypothesis Hmax : (precision f < emax f)%Z.

(** v . r_delta as a machine may compute it: the squares first, then the products with v, each time in some order. *)
Definition runs_dot_product (e : Z) (center delta : list Z) (y : float f) : Prop :=
  exists squares square t,
    products_added squares /\ Permutation (terms squares) (square_products delta) /\ runs f Hf Hmax squares square /\
    products_added t /\ Permutation (terms t) (score_products e center delta (B2R square)) /\ runs f Hf Hmax t y.

Theorem dot_product_is_a_score e center delta y :
  (lowest f <= e)%Z -> length center = length delta -> (reach center delta <= 2 ^ precision f)%Z ->
  runs_dot_product e center delta y ->
  exists t, score_tree e t /\ absolute t <= power (precision f + e)
    /\ exact t = - power e * norm2_n (sub_n (map IZR delta) (map IZR center)) + power e * norm2_n (map IZR center)
    /\ runs f Hf Hmax t y.
Proof.
  intros He Hl Hreach (squares & square & t & Hs1 & Hs2 & Hs3 & Ht1 & Ht2 & Ht3).
  apply IZR_le in Hreach. change (2 ^ precision f)%Z with (Zpower radix2 (precision f)) in Hreach.
  rewrite IZR_Zpower in Hreach by lia.
  pose proof (squares_at_most_reach center delta Hl) as [H0 H1]. apply IZR_le in H1.
  destruct (square_products_sum delta) as (Esum & Eabs & _).
  assert (Hlow : (lowest f <= 0)%Z) by (unfold emax in Hmax; lia).
  assert (Hsquares : score_tree 0 squares).
  { apply products_are_scores; [assumption|]. intros q Hq. apply (Permutation_in _ Hs2), in_map_iff in Hq.
    destruct Hq as (d & <- & _). exists d, d. simpl. split; [ring|reflexivity]. }
  assert (Habs : absolute squares <= power (precision f + 0)).
  { rewrite absolute_terms, (sum_permutation _ _ _ Hs2), Eabs, Z.add_0_r. lra. }
  assert (Esquare : B2R square = IZR (squares_of delta)).
  { destruct (finite_runs f Hf Hmax squares square Hs3) as [_ Hc].
    - apply (scores_stay_finite f Hf 0); auto; [lia|now apply runs_leaves in Hs3].
    - rewrite (scores_without_rounding f Hf 0 Hlow squares _ Hc Hsquares Habs), exact_terms, (sum_permutation _ _ _ Hs2).
      exact Esum. }
  rewrite Esquare in Ht2. destruct (score_products_sum e center delta Hl) as [Eexact Eabsolute].
  exists t. repeat split; auto.
  - apply products_are_scores; [assumption|]. intros q Hq. apply (Permutation_in _ Ht2) in Hq.
    destruct Hq as [<-|Hq]; [exists (-1)%Z, (squares_of delta); simpl; split; [ring|reflexivity]|].
    apply in_map_iff in Hq. destruct Hq as ((c, d) & <- & _). exists (2 * c)%Z, d. split; [|reflexivity].
    cbn [fst]. rewrite mult_IZR. ring.
  - rewrite absolute_terms, (sum_permutation _ _ _ Ht2), Eabsolute, bpow_plus, Rmult_comm.
    apply Rmult_le_compat_r; [apply bpow_ge_0|assumption].
  - rewrite exact_terms, (sum_permutation _ _ _ Ht2). exact Eexact.
Qed.

(** The query is a pixel of the padded image, under the kernel's middle tap. *)
Lemma query_in_box g sizes i m :
  valid_n g -> is_output_n (axes g) sizes i -> In m (taps g) -> In (query_n (axes g) i) (box sizes).
Proof.
  intros Hvalid Hout Hm. apply reads_in_box; [assumption|assumption|]. apply in_box. unfold taps in Hm. apply in_box in Hm.
  unfold middle_n. clear - Hm. revert m Hm. induction (axes g) as [|a l IH]; intros m Hm; cbn [map]; [constructor|].
  inversion Hm as [|? y ? m' Hy Hm']; subst. constructor; [|now apply IH with m'].
  split; [lia|]. apply inj_lt. apply Nat.div_lt_upper_bound; lia.
Qed.

(** So the scores of a head that are computed as dot products are [runs_scores]. *)
Theorem literal_scores g sizes i m e (s : position -> float f) :
  valid_n g -> is_output_n (axes g) sizes i -> In m (taps g) -> (lowest f <= e)%Z ->
  (farthest sizes (center_n (axes g) m) <= 2 ^ precision f)%Z ->
  (forall k, In k (box sizes) ->
    runs_dot_product e (center_n (axes g) m) (difference k (query_n (axes g) i)) (s k)) ->
  runs_scores f Hf Hmax e (box sizes) (fun k => distance2 k (target_n g i m))
    (power e * norm2_n (map IZR (center_n (axes g) m))) s.
Proof.
  intros Hvalid Hout Hm He Hfar Hs k Hk. pose proof (query_in_box g sizes i m Hvalid Hout Hm) as Hq.
  destruct (length_output _ _ _ Hout) as [_ Hsizes].
  pose proof (length_in_box _ _ Hk) as Hlk. pose proof (length_in_box _ _ Hq) as Hlq.
  assert (Hlm : length m = length (axes g)) by (apply length_in_box in Hm; now rewrite map_length in Hm).
  pose proof (length_center_n (axes g) m Hlm) as Hlc.
  destruct (dot_product_is_a_score e (center_n (axes g) m) (difference k (query_n (axes g) i)) (s k))
    as (t & Ht & Habs & Hexact & Hrun); auto.
  - unfold difference, points. rewrite length_from; lia.
  - unfold difference, points. pose proof (reach_at_most sizes (center_n (axes g) m) k _ Hk Hq). lia.
  - exists t. repeat split; auto. rewrite Hexact, <- distance2_norm. unfold difference, points, target_n.
    now rewrite distance2_from by lia.
Qed.
End Literal.

(** ** The order of its sums, and that of a convolution, is one that [in_order] allows *)

(** One tree after the other. *)
Fixpoint added (l : list tree) : tree :=
  match l with [] => Leaf 0 | [t] => t | t :: rest => Plus t (added rest) end.

Lemma terms_added l : l <> [] -> terms (added l) = flat_map terms l.
Proof.
  induction l as [|t [|t' l] IH]; intros Hl; [congruence|simpl; now rewrite app_nil_r|].
  change (terms (added (t :: t' :: l))) with (terms t ++ terms (added (t' :: l))). rewrite IH by discriminate. reflexivity.
Qed.

Lemma all_added (Q : tree -> Prop) l :
  (forall t t', Q t -> Q t' -> Q (Plus t t')) -> l <> [] -> (forall t, In t l -> Q t) -> Q (added l).
Proof.
  intros HQ. induction l as [|t [|t' l] IH]; intros Hl H; [congruence|apply H; now left|].
  apply HQ; [apply H; now left|]. apply IH; [discriminate|]. intros s Hs. apply H. now right.
Qed.

Lemma flat_map_plus {A B} (h h' : A -> list B) l :
  Permutation (flat_map (fun a => h a ++ h' a) l) (flat_map h l ++ flat_map h' l).
Proof.
  induction l as [|a l IH]; simpl; [constructor|]. rewrite IH, <- !app_assoc. apply Permutation_app_head.
  rewrite !app_assoc. apply Permutation_app_tail. apply Permutation_app_comm.
Qed.

Lemma flat_map_swap {A B C} (h : A -> B -> list C) la lb :
  Permutation (flat_map (fun a => flat_map (h a) lb) la) (flat_map (fun b => flat_map (fun a => h a b) la) lb).
Proof.
  induction la as [|a la IH]; simpl.
  - induction lb as [|b lb IHb]; simpl; auto.
  - rewrite IH. symmetry. apply (flat_map_plus (h a) (fun b => flat_map (fun a => h a b) la)).
Qed.

Lemma flat_map_single {A B} (h : A -> B) l : flat_map (fun a => [h a]) l = map h l.
Proof. induction l as [|a l IH]; simpl; congruence. Qed.

Lemma flat_map_permutation {A B} (h h' : A -> list B) l :
  (forall a, Permutation (h a) (h' a)) -> Permutation (flat_map h l) (flat_map h' l).
Proof. intros H. induction l as [|a l IH]; simpl; [constructor|now apply Permutation_app]. Qed.

Lemma not_empty_map {A B} (h : A -> B) l : l <> [] -> map h l <> [].
Proof. destruct l; [congruence|discriminate]. Qed.

Section Order.
Variables (g : geometry_n) (W : kernel_n) (b : vector) (X : position -> vector) (sizes : list nat) (o : nat).
Local Notation channel_of c := (o / outputs g * inputs g + c)%nat.
Hypothesis Hinputs : (0 < inputs g)%nat.
Hypothesis Htaps : taps g <> [].
Hypothesis Hkeys : box sizes <> [].

(** The value of key k for tap m: weights times a pixel's channels. *)
Definition value_tree (m k : position) : tree :=
  added (map (fun c => Scale (W o c m) (Leaf (X k (channel_of c)))) (seq 0 (inputs g))).

(** Values times probabilities, over all heads and keys, and the bias. *)
Definition literal_tree (p : position -> position -> R) : tree :=
  Plus (added (flat_map (fun m => map (fun k => Scale (p m k) (value_tree m k)) (box sizes)) (taps g))) (Leaf (b o)).

Lemma channels_exist : seq 0 (inputs g) <> [].
Proof. destruct (inputs g); [lia|discriminate]. Qed.

Lemma value_terms m k : terms (value_tree m k) = map (fun c => (W o c m, X k (channel_of c))) (seq 0 (inputs g)).
Proof.
  unfold value_tree. rewrite terms_added by apply not_empty_map, channels_exist.
  rewrite flat_map_concat_map, map_map, <- flat_map_concat_map. simpl.
  rewrite flat_map_single. apply map_ext. intros c. now rewrite Rmult_1_r.
Qed.

Lemma value_in_order m k : single (value_tree m k) /\ in_order g W X sizes o (value_tree m k).
Proof.
  pose proof channels_exist as Hc. unfold value_tree. split.
  - apply (all_added single); [now split|now apply not_empty_map|].
    intros t Ht. apply in_map_iff in Ht. destruct Ht as (c & <- & _). simpl. destruct (_ || _)%bool; exact I.
  - apply (all_added (in_order g W X sizes o)); [intros; now apply Order_sum|now apply not_empty_map|].
    intros t Ht. apply in_map_iff in Ht. destruct Ht as (c & <- & _). constructor. exact I.
Qed.

Lemma live_terms_permutation l : Permutation (live_terms l ++ filter (fun q => is_zero (value q)) l) l.
Proof.
  unfold live_terms. induction l as [|q l IH]; simpl; [constructor|]. destruct (is_zero (value q)); simpl.
  - rewrite <- Permutation_middle. now constructor.
  - now constructor.
Qed.

Theorem literal_order p :
  (forall m k, In m (taps g) -> In k (box sizes) -> p m k = 0 \/ p m k = 1) ->
  single (literal_tree p) /\ in_order g W X sizes o (literal_tree p)
  /\ Permutation (terms (literal_tree p)) (attention_terms g W b X sizes o p).
Proof.
  intros Hp. set (heads := flat_map (fun m => map (fun k => Scale (p m k) (value_tree m k)) (box sizes)) (taps g)).
  assert (Hheads : heads <> []).
  { unfold heads. destruct (taps g), (box sizes); try congruence. discriminate. }
  assert (Hin : forall t, In t heads -> exists m k, In m (taps g) /\ In k (box sizes) /\ t = Scale (p m k) (value_tree m k)).
  { intros t Ht. apply in_flat_map in Ht. destruct Ht as (m & Hm & Ht). apply in_map_iff in Ht.
    destruct Ht as (k & <- & Hk). eauto. }
  split; [|split].
  - split; [|exact I]. apply (all_added single); [now split|assumption|]. intros t Ht.
    destruct (Hin t Ht) as (m & k & Hm & Hk & ->). simpl. destruct (value_in_order m k) as [Hs _]. unfold is_zero, is_one.
    destruct (Hp m k Hm Hk) as [-> | ->]; [destruct (Req_EM_T 0 0)|destruct (Req_EM_T 1 0); [|destruct (Req_EM_T 1 1)]];
      simpl; congruence || assumption.
  - apply Order_sum; [|constructor]. apply (all_added (in_order g W X sizes o)); [intros; now apply Order_sum|assumption|].
    intros t Ht. destruct (Hin t Ht) as (m & k & Hm & Hk & ->). destruct (value_in_order m k) as [_ Ho].
    apply Order_weighed with m k; auto. exists (filter (fun q => is_zero (value q)) (terms (value_tree m k))).
    rewrite live_terms_permutation. now rewrite value_terms.
  - unfold literal_tree. fold heads. cbn [terms]. rewrite Permutation_app_comm. cbn [app]. unfold attention_terms.
    constructor. rewrite terms_added by assumption.
    rewrite (flat_map_swap (fun c m => map (fun k => (p m k * W o c m, X k (channel_of c))) (box sizes))).
    unfold heads. clear - Hinputs. induction (taps g) as [|m l IH]; [constructor|]. simpl. rewrite flat_map_app.
    apply Permutation_app; [|exact IH].
    transitivity (flat_map (fun k => flat_map (fun c => [(p m k * W o c m, X k (channel_of c))]) (seq 0 (inputs g)))
      (box sizes)).
    + rewrite flat_map_concat_map, map_map, <- flat_map_concat_map. apply flat_map_permutation. intros k.
      cbn [terms]. now rewrite value_terms, map_map, flat_map_single.
    + rewrite flat_map_swap. apply flat_map_permutation. intros c. now rewrite flat_map_single.
Qed.

(** Values that are pixels, read by probabilities before weights multiply them, as one scaled dot product does it. *)
Definition read_tree (p : position -> position -> R) (m : position) (c : nat) : tree :=
  added (map (fun k => Scale (p m k) (Leaf (X k (channel_of c)))) (box sizes)).

Definition reading_tree (p : position -> position -> R) : tree :=
  Plus (added (flat_map (fun c => map (fun m => Scale (W o c m) (read_tree p m c)) (taps g)) (seq 0 (inputs g))))
    (Leaf (b o)).

Lemma read_picks (t : position) (w : position -> R) (x : position -> R) keys :
  NoDup keys -> keys <> [] -> (forall k, In k keys -> w k = is_target t k) ->
  let l := map (fun k => Scale (w k) (Leaf (x k))) keys in
  plain (added l) /\ picks (added l) /\ (~ In t keys -> null (added l) = true).
Proof.
  cbv zeta. induction keys as [|k [|k' keys] IH]; intros Hd Hne Hw; [congruence| |].
  - cbn [map added plain picks null]. rewrite (Hw k) by now left. unfold is_target.
    destruct (position_eq_dec k t) as [->|Hk]; repeat split; auto.
    + intros H. exfalso. apply H. now left.
    + intros _. unfold is_zero. destruct (Req_EM_T 0 0); [reflexivity|congruence].
  - change (added (map (fun k => Scale (w k) (Leaf (x k))) (k :: k' :: keys)))
      with (Plus (Scale (w k) (Leaf (x k))) (added (map (fun k => Scale (w k) (Leaf (x k))) (k' :: keys)))).
    inversion_clear Hd as [|? ? Hk Hd']. destruct IH as (IH1 & IH2 & IH3); auto; [discriminate|intros; apply Hw; now right|].
    assert (H0 : is_zero 0 = true) by (unfold is_zero; destruct (Req_EM_T 0 0); [reflexivity|congruence]).
    cbn [plain picks null]. rewrite (Hw k) by now left. unfold is_target.
    destruct (position_eq_dec k t) as [->|Hkt]; repeat split; auto.
    + intros H. exfalso. apply H. now left.
    + left. now rewrite H0.
    + intros H. rewrite H0. apply IH3. intros H'. apply H. now right.
Qed.

Theorem reading_order i p :
  one_hot_at g sizes i p ->
  single (reading_tree p) /\ in_order g W X sizes o (reading_tree p)
  /\ Permutation (terms (reading_tree p)) (attention_terms g W b X sizes o p).
Proof.
  intros Hp. set (sums := flat_map (fun c => map (fun m => Scale (W o c m) (read_tree p m c)) (taps g)) (seq 0 (inputs g))).
  assert (Hsums : sums <> []).
  { unfold sums. pose proof channels_exist. destruct (seq 0 (inputs g)), (taps g); try congruence. discriminate. }
  assert (Hin : forall t, In t sums -> exists c m, In m (taps g) /\ t = Scale (W o c m) (read_tree p m c)).
  { intros t Ht. apply in_flat_map in Ht. destruct Ht as (c & _ & Ht). apply in_map_iff in Ht.
    destruct Ht as (m & <- & Hm). eauto. }
  assert (Hread : forall c m, In m (taps g) -> plain (read_tree p m c) /\ picks (read_tree p m c)).
  { intros c m Hm. destruct (read_picks (target_n g i m) (p m) (fun k => X k (channel_of c)) (box sizes)) as (H1 & H2 & _);
      auto using box_distinct. }
  split; [|split].
  - split; [|exact I]. apply (all_added single); [now split|assumption|]. intros t Ht.
    destruct (Hin t Ht) as (c & m & Hm & ->). simpl. destruct (Hread c m Hm) as [H _].
    destruct (_ || _)%bool; [|assumption]. clear - H. induction (read_tree p m c); simpl in *; auto.
    + destruct H. destruct (_ || _)%bool; auto.
    + destruct H; auto.
  - apply Order_sum; [|constructor]. apply (all_added (in_order g W X sizes o)); [intros; now apply Order_sum|assumption|].
    intros t Ht. destruct (Hin t Ht) as (c & m & Hm & ->). apply Order_read. now apply Hread.
  - unfold reading_tree. fold sums. cbn [terms]. rewrite Permutation_app_comm. cbn [app]. unfold attention_terms.
    constructor. rewrite terms_added by assumption. unfold sums. clear - Hkeys.
    induction (seq 0 (inputs g)) as [|c l IH]; [constructor|]. simpl. rewrite flat_map_app.
    apply Permutation_app; [|exact IH]. rewrite flat_map_concat_map, map_map, <- flat_map_concat_map.
    apply flat_map_permutation. intros m. cbn [terms]. unfold read_tree.
    rewrite terms_added by now apply not_empty_map.
    rewrite flat_map_concat_map, map_map, <- flat_map_concat_map. cbn [terms map fst snd]. rewrite flat_map_single, map_map.
    rewrite (map_ext _ (fun k => (p m k * W o c m, X k (channel_of c)))); [reflexivity|].
    intros k. cbn [fst snd]. f_equal. ring.
Qed.

(** The convolution. *)
Definition conv_tree (i : position) : tree :=
  Plus (added (flat_map (fun c => map (fun m => Scale (W o c m) (Leaf (X (reads (axes g) i m) (channel_of c)))) (taps g))
    (seq 0 (inputs g)))) (Leaf (b o)).

Theorem convolution_order i :
  single (conv_tree i) /\ in_order g W X sizes o (conv_tree i)
  /\ Permutation (terms (conv_tree i)) (conv_terms g W b X i o).
Proof.
  unfold conv_tree. set (products := flat_map _ (seq 0 (inputs g))).
  assert (Hproducts : products <> []).
  { unfold products. pose proof channels_exist. destruct (seq 0 (inputs g)), (taps g); try congruence. discriminate. }
  assert (Hin : forall t, In t products -> exists a x, t = Scale a (Leaf x)).
  { intros t Ht. apply in_flat_map in Ht. destruct Ht as (c & _ & Ht). apply in_map_iff in Ht.
    destruct Ht as (m & <- & Hm). eauto. }
  split; [|split].
  - split; [|exact I]. apply (all_added single); [now split|assumption|]. intros t Ht.
    destruct (Hin t Ht) as (a & x & ->). simpl. destruct (_ || _)%bool; exact I.
  - apply Order_sum; [|constructor]. apply (all_added (in_order g W X sizes o)); [intros; now apply Order_sum|assumption|].
    intros t Ht. destruct (Hin t Ht) as (a & x & ->). apply Order_read. exact I.
  - cbn [terms]. rewrite Permutation_app_comm. cbn [app]. unfold conv_terms.
    constructor. rewrite terms_added by assumption. unfold products. clear.
    induction (seq 0 (inputs g)) as [|c l IH]; [constructor|]. simpl. rewrite flat_map_app.
    apply Permutation_app; [|exact IH]. rewrite flat_map_concat_map, map_map, <- flat_map_concat_map. cbn [terms map fst snd].
    rewrite flat_map_single. rewrite (map_ext _ (fun m => (W o c m, X (reads (axes g) i m) (channel_of c)))); [reflexivity|].
    intros m. now rewrite Rmult_1_r.
Qed.
End Order.
