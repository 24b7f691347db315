"""Where else a claim is treated: the file that derives it, its theorems in Coq, the tests that hold it to the code.

A theorem is named MODULE.NAME, for ``proofs/formal/MODULE.v``; a test FILE.NAME, for ``tests/FILE.py``. The functions
that rely on a claim stand in the claim itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class References:
    """Where else a claim is treated.

    Attributes:
        proof: Path of the module in ``proofs/claims`` that derives it and has sympy check it.
        tests: Tests that hold it, or what it says of the code, at random points.
        formal: Theorems of ``proofs/formal``; empty if Coq has not been asked.
    """

    proof: str
    tests: tuple[str, ...]
    formal: tuple[str, ...] = ()

    @property
    def listed(self) -> dict[str, tuple[str, ...]]:
        """The files, and what to look for in them, by heading."""
        return {
            "Derived in": (f"proofs/claims/{self.proof}.py",),
            "In Coq": tuple(_placed(name, "proofs/formal/{}.v: {}") for name in self.formal),
            "Tests": tuple(_placed(name, "tests/{}.py::{}") for name in self.tests),
        }


def _placed(name: str, form: str) -> str:
    return form.format(*name.split("."))


def _erratum(proof: str) -> References:
    return References(proof, ("test_claims_errata.test_the_printed_formula_fails_and_the_corrected_one_holds",))


REFERENCES = {
    "encoding-identity": References(
        "theorem/encoding",
        (
            "test_claims_encoding.test_the_proved_expressions_are_what_the_layer_computes",
            "test_encoding.test_the_score_is_minus_alpha_times_the_squared_distance_up_to_a_constant",
        ),
        ("Encoding.encoding_identity",),
    ),
    "softmax-shift": References(
        "theorem/encoding", ("test_claims_encoding.test_the_true_claims_are_proved",), ("Softmax.softmax_shift",)
    ),
    "encoding-draft": References(
        "theorem/encoding",
        ("test_claims_encoding.test_the_drafts_scores_are_the_layers_up_to_a_constant_for_each_head",),
    ),
    "gaussian-encoding": References(
        "other_encodings/gaussian", ("test_claims_gaussian.test_ten_and_five_components_give_the_same_attention",)
    ),
    "gaussian-maximum": References(
        "other_encodings/gaussian", ("test_claims_gaussian.test_a_semi_definite_matrix_has_ties",)
    ),
    "gaussian-reduction": References(
        "other_encodings/gaussian_reduction",
        ("test_claims_gaussian.test_ten_and_five_components_give_the_same_attention",),
    ),
    "gaussian-isotropic": References(
        "other_encodings/gaussian_reduction",
        ("test_claims_gaussian.test_the_isotropic_gaussian_has_the_layers_head_vector",),
    ),
    "decomposition-absolute": References(
        "theorem/decomposition", ("test_claims_decomposition.test_the_true_claims_are_proved",)
    ),
    "decomposition-relative": References(
        "theorem/decomposition", ("test_claims_decomposition.test_the_content_terms_compute_the_proved_expressions",)
    ),
    "position-alone": References(
        "theorem/position_alone", ("test_claims_decomposition.test_the_minimal_sets_turn_the_layers_content_off",)
    ),
    "one-hot-threshold": References(
        "computing/floating_point",
        (
            "test_claims_floating_point.test_softmax_is_not_one_hot_below_the_threshold",
            "test_regime.test_the_threshold_is_the_first_integer_whose_exponential_rounds_to_zero",
        ),
    ),
    "exact-defaults": References(
        "computing/floating_point", ("test_claims_floating_point.test_softmax_is_one_hot_at_the_default",)
    ),
    "exact-scores": References(
        "computing/exact_scores",
        ("test_claims_floating_point.test_scores_on_the_largest_grid_are_exact_in_single_precision",),
    ),
    "any-dimension": References(
        "theorem/any_dimensions",
        ("test_claims_dimensions.test_the_codes_encoding_and_head_vector_are_the_proved_ones",),
        ("Encoding.encoding_identity_n", "Encoding.unique_maximum_n"),
    ),
    "dimension-assembly": References(
        "theorem/any_dimensions_assembly",
        ("test_claims_dimensions.test_the_codes_centres_and_queries_are_those_of_the_assembly",),
    ),
    "absolute-positions": References(
        "theorem/absolute", ("test_claims_dimensions.test_absolute_logits_are_the_layers_up_to_the_querys_constant",)
    ),
    "unique-maximum": References(
        "theorem/one_hot",
        (
            "test_claims_tail.test_the_score_of_the_code_loses_the_squared_distance",
            "test_encoding.test_the_center_wins_by_a_gap_of_at_least_alpha",
        ),
        ("Encoding.unique_maximum",),
    ),
    "one-hot-limit": References(
        "theorem/one_hot",
        ("test_regime.test_from_the_threshold_on_softmax_is_exactly_one_hot",),
        ("Softmax.softmax_tail",),
    ),
    "tail-bound": References(
        "certificate/tail",
        (
            "test_claims_tail.test_the_tail_of_the_code_is_the_tail_of_the_proof",
            "test_formal_bridge.test_the_tail_of_the_code_lies_on_the_formal_one",
        ),
        ("Theta.tau_bounds", "Grid.grid_tail", "Grid.grid_tail_simple", "Enclosure.tau_enclosed"),
    ),
    "head-assembly": References(
        "theorem/assembly",
        (
            "test_claims_assembly.test_the_polynomial_of_the_proof_takes_the_values_of_the_code",
            "test_equivalence.test_integers_give_bitwise_equal_outputs_and_gradients",
        ),
        ("Theorem1.theorem_1_limit", "Theorem1.theorem_1_exists"),
    ),
    "separable-softmax": References(
        "computing/separability",
        ("test_claims_factorisation.test_the_probabilities_of_the_code_are_those_of_the_proof",),
        ("Factorisation.separable_softmax",),
    ),
    "smoothing-factorisation": References(
        "computing/factorisation",
        (
            "test_claims_factorisation.test_both_sides_of_the_proof_are_both_engines_of_the_code",
            "test_equivalence.test_soft_engines_agree_with_the_literal_one_in_double_precision",
            "test_formal_bridge.test_the_layer_computes_the_numbers_of_the_formal_example",
        ),
        ("Factorisation.smoothing_factorisation",),
    ),
    "error-bound": References(
        "certificate/error_bound",
        (
            "test_claims_factorisation.test_the_error_is_within_the_bound_in_exact_arithmetic",
            "test_equivalence.test_soft_attention_differs_by_at_most_the_certificate",
            "test_formal_bridge.test_the_certificate_of_one_tap_is_at_least_the_bound_that_coq_proves",
        ),
        ("Softmax.softmax_read", "Theorem1.theorem_1_per_head", "Theorem1.theorem_1"),
    ),
    "sinusoidal-maximum": References(
        "other_encodings/sinusoidal",
        ("test_claims_sinusoidal.test_a_frequency_may_serve_the_middle_of_a_grid_and_not_its_corner",),
    ),
    "sinusoidal-alpha": References(
        "other_encodings/sinusoidal_alpha",
        ("test_claims_sinusoidal.test_the_alpha_of_sinusoids_lies_between_its_two_bounds",),
    ),
    "learned-encodings": References(
        "other_encodings/learned",
        ("test_claims_sinusoidal.test_learned_tables_need_a_strict_maximum_only_where_offsets_occur",),
    ),
    "two-dimensions-suffice": References(
        "sharper/encoding_dimension",
        ("test_claims_sharper.test_two_dimensions_give_the_heads_of_the_code",),
        (
            "Dimension.encoding_identity_2",
            "Dimension.unique_maximum_2",
            "Dimension.tau_line_bound",
            "Dimension.theorem_1_with_two_dimensions",
        ),
    ),
    "one-dimension-two-targets": References(
        "sharper/one_dimension",
        ("test_claims_sharper.test_a_false_variant_is_rejected",),
        ("Dimension.one_dimension_has_two_targets", "Dimension.one_dimension_does_not"),
    ),
    "one-dimension-in-the-limit": References(
        "sharper/mixed_taps", ("test_claims_sharper.test_nine_heads_with_one_dimension_come_near_a_convolution",)
    ),
    "head-dimension": References(
        "sharper/head_dimension", ("test_claims_sharper.test_split_values_have_the_smallest_head_dimension",)
    ),
    "head-count": References(
        "sharper/head_count",
        ("test_claims_sharper.test_heads_that_mix_taps_compute_the_same_convolution",),
        ("PositionOnly.eight_position_only_heads_are_too_few",),
    ),
    "head-count-exact": References(
        "sharper/exact_heads",
        ("test_claims_sharper.test_softmax_of_finite_scores_equals_a_convolution_with_one_head_more",),
    ),
    "smoothed-kernel": References(
        "certificate/smoothed_kernel",
        (
            "test_tightness.test_no_input_exceeds_the_tail_at_any_pixel_in_exact_arithmetic",
            "test_tightness.test_the_worst_case_reaches_a_third_of_the_tail",
            "test_formal_bridge.test_the_certificate_of_several_taps_is_at_least_a_proved_bound_for_each_channel",
        ),
    ),
    "rounded-sum": References(
        "certificate/rounding",
        (
            "test_claims_rounding.test_the_gamma_of_the_code_is_that_of_the_proof",
            "test_claims_rounding.test_the_rounding_of_the_proof_is_that_of_binary64",
        ),
    ),
    "underflow-errors": References(
        "certificate/underflow",
        (
            "test_extremes.test_numbers_of_any_size_stay_within_the_bound_in_exact_arithmetic",
            "test_extremes.test_subnormal_weights_of_huge_inputs_stay_within_the_bound",
        ),
    ),
    **{
        name: References(proof, ("test_certificate.test_each_part_bounds_what_it_says_in_exact_arithmetic",))
        for name, proof in (
            ("softmax-rounding", "rounding"),
            ("score-rounding", "rounding"),
        )
    },
    "key-accumulation": References(
        "certificate/accumulation",
        (
            "test_rounding.test_no_more_keys_weigh_something_than_are_counted",
            "test_rounding.test_attention_with_too_many_keys_to_add_up_has_no_bound",
        ),
    ),
    "error-propagation": References(
        "certificate/propagation", ("test_propagation.test_a_network_stays_within_its_bound",)
    ),
    "propagation-rules": References(
        "certificate/propagation_rules", ("test_propagation_rules.test_an_operation_stays_within_its_bounds",)
    ),
    "activation-slopes": References(
        "certificate/propagation", ("test_claims_rounding.test_the_slopes_of_the_code_are_those_of_the_proof",)
    ),
    "zero-taps": References("sharper/zero_taps", ("test_claims_sharper.test_a_false_variant_is_rejected",)),
    **{f"errata-{name}": _erratum("errata/convolution") for name in ("index-set", "even-kernels", "border")},
    **{f"errata-{name}": _erratum("errata/layer") for name in ("parameter-names", "shapes", "bias")},
    **{f"errata-{name}": _erratum("errata/positions") for name in ("relative", "zeroed-parameters")},
    **{f"errata-{name}": _erratum("errata/gaussian") for name in ("row-vectors", "isotropic-constants")},
    **{f"errata-{name}": _erratum("errata/theorem") for name in ("limit", "equivariance")},
}
