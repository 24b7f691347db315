"""What is mutated, and the tests that should notice: a room of modules has the same ones, which are imported once."""

from __future__ import annotations

LAYERS = 6  # random layers of a campaign that what computes is tried on

COMPUTING = (
    "convert/attention/test_attention",
    "convert/attention/test_axes",
    "convert/attention/test_construction",
    "convert/engines/test_content",
    "convert/engines/test_convolution",
    "convert/engines/test_costs",
    "convert/engines/test_equivalence",
    "convert/engines/test_passes",
    "convert/engines/test_separable",
    "convert/engines/sums/test_head_sum",
    "convert/engines/sums/test_mixing",
    "convert/heads/test_content",
    "convert/heads/test_encoding",
    "convert/heads/test_gate",
    "convert/heads/test_regime",
    "convert/model/test_plan",
    "convert/test_spec",
)
_SCORING = (
    "convert/attention/test_attention",
    "convert/engines/test_costs",
    "convert/engines/test_literal",
    "convert/engines/test_sdpa",
)
_CHOOSING = ("convert/engines/test_base", "convert/engines/test_costs")
_CONVOLVING = (
    "convert/engines/test_convolution",
    "convert/engines/test_faulty_calls",
    "convert/engines/test_transposed",
)
_PASSING = (
    "convert/engines/test_axes",
    "convert/engines/test_content",
    "convert/engines/test_costs",
    "convert/engines/test_factored",
    "convert/engines/test_joint",
    "convert/engines/test_passes",
    "convert/engines/test_separable",
    "convert/engines/test_stencil",
)
_SUMMING = ("convert/engines/sums/test_head_sum", "convert/engines/sums/test_mixing")
_READING = ("convert/engines/test_content", "convert/heads/test_content", "convert/heads/test_gate")
_CERTIFYING = (
    "convert/attention/test_construction",
    "convert/bounds/test_extremes",
    "convert/bounds/test_rounding",
    "convert/bounds/test_tail",
    "convert/certificate/test_certificate",
    "convert/certificate/test_tightness",
    "convert/engines/test_equivalence",
    "convert/test_arguments",
    "proofs/claims/test_rounding",
    "proofs/claims/test_tail",
)
_CONSTRUCTING = (
    "convert/attention/test_attention",
    "convert/attention/test_axes",
    "convert/attention/test_computed",
    "convert/attention/test_construction",
    "convert/attention/test_readers",
    "convert/attention/test_weights",
)
_FAR = ("convert/certificate/test_distance",)
_SEARCHING = ("convert/certificate/test_tolerance",)
_SMALL = ("convert/bounds/test_extremes",)
_TAILS = ("convert/bounds/test_tail",)
_ROUNDINGS = ("convert/bounds/test_rounding", "convert/bounds/test_transposed_rounding")
_RULES = ("convert/certificate/network/test_rules", "convert/certificate/network/test_roundings")
_IMAGES = ("convert/certificate/network/test_images",)
_NETWORK = ("convert/certificate/network/test_certificate", "convert/certificate/network/test_program")
_COMPARING = ("convert/certificate/test_comparison",)
_REFERENCE = ("convert/certificate/test_reference",)
_FOLLOWING = (
    "convert/certificate/test_comparison",
    "convert/certificate/network/test_interval",
    "convert/certificate/test_wording",
)
_PICKLES = (
    "convert/files/readers/test_archive",
    "convert/files/readers/test_pickle_machine",
    "convert/files/readers/test_pickled",
    "convert/files/readers/test_rebuilt",
    "convert/files/test_checkpoint",
    "convert/files/test_quantised",
    "hostile/test_hostile",
    "hostile/test_two_meanings",
)
_ARCHIVES = ("convert/files/readers/test_archive",)
_MACHINE = ("convert/files/readers/test_pickle_machine", "convert/files/readers/test_pickled")
_MODULES = ("convert/files/readers/test_modules",)
_STORED = (
    "convert/files/readers/test_beside",
    "convert/files/readers/test_contents",
    "convert/files/readers/test_geometry",
    "convert/files/readers/test_limits",
    "convert/files/readers/test_safetensors",
    "convert/files/readers/test_sniff",
    "convert/files/readers/test_stored",
    "convert/files/test_checkpoint",
    "convert/files/test_quantised",
    "hostile/test_hostile",
)
_LIMITS = ("convert/files/readers/test_limits",)
_BESIDE = ("convert/files/readers/test_beside",)
_DESCRIBED = (
    "convert/files/readers/test_folding",
    "convert/files/readers/test_made",
    "convert/files/readers/test_scales",
    "convert/files/readers/test_scopes",
)
_DEQUANTISED = ("convert/files/readers/test_dequantised",)
_NAMING = ("convert/files/readers/test_naming",)
_WIRE = ("convert/files/readers/test_protobuf",)
_LISTED = ("convert/files/readers/test_listed",)
_WALKED = ("convert/files/readers/test_model", "convert/files/readers/test_scopes")
_NODES = ("convert/files/readers/test_nodes",)
_STORAGES = ("convert/files/readers/test_onnx_storages",)
_CONVOLUTIONS = ("convert/files/readers/test_found", "convert/files/readers/test_onnx_convolutions")
_CONSTANTS = ("convert/files/readers/test_constants",)
_ONNX_SIZES = ("convert/files/readers/test_onnx_geometry",)
_EXPORTED = ("convert/files/readers/test_programs",)
_PROGRAMS = (
    "convert/files/readers/test_graph",
    "convert/files/readers/test_operations",
    "convert/files/readers/test_programs",
    "convert/files/test_axes_in_files",
    "convert/files/test_exported",
    "convert/files/test_quantised",
)
_ARCHITECTURES = ("convert/files/test_architecture",)
_CHECKPOINTS = ("convert/files/test_weights", "convert/files/test_fitting")
_DESCRIBING = ("convert/files/test_layer_tree",)
_LOADING = ("convert/files/test_load",)
_OPENING = ("convert/files/test_opened",)
_RESTORING = ("convert/files/test_restored_state",)
_SHARING = ("convert/files/test_one_place",)
_CONFIG = ("convert/files/test_config",)
_FOLDERS = ("convert/files/test_read_folder",)
_SAVING = ("convert/files/test_save",)
_STATE = ("convert/files/test_state",)
_CERTIFIED = ("convert/files/test_certified",)
_MIGRATING = ("convert/files/test_migration",)
_SEALING = ("convert/certificate/test_seal",)
_WRITING = (
    "convert/files/writing/test_json_text",
    "convert/files/writing/test_locks",
    "convert/files/writing/test_marked",
    "convert/files/writing/test_our_files",
    "convert/files/writing/test_safetensors",
    "convert/files/writing/test_scratch",
    "convert/files/writing/test_stream",
    "convert/files/writing/test_sync",
    "convert/files/writing/test_uninterrupted",
    "convert/files/test_atomic",
    "convert/files/test_folder",
    "convert/files/test_ownership",
    "convert/files/test_shared",
    "hostile/test_races",
    "hostile/test_writing",
)

