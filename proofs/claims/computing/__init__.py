"""What the code relies on when it computes: rewritings that are exact, and where floating point is."""

# Of the document; other files follow.
ORDER = (
    "floating_point",
    "exact_scores",
    "score_gap",
    "separability",
    "factorisation",
)
