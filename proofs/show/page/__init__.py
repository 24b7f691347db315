"""The page: an interactive report of a conversion in one HTML file."""
