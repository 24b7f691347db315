"""Hostile and broken input: every file loads or is refused with one sentence, in little memory."""
