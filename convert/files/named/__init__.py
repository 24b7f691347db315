"""Architectures that libraries name, in registries and Hugging Face folders, and their preprocessing."""
