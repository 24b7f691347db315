"""Distance of a converted network from its CNN: bounds carried through the program that ``torch.export`` gives.

rules/          bounds on values and differences, and what each operation makes of them
attention.py    an attention layer's rule
program.py      the export, and one walk through it
certificate.py  the bound for every image in a range
images.py       the bound, and the first-order estimate, for given images
first_order.py  gradients on an image, and what each operation can differ by
"""
