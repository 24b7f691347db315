"""What is mutated, and the tests that should notice."""

from __future__ import annotations

LAYERS = 6  # random layers of a campaign that what computes is tried on

# Shared by everything that computes; the slowest come last.
_COMPUTING = (
    "convert/attention/test_attention",
    "convert/engines/test_separable",
    "convert/heads/test_content",
    "convert/engines/test_equivalence",
)

# Shared by the readers of files.
_READING = (
    "convert/files/test_checkpoint",
    "hostile/test_hostile",
    "convert/files/test_open_network",
    "fuzz/test_corpus",
    "hostile/test_truncation",
)

TESTS: dict[str, tuple[str, ...]] = {
    "convert/spec.py": (
        "convert/test_spec",
        "convert/attention/test_construction",
        "convert/model/test_plan",
        "convert/heads/test_regime",
        *_COMPUTING,
    ),
    "convert/heads/encoding.py": (
        "convert/heads/test_encoding",
        "convert/heads/test_regime",
        "convert/certificate/test_certificate",
        *_COMPUTING,
    ),
    "convert/attention/construction.py": (
        "convert/attention/test_construction",
        "convert/files/test_restore",
        "convert/model/test_model",
    ),
    "convert/certificate/layer.py": (
        "convert/certificate/test_certificate",
        "convert/bounds/test_extremes",
        "convert/attention/test_construction",
        "convert/engines/test_equivalence",
    ),
    "convert/bounds/tail.py": (
        "convert/bounds/test_tail",
        "convert/certificate/test_certificate",
        "proofs/claims/test_tail",
        "proofs/formal/test_formal_bridge",
        "convert/certificate/test_tightness",
    ),
    "convert/bounds/rounding.py": (
        "convert/bounds/test_rounding",
        "convert/bounds/test_extremes",
        "convert/certificate/test_certificate",
        "proofs/claims/test_rounding",
        "convert/engines/test_equivalence",
    ),
    "convert/bounds/subnormal.py": ("convert/bounds/test_extremes",),
    "convert/certificate/tolerance.py": ("convert/certificate/test_tolerance", "convert/certificate/test_certificate"),
    "convert/certificate/data.py": (
        "convert/certificate/test_certificate",
        "convert/bounds/test_extremes",
        "convert/test_arguments",
    ),
    "convert/certificate/propagation/certificate.py": (
        "convert/certificate/test_propagation",
        "convert/certificate/test_followed",
        "convert/certificate/test_wording",
    ),
    "convert/engines/__init__.py": (
        "convert/attention/test_attention",
        "convert/model/test_plan",
        "convert/engines/test_separable",
    ),
    "convert/engines/base.py": (
        "convert/engines/test_costs",
        "convert/attention/test_attention",
        "convert/model/test_plan",
        *_COMPUTING,
    ),
    "convert/engines/axes.py": ("convert/engines/test_costs", "convert/engines/test_passes", *_COMPUTING),
    "convert/engines/passes.py": ("convert/engines/test_costs", "convert/engines/test_passes", *_COMPUTING),
    "convert/engines/stencil.py": ("convert/engines/test_costs", "convert/engines/test_passes", *_COMPUTING),
    "convert/engines/convolution.py": ("convert/engines/test_convolution", "convert/engines/test_equivalence"),
    "convert/engines/literal.py": ("convert/heads/test_encoding", "convert/model/test_plan", *_COMPUTING),
    "convert/engines/sdpa.py": ("convert/model/test_plan", *_COMPUTING),
    "convert/engines/factored.py": (
        "convert/engines/test_costs",
        "convert/model/test_plan",
        "convert/engines/test_passes",
        *_COMPUTING,
    ),
    "convert/engines/separable.py": (
        "convert/engines/test_costs",
        "convert/model/test_plan",
        "convert/engines/test_passes",
        *_COMPUTING,
    ),
    "convert/files/readers/__init__.py": _READING,
    "convert/files/readers/archive.py": _READING,
    "convert/files/readers/common/beside.py": (*_READING, "convert/files/test_folder"),
    "convert/files/readers/exported.py": ("convert/files/test_exported", *_READING),
    "convert/files/readers/common/geometry.py": (*_READING, "convert/files/test_exported"),
    "convert/files/readers/graph.py": ("convert/files/test_exported", *_READING),
    "convert/files/readers/common/limits.py": (*_READING, "hostile/test_memory"),
    "convert/files/readers/modules.py": _READING,
    "convert/files/readers/onnx.py": _READING,
    "convert/files/readers/pickle_machine.py": _READING,
    "convert/files/readers/pickled.py": _READING,
    "convert/files/readers/protobuf.py": _READING,
    "convert/files/readers/safetensors.py": (*_READING, "convert/files/test_folder"),
    "convert/files/readers/sniff.py": _READING,
    "convert/files/readers/common/stored.py": (*_READING, "convert/files/test_shared"),
}
