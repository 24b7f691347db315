"""Options, outcomes and printing, shared by all commands."""
