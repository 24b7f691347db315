"""Claims in the form that is being replaced; nothing of it stays when the last family is converted."""
