"""Pages: an interactive report of a conversion, and the film of a training, each in one HTML file."""
