"""Options, outcomes, printing and errors, shared by all commands."""
