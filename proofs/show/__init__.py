"""Pages, pictures and tables, and the commands that make them."""
