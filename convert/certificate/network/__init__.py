"""Effects of rounding and soft attention on a network: proofs carried through the record of a run.

program.py      the record with attention layers as one operation, and a walk with bounds
writes.py       writes that something else reads under another name
decomposed.py   operations that are others in turn
constants.py    operations on constants alone
call.py         one operation of a program
interval.py     bounds on values and differences; rounding, for two programs or for one of a class
operation.py    an operation: exact bounds, a linear map near a point, roundings
products.py     linear maps: convolutions, linear layers, averages, batch norm, products of matrices
pointwise.py    functions of each value; sums, products and quotients
normalised.py   norms, softmax, attention
moved.py        what moves numbers, and maxima
table.py        the table of all operations
attention.py    an attention layer
certificate.py  the bound for every image in a range
linearised.py   a network on one image as one linear map
proof.py        ranges of all units, tested at once
contract.py     whether sums keep the contract on this machine
images.py       given images: the run that was made, every run of a class, and to first order
"""
