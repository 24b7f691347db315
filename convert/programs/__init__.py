"""What a network did: the operations of one run, recorded, and walks through them.

program.py     the record, closed; runs through it
float64.py     it in float64
noise.py       it with usual rounding: noise in place of each operation's rounding
"""
