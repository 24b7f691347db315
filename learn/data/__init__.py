"""What is learned from: images with labels, of several kinds."""
