"""Bounds on the errors of rounding and of soft attention, used by engines and certificates."""
