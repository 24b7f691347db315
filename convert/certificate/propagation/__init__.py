"""Bounds carried through a network: how far the converted network can be from the CNN.

The two networks differ in their attention layers only. Each of these adds its own certificate to what it inherits, and
every operation between passes on an error as the claim ``error-propagation`` says
(``proofs/claims/certificate/propagation.py``):

    interval.py     bounds on a tensor's values and errors; affine maps; rounding
    activations.py  Lipschitz constants
    pooling.py      averages and maxima of windows
    rearranging.py  reshaping, joining, averaging, sums and products
    weighted.py     convolutions, linear layers, batch normalisation
    layers.py       attention layers
    functions.py    functions and methods of torch
    tracked.py      the tensors of a run, and which of them may share memory
    program.py      what runs besides the code that is followed
    network.py      follows the network, one operation after the other
    certificate.py  the bound for the whole network
"""
