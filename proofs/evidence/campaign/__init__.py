"""The verification campaign: random layers, on any device and in any number of shards.

settings.py              what is checked, and which part of it here
checks/                  one layer, all checks
tally.py, result.py      the comparisons of many layers, added up, told and merged
run.py                   the run, in any number of processes
"""
