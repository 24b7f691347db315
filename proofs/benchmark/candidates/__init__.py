"""What is measured: tables of layers, networks, and the ways to compute them."""
