"""Small files that ask for much memory or much time, one for each way that was found."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from onnx import TensorProto

from tests.hostile.files import (
    entry,
    onnx_proto,
    tensor_input,
    value,
    weight,
    write_exported,
    write_safetensors,
    write_torch,
    write_zip,
)

Write = Callable[[Path], object]
MEGABYTE = 2**20
ALIKE = 2**61 - 1  # its multiples have the hash 0, in CPython of 64 bits
WIDE = "\U0001f600".encode()  # one letter of four bytes, which makes every letter of its text as large
FLOAT = b"ctorch\nFloatStorage\n"
_FIRST = 1000  # number under which something is remembered; ``value`` uses small ones


def pickled(*opcodes: bytes) -> Write:
    """An archive whose pickle is this."""
    return lambda path: write_torch(path, b"\x80\x02" + b"".join(opcodes) + b".")


def text(content: bytes) -> bytes:
    """The opcode that pushes a text."""
    return b"X" + struct.pack("<I", len(content)) + content


def put(number: int) -> bytes:
    """The opcode that remembers what was pushed last."""
    return b"r" + struct.pack("<I", _FIRST + number)


def get(number: int) -> bytes:
    """The opcode that pushes what was remembered."""
    return b"j" + struct.pack("<I", _FIRST + number)


def kept(*opcodes: bytes) -> bytes:
    """Opcodes whose results are remembered under 0, 1, ... and taken off the stack."""
    return b"".join(part + put(number) + b"0" for number, part in enumerate(opcodes))


def long(number: int) -> bytes:
    """The opcode that pushes a long integer."""
    content = number.to_bytes(number.bit_length() // 8 + 1, "little")
    return b"\x8b" + struct.pack("<I", len(content)) + content


def dictionary(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The opcodes that push a dictionary."""
    return b"}(" + b"".join(key + content for key, content in pairs) + b"u"


def numbered(opcodes: bytes, count: int) -> bytes:
    """The opcodes that push a dictionary of the same value under many names."""
    return dictionary((value(str(number)), opcodes) for number in range(count))


def module(parameters: bytes = b"}", children: bytes = b"}", hidden: bytes = b"]") -> bytes:
    """The opcodes that push a pickled module."""
    named = {"_parameters": parameters, "_buffers": b"}", "_modules": children, "_non_persistent_buffers_set": hidden}
    return b"cany\nModule\n)\x81" + dictionary((value(key), content) for key, content in named.items()) + b"b"


def described(
    storage: bytes, first: bytes = b"K\0", shape: bytes = b"K\x01\x85", stride: bytes = b"K\x01\x85"
) -> bytes:
    """The opcodes that push a tensor over a storage."""
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + first + shape + stride + b"\x89}tR"


def persistent(kind: bytes = FLOAT, count: int = 24, key: str = "0") -> bytes:
    """The opcodes that push a storage."""
    return b"(" + value("storage") + kind + value(key) + value("cpu") + value(count) + b"tQ"


def long_shapes(path: Path) -> None:
    """300 tensors whose shape and stride are one list of half a million numbers."""
    known = kept(b"](" + b"K\x01" * 500_000 + b"e", persistent())
    pickled(known, numbered(described(get(1), shape=get(0), stride=get(0)), 300))(path)


def unaligned(path: Path) -> None:
    """400 tensors over one storage of four megabytes that begins at an odd byte."""
    shape = value((MEGABYTE - 400,))
    tensors = ((value(str(number)), described(get(0), value(number), shape)) for number in range(400))
    content = b"\x80\x02" + kept(persistent(count=MEGABYTE)) + dictionary(tensors) + b"."
    before = sum(30 + len(f"a/{name}") for name in ("pad", "data.pkl", "data/0")) + len(content)
    write_zip(path, {"pad": b"x" * (1 - before % 2), "data.pkl": content, "data/0": bytes(4 * MEGABYTE)})


def unaligned_external(count: int, lengths: Callable[[int], int]) -> Write:
    """An ONNX model of tensors at an odd byte of one file of four megabytes."""

    def write(path: Path) -> None:
        beside = path.with_name(f"{path.name}.bin")
        beside.write_bytes(bytes(4 * MEGABYTE + 1))
        model = onnx_proto()
        for number in range(count):
            found = model.graph.initializer.add(name=f"w{number}", data_type=TensorProto.FLOAT)
            found.dims.append(lengths(number))
            found.data_location = TensorProto.EXTERNAL
            for key, content in {"location": beside.name, "offset": "1", "length": str(4 * lengths(number))}.items():
                found.external_data.add(key=key, value=content)
        path.write_bytes(model.SerializeToString())

    return write


