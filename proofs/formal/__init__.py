"""The theorem in Coq, and the programs that ask its kernel."""
