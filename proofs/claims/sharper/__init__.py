"""Sharper than the theorem: fewer dimensions of the encoding, smaller heads, fewer heads."""

# Of the document; other files follow.
ORDER = (
    "encoding_dimension",
    "one_dimension",
    "mixed_taps",
    "head_dimension",
    "head_count",
    "exact_heads",
    "zero_taps",
)
