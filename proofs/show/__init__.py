"""What people look at: pages, pictures, tables."""
