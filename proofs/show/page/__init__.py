"""The page: a report of a conversion in one HTML file, in which the attention can be played with."""
