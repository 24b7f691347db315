"""Takes attention into other people's tools, and back."""
