"""Small files of the kinds that need a library to write."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def onnx_model() -> bytes:
    """A model with a Conv whose weight is an initialiser, one whose weight is a constant, and one transposed."""
    arrays = {"first.weight": np.ones((2, 2, 1, 2)), "first.bias": np.ones(2), "W": np.ones((2, 2, 1, 1))}
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    constant = numpy_helper.from_array(np.ones((2, 1, 2, 2), np.float32), "value")
    nodes = [
        helper.make_node("Conv", ["x", "first.weight", "first.bias"], ["y"], "/a", strides=[2, 1], pads=[1, 0, 1, 0]),
        helper.make_node("Constant", [], ["c"], "/c", value=constant),
        helper.make_node("Conv", ["y", "c"], ["z"], "/b", auto_pad="SAME_UPPER", group=2),
        helper.make_node("ConvTranspose", ["z", "W"], ["out"], "/up"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "out")]
    graph = helper.make_graph(nodes, "graph", ends[:1], ends[1:], tensors)
    return bytes(helper.make_model(graph).SerializeToString())
