"""Makes files of every kind by hand, so that they can say what no library would write."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

FLOATS = struct.pack("<24f", *range(24))
EMPTY_ORDERED_DICT = b"ccollections\nOrderedDict\n)R"


def value(content: object) -> bytes:
    """The opcodes that push a plain value."""
    return pickle.dumps(content, protocol=2)[2:-1]


def tensor(
    shape: object = (2, 3),
    *,
    stride: object = (3, 1),
    first: object = 0,
    key: object = "0",
    count: object = 24,
    storage: str = "FloatStorage",
) -> bytes:
    """The opcodes that push a tensor, as torch.save writes them."""
    persistent = b"(" + value("storage") + f"ctorch\n{storage}\n".encode() + value(key) + value("cpu") + value(count)
    arguments = value(first) + value(shape) + value(stride) + value(False) + EMPTY_ORDERED_DICT
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + persistent + b"tQ" + arguments + b"tR"


def state(entries: Mapping[str, bytes]) -> bytes:
    """A pickle of a dictionary with these values."""
    return b"\x80\x02}(" + b"".join(value(key) + opcodes for key, opcodes in entries.items()) + b"u."


def calls(function: str, argument: str) -> bytes:
    """The opcodes that call a function of a module with a text."""
    module, _, name = function.rpartition(".")
    return f"c{module}\n{name}\n".encode() + b"(" + value(argument) + b"tR"


def write_zip(path: Path, entries: Mapping[str, bytes], *, compress: tuple[str, ...] = ()) -> None:
    """An archive whose entries lie in the folder ``a``."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            method = zipfile.ZIP_DEFLATED if name in compress else zipfile.ZIP_STORED
            archive.writestr(f"a/{name}", content, compress_type=method)


def write_torch(path: Path, pickled: bytes, *, storage: bytes = FLOATS) -> None:
    """What torch.save writes, with this pickle and one storage."""
    write_zip(path, {"data.pkl": pickled, "data/0": storage})


def write_legacy(path: Path, pickled: bytes, *, storage: bytes = FLOATS) -> None:
    """The form before PyTorch 1.6, with this pickle and one storage of single precision."""
    pickles = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True, "protocol_version": 1001, "type_sizes": {}})
    content = b"".join(pickle.dumps(part, protocol=2) for part in pickles)
    pickled = pickled.replace(value("cpu") + value(24), value("cpu") + value(24) + b"N")  # and no view
    content += pickled + pickle.dumps(["0"], protocol=2)
    path.write_bytes(content + struct.pack("<q", len(storage) // 4) + storage)


def write_safetensors(path: Path, header: object, *, data: bytes = FLOATS) -> None:
    """A header, given as data or as text, and the numbers behind it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def entry(shape: object = (4, 6), *, dtype: str = "F32", begin: int = 0, end: int = 96) -> dict[str, object]:
    """A tensor in the header of a safetensors file."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def weight(shape: tuple[object, ...] = (2, 3, 2, 2), **changes: object) -> dict[str, object]:
    """A tensor in the description of an exported program."""
    meta = {"dtype": 7, "layout": 7, "storage_offset": {"as_int": 0}} | {
        "sizes": [{"as_int": size} for size in shape],
        "strides": [{"as_int": 1} for _ in shape],
    }
    outer = {"path_name": "weight_0", "is_param": True, "use_pickle": False}
    meta |= {key: changes[key] for key in changes if key in meta}
    return outer | {key: changes[key] for key in changes if key in outer} | {"tensor_meta": meta}


def write_exported(path: Path, config: object, *, graph: object = None, compress: tuple[str, ...] = ()) -> None:
    """What torch.export.save writes, with these weights and one convolution."""
    signature = {"parameter": {"arg": {"name": "p"}, "parameter_name": "c.weight"}}
    node = {"target": "torch.ops.aten.conv2d.default", "name": "conv2d", "inputs": [tensor_input("weight", "p")]}
    found = {"graph_module": {"graph": {"nodes": [node]}, "signature": {"input_specs": [signature]}}}
    texts = {"data/weights/model_weights_config.json": config, "models/model.json": graph or found}
    entries = {name: text if isinstance(text, bytes) else json.dumps(text).encode() for name, text in texts.items()}
    write_zip(path, {**entries, "data/weights/weight_0": FLOATS}, compress=compress)


def tensor_input(name: str, tensor_name: str) -> dict[str, object]:
    """An argument of a node."""
    return {"name": name, "arg": {"as_tensor": {"name": tensor_name}}, "kind": 1}


def onnx_proto() -> ModelProto:
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
    return helper.make_model(helper.make_graph(nodes, "graph", ends[:1], ends[1:], tensors))


def onnx_model() -> bytes:
    """The model as its file."""
    return bytes(onnx_proto().SerializeToString())


def onnx_listed() -> bytes:
    """A model whose tensors are listed number by number, with graphs within graphs, a function and integers."""
    kinds = (TensorProto.FLOAT, TensorProto.INT8, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.UINT4)
    tensors = [helper.make_tensor(f"t{kind}", kind, (2, 1, 1, 2), np.arange(4)) for kind in kinds]
    tensors += [helper.make_tensor("s", TensorProto.FLOAT, (), [0.5]), helper.make_tensor("d", 11, (1,), [2.0])]
    body = helper.make_graph(
        [helper.make_node("Conv", ["x", "t1"], ["i"], "inner")], "body", [], [helper.make_empty_tensor_value_info("i")]
    )
    nodes = [
        helper.make_node("DequantizeLinear", ["t3", "s"], ["w"], axis=0),
        helper.make_node("Conv", ["x", "w"], ["a"], "quantised"),
        helper.make_node("Cast", ["t10"], ["h"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["h"], ["v"], perm=[3, 0, 1, 2]),
        helper.make_node("Block", ["a", "v"], ["b"], "call", domain="own", steps=[1, 2]),
        helper.make_node("If", ["c"], ["e"], "choice", then_branch=body, else_branch=body),
        helper.make_node("ConvInteger", ["x", "t3"], ["f"], "integers"),
        helper.make_node("QLinearConv", ["x", "s", "", "t3", "s", "", "s", ""], ["g"], "linear"),
    ]
    conv = helper.make_node("Conv", ["p", "q"], ["r"], "conv")
    conv.attribute.append(AttributeProto(name="strides", ref_attr_name="steps", type=AttributeProto.INTS))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    block = helper.make_function("own", "Block", ["p", "q"], ["r"], [conv], opsets[:1], attributes=["steps"])
    graph = helper.make_graph(nodes, "graph", [], [], tensors)
    return bytes(helper.make_model(graph, opset_imports=opsets, functions=[block]).SerializeToString())


def write_external(path: Path, **entries: str) -> None:
    """An ONNX model with a tensor whose numbers lie in another file."""
    model = onnx_proto()
    found = model.graph.initializer[0]
    found.ClearField("raw_data")
    found.data_location = TensorProto.EXTERNAL
    for key, text in entries.items():
        found.external_data.add(key=key, value=text)
    path.write_bytes(model.SerializeToString())
