"""The verification campaign: random layers, on any device, in any number of processes.

layers.py, strategies.py   random layers
values.py, case.py         values for a layer; one comparison, and what the checks share
checks.py                  one layer, all checks
results.py                 settings; the comparisons of many layers, added up
run.py                     the run, in any number of processes
"""
