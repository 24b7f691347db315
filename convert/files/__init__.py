"""Reading and writing of checkpoints and folders."""