def spellings(path: Path) -> None:
    """An index of one file under twelve names."""
    shard = path.with_name(f"{path.name}-shard")
    write_torch(shard, b"\x80\x02" + b"}0" * MEGABYTE + numbered(described(persistent()), 20) + b".")
    others = [path.with_name(f"{path.name}-{number}") for number in range(4)]
    for number, other in enumerate(others):
        other.symlink_to(shard.name) if number % 2 else os.link(shard, other)
    names = ["./" * number + shard.name for number in range(8)] + [other.name for other in others]
    path.write_text(json.dumps({"weight_map": {str(number): name for number, name in enumerate(names)}}))


def many_shards(path: Path) -> None:
    """An index of eight files of 100,000 tensors each."""
    places = {}
    for shard in range(8):
        name = f"{path.name}-{shard}"
        names = [f"{shard}.{number}" for number in range(100_000)]
        write_safetensors(path.with_name(name), dict.fromkeys(names, entry((0,), end=0)), data=b"")
        places[names[0]] = name
    path.write_text(json.dumps({"weight_map": places}))


def legacy(path: Path) -> None:
    """The form before PyTorch 1.6, whose every pickle holds two million dictionaries."""
    flood = b"](" + b"}" * 2_000_000 + b"e"
    magic, protocol = (b"\x80\x02" + long(number) + b"." for number in (0x1950A86A20F9469CFC6C, 1001))
    pairs = [(value("little_endian"), b"\x88"), (value("x"), flood)]
    path.write_bytes(magic + protocol + 2 * (b"\x80\x02" + dictionary(pairs) + b".") + b"\x80\x02" + flood + b".")


def wide_names(path: Path) -> None:
    """An ONNX model of five tensors with names of 31 MB, each with one wide letter."""
    tensors = b""
    for number in range(5):
        name = WIDE + b"%d" % number + b"a" * (31 * MEGABYTE)
        tensors += field(5, field(8, name) + b"\x10\x01" + field(9, b""))
    path.write_bytes(b"\x08\x0a" + field(7, tensors))


