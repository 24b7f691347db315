"""A CNN beside its attention.

networks.py    the whole networks, in several engines
layers.py      layer by layer, on the same input
places.py      sampled outputs of a layer, in float64
report.py      what is known of a conversion: certificates, runs, the distance after training
"""
