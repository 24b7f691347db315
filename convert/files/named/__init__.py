"""Where an architecture comes from: code of the user, a library's registry, or a Hugging Face folder."""
