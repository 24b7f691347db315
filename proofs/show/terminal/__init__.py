"""Text on a terminal."""
