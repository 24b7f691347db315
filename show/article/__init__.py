"""The article: the construction as seven scenes one can play with, in one HTML file."""
