"""Distance of a converted network from its CNN: bounds carried through the program that ``torch.export`` gives.

interval.py     bounds on values and differences
call.py         one operation of a program
roundings.py    how often each operation rounds
rules.py        what each operation makes of the bounds
attention.py    an attention layer's rule
program.py      the export, one walk through it, and whether two programs are the same
certificate.py  the bound for every image in a range
images.py       the bound, and the first-order estimate, for given images
first_order.py  gradients on an image, and what each operation can differ by
"""
