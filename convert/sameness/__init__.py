"""Whether the difference of two networks is rounding.

sides.py       a side: anything that can be called, its graph where it has one, and fair play
typical.py     what rounding typically does to outputs: runs with noise beside one in float64
pairing.py     operations of two sides, and which belong together
operations.py  where two sides part
differences.py what differs there
onnx_values.py the operations of an ONNX file, and what each gives
both.py        two programs: the rounding of each, and what they compute without it
callables.py   networks that a callable refers to, and when its record is the callable
modes.py       which module computes something else in train mode, by trial
outputs.py     outputs of both sides beside the truth
verdict.py     what follows, in words
same.py        the comparison
"""
