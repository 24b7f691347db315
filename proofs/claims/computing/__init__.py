"""What the code relies on when it computes: rewritings that are exact, and where floating point is."""