def field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that holds bytes."""
    length, rest = b"", len(content)
    while rest >= 0x80:
        length, rest = length + bytes([rest & 0x7F | 0x80]), rest >> 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + content


def packed_dims(path: Path) -> None:
    """An ONNX model of a hundred tensors with shapes of 20,000 ones."""
    tensors = b"".join(field(5, field(1, b"\1" * 20_000) + b"\x10\x01" + field(8, b"%d" % n)) for n in range(100))
    path.write_bytes(b"\x08\x0a" + field(7, tensors))


def exported_weights(path: Path) -> None:
    """A program of 400 tensors over one file of four megabytes that begins at an odd byte."""
    described = [weight((MEGABYTE - 400,), storage_offset={"as_int": number}) for number in range(400)]
    config = json.dumps({"config": dict(enumerate(described))}).encode()
    model = json.dumps({"graph_module": {"graph": {"nodes": []}, "signature": {}}}).encode()
    names = ("data/weights/model_weights_config.json", "models/model.json", "data/weights/weight_0", "pad")
    before = sum(30 + len(f"a/{name}") for name in names) + len(config) + len(model)
    contents = (b"x" * (1 - before % 2), config, model, bytes(4 * MEGABYTE))
    write_zip(path, dict(zip((names[3], *names[:3]), contents, strict=True)))


def nested_graphs(path: Path) -> None:
    """A program of graphs in graphs, whose names together are a megabyte long, and 20,000 convolutions in the last."""
    nodes: list[object] = [{"target": "torch.ops.aten.conv2d.default"}] * 20_000
    for _ in range(40):
        graph = {"name": "g" * (MEGABYTE // 40), "graph": {"nodes": nodes}}
        nodes = [{"target": "torch.ops.higher_order.cond", "inputs": [{"arg": {"as_graph": graph}}]}]
    write_exported(path, {"config": {}}, graph={"graph_module": {"graph": {"nodes": nodes}, "signature": {}}})


def program(path: Path, nodes: list[object], *, key: str = "c.weight", dtype: int = 7) -> None:
    """A program of these nodes, whose one weight is called ``p``."""
    specs = [{"parameter": {"arg": {"name": "p"}, "parameter_name": key}}]
    graph = {"graph_module": {"graph": {"nodes": nodes}, "signature": {"input_specs": specs}}}
    write_exported(path, {"config": {key: weight(dtype=dtype)}}, graph=graph)


def computed(operation: str, output: str, *inputs: object, module: str = "c") -> dict[str, object]:
    """A node of a program that gives a tensor, in a call of a module."""
    outputs, stack = [{"as_tensor": {"name": output}}], {"nn_module_stack": f"a,{module},T"}
    return {"target": operation, "name": output, "inputs": list(inputs), "outputs": outputs, "metadata": stack}


CONV, PAD, DEQUANTISE = (
    *(f"torch.ops.aten.{each}.default" for each in ("conv2d", "pad")),
    "torch.ops.quantized_decomposed.dequantize_per_tensor.default",
)


def dequantised(count: int, key: str, *more: object) -> Write:
    """A program of many convolutions, all of the one weight that a node makes of integers."""
    given = [{"name": "scale", "arg": {"as_float": 1.0}}, {"name": "zero_point", "arg": {"as_int": 0}}]
    maker = computed(DEQUANTISE, "d", tensor_input("input", "p"), *given, *more)
    convs = [computed(CONV, f"y{number}", tensor_input("weight", "d"), module="") for number in range(count)]
    return lambda path: program(path, [maker, *convs], key=key, dtype=2)


def many_users(path: Path) -> None:
    """A program of 8,000 convolutions with one result, and 8,000 nodes that take it."""
    user = {"target": "t", "inputs": [tensor_input("self", "y")]}
    program(path, [*[computed(CONV, "y", tensor_input("weight", "p"))] * 8000, *[user] * 8000])


def padded(pads: int, module: str) -> Write:
    """A program of 8,000 convolutions behind one padding."""
    around = {"name": "pad", "arg": {"as_ints": [1] * pads}}
    given = (tensor_input("weight", "p"), tensor_input("input", "x"))
    convs: list[object] = [computed(CONV, f"y{number}", *given) for number in range(8000)]
    before = computed(PAD, "x", tensor_input("self", "i"), around, module=module)
    return lambda path: program(path, [before, *convs])


def deep_names(path: Path) -> None:
    """Modules that hold each other twice, 15 deep, each under a name of 3,000 letters."""
    names = [text(letter * 3000) for letter in (b"a", b"b")]
    opcodes = module(dictionary([(value("w"), described(persistent()))]))
    for level in range(15):
        opcodes = module(children=dictionary([(get(0), opcodes + put(10 + level)), (get(1), get(10 + level))]))
    pickled(kept(*names), opcodes)(path)


def own_storages(*, legacy: bool) -> Write:
    """As many tensors as are read, as torch.save writes them."""
    return lambda path: torch.save(
        {f"layer{number // 4}.part{number}": torch.zeros(1) for number in range(100_000)},
        path,
        _use_new_zipfile_serialization=not legacy,
    )


def conv_node(name: bytes, weight: bytes, stride: bytes = b"\1") -> bytes:
    """A Conv node of an ONNX graph."""
    attribute = field(1, b"strides") + field(8, stride * 2)
    return field(1, field(1, b"x") + field(1, weight) + field(3, name) + field(4, b"Conv") + field(5, attribute))


def one_weight(name: bytes) -> bytes:
    """A tensor of an ONNX graph, [1, 1, 1, 1]."""
    return field(5, field(1, b"\1\1\1\1") + b"\x10\x01" + field(8, name) + field(9, bytes(4)))


def many_convolutions(path: Path) -> None:
    """An ONNX model of convolutions of different strides over one weight."""
    strides = (bytes([128 + number % 128, 128 + number // 128 % 128, number // 2**14]) for number in range(60_000))
    nodes = b"".join(conv_node(b"c%d" % number, b"w", stride) for number, stride in enumerate(strides))
    path.write_bytes(b"\x08\x0a" + field(7, one_weight(b"w") + nodes))


def large_kernel(path: Path) -> None:
    """An ONNX model of a thousand convolutions of different strides over one weight of 90,000 taps."""
    dims = b"".join(b"\x08" + _varint(size) for size in (1, 1, 300, 300))
    weight = field(5, dims + b"\x10\x01" + field(8, b"w") + field(9, bytes(360_000)))
    nodes = (conv_node(b"c%d" % number, b"w", _varint(number)) for number in range(1, 1001))
    path.write_bytes(b"\x08\x0a" + field(7, weight + b"".join(nodes)))


def deep_modules(path: Path) -> None:
    """An ONNX model of convolutions whose names have sixty parts."""
    names = (b"m%d" % number + b".a" * 60 + b".weight" for number in range(20_000))
    path.write_bytes(b"\x08\x0a" + field(7, b"".join(one_weight(name) + conv_node(b"", name) for name in names)))


def onnx_graph(*parts: bytes, functions: bytes = b"") -> Write:
    """An ONNX model whose graph has these parts."""
    return lambda path: path.write_bytes(b"\x08\x0a" + field(7, b"".join(parts)) + functions)


def onnx_list(count: int, numbers: bytes, *, number: int = 7, kind: int = 7, name: bytes = b"n") -> bytes:
    """A tensor of an ONNX graph whose numbers are this field, packed."""
    dims = b"\x08" + _varint(count)
    return field(5, dims + b"\x10" + bytes([kind]) + field(number, numbers) + field(8, name))


def _varint(value: int) -> bytes:
    content = b""
    while value >= 128:
        content, value = content + bytes([value & 127 | 128]), value >> 7
    return content + bytes([value])


def onnx_function(name: bytes, body: bytes) -> bytes:
    """A function of an ONNX model, of no inputs."""
    return b"\xca\x01" + field(25, field(1, name) + body + field(10, b"own"))[1:]


def onnx_call(name: bytes) -> bytes:
    """The content of a node that calls a function."""
    return field(4, name) + field(7, b"own") + field(2, b"")


def doubling_functions(path: Path) -> None:
    """Sixty functions of which each calls the next one twice."""
    calls = [field(7, onnx_call(b"f%d" % (number + 1))) * 2 for number in range(60)]
    functions = b"".join(onnx_function(b"f%d" % number, body) for number, body in enumerate(calls))
    onnx_graph(field(1, onnx_call(b"f0")), functions=functions)(path)


def repeated_function(path: Path) -> None:
    """A function with a list of a megabyte, called 4,000 times, each time by a convolution."""
    content = onnx_list(MEGABYTE, b"\1" * MEGABYTE, number=5, kind=3)
    constant = field(4, b"Constant") + field(2, b"w") + field(5, field(1, b"value") + field(5, content[5:]))
    body = field(7, constant) + field(7, field(4, b"Conv") + field(1, b"x") + field(1, b"w") + field(2, b"y"))
    calls = field(1, onnx_call(b"f")) * 4000
    onnx_graph(calls, functions=onnx_function(b"f", body))(path)


def nested(*parts: bytes) -> Write:
    """Sixty graphs in each other, each in a node with a name of 4,000 letters, around a graph of these parts."""
    content = b"".join(parts)
    for _ in range(60):
        attribute = field(5, field(1, b"b") + field(6, content))
        content = field(1, field(4, b"If") + field(3, b"n" * 4000) + attribute)
    return onnx_graph(content)


def wide_keys(path: Path) -> None:
    """40,000 nodes over integers that have one name of 4,000 letters, one of them wide."""
    name = WIDE + b"a" * 4000
    integers = field(5, field(1, b"\1\1\1\1") + b"\x10\x03" + field(8, name) + field(9, b"\1"))
    alias = field(1, field(1, name) + field(2, b"w") + field(4, b"Identity"))
    node = field(1, b"x") + field(1, b"w") + field(4, b"ConvInteger") + field(6, b"." * 150)
    nodes = b"".join(field(1, node + field(2, b"y%d" % number)) for number in range(40_000))
    onnx_graph(integers, alias, nodes)(path)


def header(content: bytes) -> Write:
    """A safetensors file of a header alone."""
    return lambda path: write_safetensors(path, content, data=b"")


MEMORY: dict[str, Write] = {
    "300 tensors with one list as their shape": long_shapes,
    "one file of an index under twelve names": spellings,
    "800,000 tensors in eight files of an index": many_shards,
    "400 tensors over one unaligned storage": unaligned,
    "300 tensors over one unaligned file": unaligned_external(300, lambda number: MEGABYTE),
    "400 unaligned tensors of different lengths": unaligned_external(400, lambda number: MEGABYTE - number),
    "400 weights over one unaligned entry": exported_weights,
    "graphs in graphs with long names": nested_graphs,
    "1,000 convolutions of a weight with a key of 2 MB": dequantised(1000, "k" * (2 * MEGABYTE)),
    "60,000 convolutions of a weight with a key of 4,000 letters": dequantised(60_000, "k" * 4000),
    "400 storages of a class with a name of 4 MB": pickled(
        kept(persistent(b"c" + b"a" * (4 * MEGABYTE) + b"\nb\n")[:-1], value("storage")),
        numbered(get(0) + b"Q", 400),
    ),
    "classes named by a text with one wide letter": pickled(
        kept(text(WIDE + b"a" * (5 * MEGABYTE))), b"](" + (get(0) + get(0) + b"\x93") * 8 + b"e"
    ),
    "names of 1 MB with many tensors": pickled(
        module(children=dictionary([(text(b"a" * MEGABYTE), module(numbered(described(persistent()), 2000)))]))
    ),
    "names that grow by 3,000 letters fifteen times": deep_names,
    "150 ordered dictionaries of one list": pickled(
        kept(b"](" + b"".join(value((f"{number}", 1)) for number in range(80_000)) + b"e"),
        b"](" + (b"ccollections\nOrderedDict\n" + get(0) + b"\x85R") * 150 + b"e",
    ),
    "several large legacy pickles": legacy,
    "ONNX names with one wide letter": wide_names,
    "ONNX shapes of 20,000 numbers": packed_dims,
    "an ONNX sparse tensor of four million values": lambda path: path.write_bytes(
        b"\x08\x0a" + field(7, field(15, field(1, b"") * (4 * MEGABYTE)))
    ),
    "90,000 names of a module that is not seen": pickled(
        kept(text(b"a") + text("\U0001f300".encode() * 1000) + b"\x93)\x81"), module(children=numbered(get(0), 90_000))
    ),
    "an ONNX list of 50 million numbers of a byte": onnx_graph(onnx_list(50 * 10**6, b"\1" * (50 * 10**6))),
    "an ONNX list of a million numbers, each a field": onnx_graph(
        field(5, b"\x08" + _varint(10**6) + b"\x10\x07" + b"\x38\x01" * 10**6)
    ),
    "an ONNX node of two million inputs": onnx_graph(field(1, field(1, b"") * (2 * 10**6) + field(4, b"Conv"))),
    "an ONNX node of a million attributes": onnx_graph(field(1, field(4, b"Conv") + field(5, field(1, b"a")) * 10**6)),
    "ONNX functions that double sixty times": doubling_functions,
    "an ONNX function called 4,000 times": repeated_function,
    "50 MB of ONNX integers that are dequantised": onnx_graph(
        onnx_list(50 * 10**6, bytes(50 * 10**6), number=9, kind=3, name=b"q").replace(
            b"\x08" + _varint(50 * 10**6), field(1, _varint(50 * 10**6) + b"\1\1\1"), 1
        ),
        field(5, b"\x10\x01" + field(4, bytes(4)) + field(8, b"s")),
        field(1, field(1, b"q") + field(1, b"s") + field(2, b"v") + field(4, b"DequantizeLinear")),
        field(1, field(1, b"x") + field(1, b"v") + field(2, b"y") + field(4, b"Conv")),
    ),
    "100,000 tensors of their own storages": own_storages(legacy=False),
    "100,000 legacy tensors of their own storages": own_storages(legacy=True),
    "20,000 convolutions, each sixty modules deep": deep_modules,
    "8,000 ONNX tensors in sixty graphs with names of 4,000 letters": nested(
        *(one_weight(b"%d" % number) for number in range(8000))
    ),
    "8,000 ONNX nodes in sixty graphs with names of 4,000 letters": nested(
        *(field(1, field(4, b"Conv") + field(3, b"c%d" % number)) for number in range(8000))
    ),
    "40,000 ONNX nodes over integers with a name of 4,000 letters": wide_keys,
    "80,000 ONNX tensors in a graph with a wide name of 4,000 letters": onnx_graph(
        field(
            1,
            field(3, WIDE + b"a" * 4000)
            + field(5, field(6, b"".join(one_weight(b"%d" % number) for number in range(80_000)))),
        )
    ),
    "outputs of an ONNX operator with a wide name of 4,000 letters": onnx_graph(
        field(1, field(4, WIDE + b"a" * 4000) + b"".join(field(2, b"%d" % number) for number in range(100_000)))
    ),
    "60,000 convolutions over one weight": many_convolutions,
    "a header of one text with one wide letter": header(
        b'{"__metadata__":{"a":"\\ud83d\\ude00' + b"a" * (15 * MEGABYTE) + b'"}}'
    ),
    "a header of a million pairs of short texts": header(
        b"{" + b",".join(b'"%x":"ab"' % number for number in range(1_090_000)) + b"}"
    ),
    "a header of 780,000 pairs of short texts": header(
        b"{" + b",".join(b'"%x":"ab"' % number for number in range(780_000)) + b"}"
    ),
    "a header of a million pairs of short wide texts": header(
        b"{" + b",".join(b'"%s%x":"%s"' % (WIDE, number, WIDE) for number in range(1_000_000)) + b"}"
    ),
    "a header of 640,000 pairs of short wide texts": header(
        b"{" + b",".join(b'"%s%x":"%s"' % (WIDE, number, WIDE) for number in range(640_000)) + b"}"
    ),
    "a header of wide texts": header(
        b'{"__metadata__":{' + b",".join(b'"%d":"' % number + WIDE * 60 + b'"' for number in range(60_000)) + b"}}"
    ),
}
"""A writer of each file that asked for more memory than twice its size and 256 MB, or could."""

TIME: dict[str, Write] = {
    "whole numbers as keys, which hash alike": pickled(
        dictionary((long(number * ALIKE), b"N") for number in range(1, 60_000))
    ),
    "texts of numbers as keys of the memo, which hash alike": pickled(
        b"N", b"".join(b"p%d\n" % (number * ALIKE) for number in range(1, 100_000))
    ),
    "a number of 8 MB as a key": pickled(
        kept(b"\x8b" + struct.pack("<I", 8 * MEGABYTE) + b"\1" * (8 * MEGABYTE)),
        b"}(" + (get(0) + b"N") * 20_000 + b"u",
    ),
    "equal texts of 8 MB as keys": pickled(
        kept(text(b"a" * (8 * MEGABYTE)), text(b"a" * (8 * MEGABYTE))),
        b"}(" + (get(0) + b"N" + get(1) + b"N") * 100_000 + b"u",
    ),
    "20,000 modules with one dictionary of 300,000": pickled(
        kept(numbered(b"N", 300_000)), module(children=numbered(module(get(0)), 20_000))
    ),
    "20,000 modules with one set of 300,000": pickled(
        kept(b"](" + b"".join(value(str(number)) for number in range(300_000)) + b"e"),
        module(children=numbered(module(hidden=get(0)), 20_000)),
    ),
    "a million opcodes": pickled(b"}0" * (2 * MEGABYTE)),
    "20,000 views of one storage": lambda path: write_zip(
        path,
        {
            "data.pkl": b"\x80\x02"
            + kept(persistent(count=MEGABYTE))
            + dictionary(
                (value(str(number)), described(get(0), value(number), value((MEGABYTE - 20_000,))))
                for number in range(20_000)
            )
            + b".",
            "data/0": bytes(4 * MEGABYTE),
        },
    ),
    "8,000 convolutions of one name and 8,000 users": many_users,
    "8,000 convolutions behind a padding of 500,000 numbers": padded(500_000, "c"),
    "8,000 convolutions behind a node of a module with a name of 5 MB": padded(4, "m" * (5 * MEGABYTE)),
    "8,000 convolutions of a weight with 50,000 arguments": dequantised(
        8000, "k", *({"name": f"{number}", "arg": {"as_int": 1}} for number in range(50_000))
    ),
    "names of dots": lambda path: write_exported(
        path,
        {"config": {"a" + "." * (4 * MEGABYTE) + ".weight": weight()}},
        graph={
            "graph_module": {
                "graph": {"nodes": [{"target": "torch.ops.aten.conv2d.default", "name": "c", "inputs": []}]},
                "signature": {},
            }
        },
    ),
}
"""A writer of each file that asked for more time than a second a megabyte, or could."""
