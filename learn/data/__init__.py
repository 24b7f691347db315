"""Training data: images with labels, of several kinds."""
