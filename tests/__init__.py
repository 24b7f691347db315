"""The tests, as a package: what several of them share is imported from it."""
