"""Pictures of attention: where heads look, how far from the convolution, which weights they carry."""
