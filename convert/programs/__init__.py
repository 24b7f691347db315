"""The operations of one run of a network, recorded, and walks through them.

walk.py        a walk; what is asked of one operation
closed.py      records in which no operation changes what another one reads
program.py     the record
float64.py     it in float64
operations.py  the table: what operations are called, and what they round
rounding.py    sizes of what one call rounds
noise.py       a record with typical rounding: noise in place of each operation's rounding
"""
