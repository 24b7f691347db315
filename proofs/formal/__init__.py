"""The theorem in Coq, and what asks its kernel."""