_ROOMS: dict[tuple[str, ...], dict[str, tuple[str, ...]]] = {
    COMPUTING: {
        "convert": ("spec",),
        "convert/heads": ("encoding", "gate"),
    },
    _SCORING: {"convert/engines": ("literal", "sdpa")},
    _CHOOSING: {"convert/engines": ("__init__", "base", "processor")},
    _CONVOLVING: {"convert/engines": ("convolution", "transposed")},
    _PASSING: {"convert/engines": ("axes", "factored", "joint", "passes", "separable", "stencil")},
    _SUMMING: {"convert/engines/sums": ("head_sum", "mixing")},
    _READING: {"convert/engines/sums": ("content_sum",), "convert/engines": ("content",)},
    _CONSTRUCTING: {"convert/attention": ("construction",)},
    _CERTIFYING: {"convert/certificate": ("data", "layer")},
    _FAR: {"convert/certificate": ("distance",)},
    _SEARCHING: {"convert/certificate": ("tolerance",)},
    _SMALL: {"convert/bounds": ("subnormal",)},
    _TAILS: {"convert/bounds": ("tail",)},
    _ROUNDINGS: {"convert/bounds": ("rounding",)},
    _FOLLOWING: {
        "convert/certificate": ("wording",),
        "convert/certificate/network/rules": ("interval",),
    },
    _NETWORK: {"convert/certificate/network": ("attention", "certificate", "program")},
    _COMPARING: {"convert/certificate": ("comparison",)},
    _REFERENCE: {"convert/certificate": ("reference",)},
    _RULES: {
        "convert/certificate/network/rules": ("call", "moving", "normalising", "pointwise", "roundings", "weighted")
    },
    _IMAGES: {"convert/certificate/network": ("images",)},
    _MODULES: {"convert/files/readers": ("modules",)},
    _ARCHIVES: {"convert/files/readers": ("archive",)},
    _MACHINE: {"convert/files/readers": ("pickle_machine",)},
    _PICKLES: {"convert/files/readers": ("pickled", "rebuilt")},
    _STORED: {
        "convert/files/readers": ("__init__", "safetensors", "sniff"),
        "convert/files/readers/common": ("geometry", "stored"),
    },
    _LIMITS: {"convert/files/readers/common": ("limits",)},
    _BESIDE: {"convert/files/readers/common": ("beside",)},
    _DESCRIBED: {
        "convert/files/readers/common": ("made",),
        "convert/files/readers/onnx": ("folding", "scales"),
    },
    _DEQUANTISED: {
        "convert/files/readers": ("quantised_program",),
        "convert/files/readers/common": ("quantised",),
    },
    _NAMING: {"convert/files/readers/onnx": ("naming",)},
    _WIRE: {"convert/files/readers/onnx": ("protobuf",)},
    _LISTED: {"convert/files/readers/onnx": ("listed",)},
    _WALKED: {"convert/files/readers/onnx": ("model", "scopes")},
    _NODES: {"convert/files/readers/onnx": ("nodes",)},
    _STORAGES: {"convert/files/readers/onnx": ("tensors",)},
    _CONVOLUTIONS: {"convert/files/readers/onnx": ("convolutions", "found")},
    _CONSTANTS: {"convert/files/readers/onnx": ("constants",)},
    _ONNX_SIZES: {"convert/files/readers/onnx": ("geometry",)},
    _PROGRAMS: {"convert/files/readers": ("graph", "node", "operations")},
    _EXPORTED: {"convert/files/readers": ("exported",)},
    _ARCHITECTURES: {"convert/files": ("architecture",)},
    _CHECKPOINTS: {"convert/files": ("checkpoint",)},
    _DESCRIBING: {"convert/files": ("layers",)},
    _LOADING: {"convert/files": ("load",)},
    _OPENING: {"convert/files": ("network",)},
    _RESTORING: {"convert/files": ("restore",)},
    _SHARING: {"convert/files": ("shared",)},
    _CONFIG: {"convert/files": ("config",)},
    _FOLDERS: {"convert/files": ("folder",)},
    _SAVING: {"convert/files": ("save",)},
    _STATE: {"convert/files": ("state",)},
    _CERTIFIED: {"convert/files": ("certified",)},
    _MIGRATING: {"convert/files": ("migration",)},
    _SEALING: {"convert/certificate": ("seal",)},
    _WRITING: {
        "convert/files/writing": (
            *("atomic", "json_text", "locks", "marked", "ownership", "safetensors", "scratch", "stream"),
            *("temporary", "uninterrupted"),
        ),
    },
}

TESTS = {
    f"{folder}/{name}.py": tests for tests, rooms in _ROOMS.items() for folder, names in rooms.items() for name in names
}
