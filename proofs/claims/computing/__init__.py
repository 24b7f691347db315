"""Exact computation.

Scores and softmax are computed without any error where floating point allows it, and soft attention is, exactly, the
convolution of a smoothed input.
"""

ORDER = ("floating_point", "exact_scores", "score_gap", "factorisation", "separability")  # of the document
