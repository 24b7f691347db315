"""The training loop, and what it keeps of each epoch."""
