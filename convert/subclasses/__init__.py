"""Other people's convolutions: what their classes compute, and what computes their weights."""
