"""The operations of one run of a network, recorded, and walks through them.

walk.py        a walk; what is asked of one operation
closed.py      records in which no operation changes what another one reads
program.py     the record
float64.py     it in float64
noise.py       it with usual rounding: noise in place of each operation's rounding
"""
