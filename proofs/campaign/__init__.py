"""The verification campaign: random layers, each checked five ways, on any device and in any number of shards.

inputs.py, adversarial.py   what the layers are fed with
bounds.py                   how far two engines may differ
comparison.py, checks.py    one layer, five checks
tally.py                    what many layers gave, added up
shard.py, run.py            which layers, and the run over them
shrink.py, snippet.py       a failing layer made small, and the code that shows it
outputs.py, merge.py        results in files
report.py                   results as tables
"""
