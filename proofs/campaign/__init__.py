"""The verification campaign: random layers, on any device and in any number of shards.

layers.py, strategies.py   random layers
values.py, case.py         values for a layer, and what its checks share
checks.py                  one layer, all checks
results.py                 settings; the comparisons of many layers, added up and merged
run.py                     the run, in any number of processes
"""
