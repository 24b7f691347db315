r"""Theorem 1.

A head scores keys by their distance from its centre; its softmax tends to one-hot; one head for each tap adds up to the
convolution. The theorem is proved here for every convolution of PyTorch's, and in Coq. The keys are the pixels of the
*padded* input, without which it fails. Transposed convolutions are convolutions, too.
"""

ORDER = (  # of the document
    "encoding",
    "one_hot",
    "assembly",
    "padded_keys",
    "stuffing",
    "spare_heads",
    "decomposition",
    "position_alone",
    "absolute",
)
