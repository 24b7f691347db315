"""The verification campaign: random layers, on any device and in any number of shards.

settings.py, shard.py    what is checked, and which part of it here
checks/                  one layer, all checks
tally.py, result.py      what many layers gave, added up, and how it is told
run.py                   the run, in any number of processes
outputs.py, merge.py     results in files, and together
"""
