"""The claims, a family a folder, a claim a file."""
