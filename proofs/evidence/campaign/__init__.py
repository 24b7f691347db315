"""The verification campaign: random layers, on any device and in any number of shards.

settings.py, shard.py                        what is checked, and which part of it here
inputs.py, adversarial.py, extremes.py       what the layers are fed with
content.py, programs.py                      attention written out; networks that do not compute what their modules say
bounds.py, comparison.py                     how far two results may differ, and how far they do
checks.py                                    one layer, all checks
tally.py, result.py                          what many layers gave, added up
arithmetic.py, processes.py, run.py          the run
shrink.py, counterexample.py                 a failing layer made small, and the code that shows it
outputs.py, merge.py, report.py              results in files, together, and as tables
"""
