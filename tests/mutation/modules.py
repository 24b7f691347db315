"""What is mutated, and the tests that should notice."""

from __future__ import annotations

LAYERS = 6  # random layers of a campaign that what computes is tried on

# Shared by everything that computes; the slowest come last.
_COMPUTING = ("test_attention", "test_separable", "test_content", "test_equivalence")

# Shared by the readers of files.
_READING = (
    "test_checkpoint",
    "hostile/test_hostile",
    "test_open_network",
    "fuzz/test_corpus",
    "hostile/test_truncation",
)

TESTS: dict[str, tuple[str, ...]] = {
    "convert/spec.py": ("test_spec", "test_construction", "test_plan", "test_regime", *_COMPUTING),
    "convert/heads/encoding.py": ("test_encoding", "test_regime", "test_certificate", *_COMPUTING),
    "convert/attention/construction.py": ("test_construction", "test_restore", "test_model"),
    "convert/certificate/layer.py": ("test_certificate", "test_construction", "test_equivalence"),
    "convert/bounds/tail.py": (
        "test_tail",
        "test_certificate",
        "test_claims_tail",
        "test_formal_bridge",
        "test_tightness",
    ),
    "convert/bounds/rounding.py": (
        "test_rounding",
        "test_extremes",
        "test_certificate",
        "test_claims_rounding",
        "test_equivalence",
    ),
    "convert/bounds/subnormal.py": ("test_extremes",),
    "convert/certificate/tolerance.py": ("test_tolerance", "test_certificate"),
    "convert/certificate/data.py": ("test_certificate", "test_extremes", "test_arguments"),
    "convert/certificate/propagation/certificate.py": ("test_propagation", "test_followed", "test_wording"),
    "convert/engines/__init__.py": ("test_attention", "test_plan", "test_separable"),
    "convert/engines/base.py": ("test_costs", "test_attention", "test_plan", *_COMPUTING),
    "convert/engines/axes.py": ("test_costs", "test_passes", *_COMPUTING),
    "convert/engines/passes.py": ("test_costs", "test_passes", *_COMPUTING),
    "convert/engines/stencil.py": ("test_costs", "test_passes", *_COMPUTING),
    "convert/engines/convolution.py": ("test_convolution", "test_equivalence"),
    "convert/engines/literal.py": ("test_encoding", "test_plan", *_COMPUTING),
    "convert/engines/sdpa.py": ("test_plan", *_COMPUTING),
    "convert/engines/factored.py": ("test_costs", "test_plan", "test_passes", *_COMPUTING),
    "convert/engines/separable.py": ("test_costs", "test_plan", "test_passes", *_COMPUTING),
    "convert/files/readers/__init__.py": _READING,
    "convert/files/readers/archive.py": _READING,
    "convert/files/readers/common/beside.py": (*_READING, "test_folder"),
    "convert/files/readers/exported.py": ("test_exported", *_READING),
    "convert/files/readers/common/geometry.py": (*_READING, "test_exported"),
    "convert/files/readers/graph.py": ("test_exported", *_READING),
    "convert/files/readers/common/limits.py": (*_READING, "hostile/test_memory"),
    "convert/files/readers/modules.py": _READING,
    "convert/files/readers/onnx.py": _READING,
    "convert/files/readers/pickle_machine.py": _READING,
    "convert/files/readers/pickled.py": _READING,
    "convert/files/readers/protobuf.py": _READING,
    "convert/files/readers/safetensors.py": (*_READING, "test_folder"),
    "convert/files/readers/sniff.py": _READING,
    "convert/files/readers/common/stored.py": (*_READING, "test_shared"),
}
