"""What commands take and give back, and how it is printed."""
