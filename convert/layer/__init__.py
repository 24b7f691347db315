"""The self-attention layer, and how it is made of a convolution."""
