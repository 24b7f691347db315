"""What each command does, one file a command; ``cli.py`` has their signatures."""
