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

# Shared by the readers of files: of their bytes, and, with what takes longer, of programs and graphs in them.
_BYTES = (
    "convert/files/readers/test_limits",
    "convert/files/readers/test_protobuf",
    "convert/files/readers/test_safetensors",
    "convert/files/readers/test_stored",
    "convert/files/test_checkpoint",
    "hostile/test_hostile",
    "hostile/test_two_meanings",
)
_READING = (
    *_BYTES,
    "convert/files/test_exported",
    "convert/files/test_folder",
    "convert/files/test_onnx_graphs",
    "convert/files/test_onnx_tensors",
    "convert/files/test_open_network",
    "convert/files/test_quantised",
    "convert/files/test_shared",
    "fuzz/test_corpus",
    "hostile/test_truncation",
)

_READERS_OF_BYTES = (
    "archive",
    "common/limits",
    "common/stored",
    "onnx/protobuf",
    "safetensors",
    "sniff",
)
_READERS = (
    "__init__",
    *(f"common/{name}" for name in ("beside", "geometry", "made", "quantised")),
    "exported",
    "graph",
    "modules",
    *(
        f"onnx/{name}"
        for name in ("constants", "convolutions", "folding", "geometry", "listed", "model", "naming", "nodes")
    ),
    *(f"onnx/{name}" for name in ("scales", "scopes", "tensors")),
    "pickle_machine",
    "pickled",
    "quantised_program",
    "rebuilt",
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
    **{f"convert/files/readers/{name}.py": _BYTES for name in _READERS_OF_BYTES},
    **{f"convert/files/readers/{name}.py": _READING for name in _READERS},
}
