"""The paper's experiments: encodings side by side, on the same images, with the same schedule."""
