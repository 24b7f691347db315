"""Parts that several claims share: symbols, small convolutions, lattices."""
