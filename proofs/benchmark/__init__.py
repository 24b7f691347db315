"""Measures what the attention costs beside the convolution, in one run, on named tables of layers.

tables.py, networks.py                       what is measured
cases.py, candidates.py, dense.py, trained.py   a layer, and the ways to compute it
measure.py, rows.py                          time and memory of calls, of layers and of whole networks
results.py, criteria.py, run.py              what came of it, as data, and what must hold
report.py, plot.py                           tables, the section of benchmarks/RESULTS.md, the plot
"""
