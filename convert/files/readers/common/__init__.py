"""What the readers of every format share: limits, bytes, tensors and geometry."""
