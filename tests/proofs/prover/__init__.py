"""The tests of ``proofs/prover``."""
