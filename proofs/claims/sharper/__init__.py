r"""Sharper than the theorem.

How much of what Theorem 1 asks for is needed? Here $U$ is the kernel unfolded to a row for each tap and a column for
each pair of channels, and a head *sits on a tap* if that tap gets more than half of its attention.

| what | Theorem 1 | needed |
| --- | --- | --- |
| dimension of the encoding, each head on a tap of its own | 3 | 2; with 1, two taps at most |
| dimension of a one-hot head, alone on tap $\Delta$ | $C_{out}$ | $\operatorname{rank} W_\Delta$ |
| heads that ignore the content, to come as near as one likes | $K^2$ | $\operatorname{rank} U$, or one more |
"""

ORDER = (  # of the document
    "encoding_dimension",
    "one_dimension",
    "head_dimension",
    "head_count",
)
