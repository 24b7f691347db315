"""The commands, one file each; ``cli.py`` has their signatures."""
