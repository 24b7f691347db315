"""What several claims share: symbols, small convolutions, lattices."""
