"""The commands, one file each; ``cli.py`` has their signatures.

A command raises a ``ConversionError`` for what it refuses; ``ending.py`` makes a sentence and an exit code of each.
"""
