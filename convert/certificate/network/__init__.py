"""What rounding and soft attention can do to a network: proofs carried through the program that ``torch.export`` gives.

program.py      the export, one walk through it, and whether two programs are the same
call.py         one operation of a program
interval.py     bounds on values and differences; rounding, for two programs or for one of a class
roundings.py    how often each operation rounds
rules.py        what each operation makes of bounds
slopes.py       what each operation is near a point: a linear map, and what that leaves
attention.py    an attention layer's rules
certificate.py  the bound for every image in a range
linearised.py   a network on one image as one linear map
proof.py        ranges of all units, tested at once
contract.py     whether sums keep the contract on this machine
images.py       given images: the run that was made, every run of a class, and to first order
"""
