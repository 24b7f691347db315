"""Sharper than the theorem: fewer dimensions of the encoding, smaller heads, fewer heads."""
