"""Errata.

The published version (ICLR 2020, arXiv 1911.03584) comes first: its theorem is right in the sense that it is meant in,
and one of its sets is meant for odd kernels. Then the article, then the draft, an unfinished manuscript whose own
margin asks to "check dimensions and readability"; the published version states those passages anew. What is quoted is
the text as we have it, so a transcription may be at fault. An erratum has a test of what is meant: the words as printed
must fail it, and as corrected pass it.
"""

ORDER = ("passages",)
