"""Checks the certificates of a converted network with a program that is proved correct in Coq."""
