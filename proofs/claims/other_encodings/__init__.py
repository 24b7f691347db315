"""Other encodings.

Heads score keys by other functions of the relative position, too: by a Gaussian of any shape, by sinusoids, by learned
tables. When such a head has one target, and what that takes.
"""

ORDER = ("gaussian", "sinusoidal", "learned", "tokens")  # of the document
