"""Measures what the attention costs beside the convolution, in one run, on named tables of layers."""
