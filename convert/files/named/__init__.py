"""What libraries name: architectures in registries and Hugging Face folders, and their preprocessing."""
