"""What the code computes.

Where floating point changes nothing: the softmax is one-hot to the last bit, and scores are not rounded. And how
attention is rewritten, exactly, before it is computed.
"""

ORDER = ("floating_point", "exact_scores", "score_gap", "factorisation", "separability")  # of the document
