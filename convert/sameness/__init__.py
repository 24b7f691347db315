"""Whether the difference of two networks is rounding.

sides.py       a side: anything that can be called, its graph where it has one, and fair play
typical.py     what rounding usually does to outputs: runs with noise beside one in float64
pairing.py     operations of two sides, and which belong together
operations.py  where two sides part
differences.py what differs there
onnx_values.py the operations of an ONNX file, and what each gives
verdict.py     what follows, in words
same.py        the comparison
"""
