"""What Theorem 1 and its construction rely on."""

# Of the document; other files follow.
ORDER = (
    "encoding",
    "decomposition",
    "position_alone",
    "any_dimensions",
    "any_dimensions_assembly",
    "absolute",
    "one_hot",
    "assembly",
    "stuffing",
    "patches",
    "padded_keys",
)
