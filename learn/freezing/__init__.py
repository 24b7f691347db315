"""From trained attention back to a convolution."""
