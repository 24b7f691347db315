"""Asks Coq, and judges its answers."""
