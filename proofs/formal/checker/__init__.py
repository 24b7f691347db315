"""Has a program that Coq proves right check the certificates of a converted network."""
