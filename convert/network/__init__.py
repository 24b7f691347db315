"""Conversion of whole networks: choice of layers, replacement, report."""
