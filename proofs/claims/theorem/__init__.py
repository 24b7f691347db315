"""What Theorem 1 and its construction rely on."""
