"""Errata: where a formula or a sentence of the seeds does not hold as printed, and what does."""

# Of the document; other files follow.
ORDER = ("convolution", "layer", "positions", "gaussian", "theorem")
