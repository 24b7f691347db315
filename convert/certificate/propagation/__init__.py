"""Bounds carried through a network: how far the converted network can be from the CNN.

The two networks differ in their attention layers only. Each of these adds its own certificate to what it inherits, and
every operation between passes on an error as the claim ``error-propagation`` says
(``proofs/claims/certificate/propagation.py``):

    span.py         a tensor's values and errors; affine maps; rounding
    activations.py  Lipschitz constants
    moves.py        reshaping, joining, averaging, sums and products
    layers.py       modules
    functions.py    functions and methods
    network.py      torch.fx follows the network, one operation after the other
"""
