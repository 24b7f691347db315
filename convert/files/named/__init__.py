"""Sources of architectures: the user's code, a library's registry, or a Hugging Face folder."""
