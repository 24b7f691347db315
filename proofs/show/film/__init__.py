"""The film of a training: one HTML file, with a slider over its epochs."""
