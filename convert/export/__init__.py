"""Export of attention to other tools, and back."""
