"""Convinces: evidence that the construction of ``conv2attn.convert`` does what it claims."""
