"""Measures what the attention costs beside the convolution, in one run, on named tables of layers.

tables.py                                    the layers and networks that are measured
cases.py, candidates.py                      a layer, and the ways to compute it
measure.py, rows.py                          time and memory of calls, of layers and of whole networks
results.py, plot.py                          the measurements: data, tables, their section of RESULTS.md, the plot
run.py                                       their run
"""
