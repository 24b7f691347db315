"""Time and memory of calls that do the same work."""
