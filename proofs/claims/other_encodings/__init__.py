"""Encodings beside the quadratic one: Gaussian, sinusoidal, learned."""

# Of the document; other files follow.
ORDER = (
    "gaussian",
    "gaussian_reduction",
    "sinusoidal",
    "sinusoidal_alpha",
    "learned",
)
