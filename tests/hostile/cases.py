"""Files that lie about what they hold, by what is wrong with them, and what the refusal says."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import TensorProto

from tests.hostile.bombs import field, onnx_graph
from tests.hostile.files import (
    FLOATS,
    entry,
    onnx_model,
    onnx_proto,
    state,
    tensor,
    value,
    weight,
    write_exported,
    write_external,
    write_legacy,
    write_safetensors,
    write_torch,
    write_zip,
)

Write = Callable[[Path], object]
MANY = 100_001


def torch_file(**changes: object) -> Write:
    """A state dict with one tensor that is described so."""
    return lambda path: write_torch(path, state({"w": tensor(**changes)}))  # type: ignore[arg-type]


def pickled(opcodes: bytes) -> Write:
    """An archive whose pickle is this."""
    return lambda path: write_torch(path, b"\x80\x02" + opcodes + b".")


def safetensors(header: object, data: bytes = FLOATS) -> Write:
    """A safetensors file with this header."""
    return lambda path: write_safetensors(path, header, data=data)


def exported(entry: object) -> Write:
    """An exported program with one tensor that is described so."""
    return lambda path: write_exported(path, {"config": {"c.weight": entry}})


def zipped(change: Callable[[bytes], bytes]) -> Write:
    """A state dict whose archive's bytes were changed."""

    def write(path: Path) -> None:
        torch_file()(path)
        path.write_bytes(change(path.read_bytes()))

    return write


def many_children() -> bytes:
    """A pickled module of one child under more names than are read."""
    shared = MODULE + b"}ubq\x09"
    children = b"".join(value(str(number))[:-2] + b"h\x09" for number in range(MANY))
    return shared + b"0" + MODULE + b"}(" + children + b"uub"


def doubled(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", state({"w": tensor()}))
        archive.writestr("a/data/0", FLOATS)
        archive.writestr("a/data/1", FLOATS)
    path.write_bytes(path.read_bytes().replace(b"a/data/1", b"a/data/0"))


def overlapping(path: Path) -> None:
    """An archive whose storage lies within another entry, which holds a copy of the storage's header and numbers."""
    header = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, len(FLOATS), len(FLOATS), len("a/data/0"), 0)
    record = header + b"a/data/0" + FLOATS
    write_zip(path, {"data.pkl": state({"w": tensor()}), "x": record, "data/0": FLOATS})
    content = path.read_bytes()
    offset = content.rindex(b"PK\1\2") + 42
    path.write_bytes(content[:offset] + struct.pack("<I", content.index(record)) + content[offset + 4 :])


def longer(content: bytes) -> bytes:
    """Makes the directory say that the storage is longer than the archive."""
    second = content.rindex(b"PK\1\2")
    return content[: second + 20] + struct.pack("<II", 10**6, 10**6) + content[second + 28 :]


def entry_called(name: str) -> Write:
    """An archive with an entry of this name beside a good state dict."""

    def write(path: Path) -> None:
        torch_file()(path)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(zipfile.ZipInfo(name), b"x")

    return write


def with_index(text: str) -> Write:
    """An index with this text, beside one good file."""

    def write(path: Path) -> None:
        safetensors({"w": entry()})(path.parent / "good.safetensors")
        path.write_text(text)

    return write


def places(**weight_map: str) -> Write:
    return with_index(json.dumps({"weight_map": weight_map}))


def linked(name: str, target: Callable[[Path], Path]) -> Write:
    """An index that lists a link."""

    def write(path: Path) -> None:
        places(w=name)(path)
        outside = path.parent.parent / f"{path.parent.name}-outside.safetensors"
        safetensors({"w": entry()})(outside)
        (path.parent / name).symlink_to(target(outside))

    return write


def onnx(change: Callable[[bytes], bytes]) -> Write:
    return lambda path: path.write_bytes(change(onnx_model()))


def onnx_type(code: int) -> Write:
    """A model whose first tensor is of this type."""

    def write(path: Path) -> None:
        model = onnx_proto()
        model.graph.initializer[0].data_type = code
        path.write_bytes(model.SerializeToString())

    return write


def onnx_dims(*dims: int) -> Write:
    """A model whose first tensor is of this shape."""

    def write(path: Path) -> None:
        model = onnx_proto()
        del model.graph.initializer[0].dims[:]
        model.graph.initializer[0].dims.extend(dims)
        path.write_bytes(model.SerializeToString())

    return write


def onnx_list(count: int, *, kind: int = TensorProto.INT64, value: int = 1) -> Write:
    """A model with a tensor of four numbers that lists so many, as varints."""

    def write(path: Path) -> None:
        model = onnx_proto()
        found = model.graph.initializer.add(name="n", data_type=kind, dims=[4])
        (found.int32_data if kind == TensorProto.INT8 else found.int64_data).extend([value] * count)
        path.write_bytes(model.SerializeToString())

    return write


def with_tensor(content: bytes, numbers: bytes) -> bytes:
    """A model that holds nothing but a tensor, one number that these fields hold."""
    return content[:2] + field(7, field(5, b"\x08\x01\x10\x07" + field(8, b"n") + numbers))


def onnx_function(body: bytes = b"") -> bytes:
    """A function of a model."""
    content = field(1, b"f") + body + field(10, b"own")
    return b"\xca\x01" + field(25, content)[1:]  # a field's number beyond 15 takes two bytes


def calling_itself(content: bytes) -> bytes:
    call = field(4, b"f") + field(7, b"own")
    return content[:2] + field(7, field(1, call)) + onnx_function(field(7, call))


def external(**entries: str) -> Write:
    def write(path: Path) -> None:
        (path.parent / "good.bin").write_bytes(FLOATS)
        (path.parent.parent / "outside.bin").write_bytes(FLOATS)
        if not (path.parent / "link.bin").is_symlink():
            (path.parent / "link.bin").symlink_to(path.parent.parent / "outside.bin")
        write_external(path, **entries)

    return write


NESTED = b"".join((b")", b"\x85" * 200_000))
MODULE = b"cany\nModule\n)\x81}(" + value("_parameters") + b"}" + value("_buffers") + b"}" + value("_modules")
CIRCLE = b"cany\nModule\n)\x81q\x01}(" + value("_parameters") + b"}" + value("_buffers") + b"}" + value("_modules")


def laughs(depth: int) -> bytes:
    """Modules that each hold the next one twice: 2^depth names."""
    opcodes = MODULE + b"}ub"
    for level in range(depth):
        put, get = (bytes([code, 10 + level]) for code in b"qh")
        opcodes = MODULE + b"}(" + value("a") + opcodes + put + value("b") + get + b"uub"
    return opcodes


REFUSED: dict[str, tuple[Write, str]] = {
    # storages and shapes
    "a stride of zero": (torch_file(shape=(10**6, 10**6), stride=(0, 0)), "numbers, but its storage has only"),
    "a storage shorter than its shape": (torch_file(shape=(5, 5), stride=(5, 1)), "its storage has only 96 bytes"),
    "a stride beyond the storage": (torch_file(stride=(100, 1)), "reaches beyond the end of its storage"),
    "an offset beyond the storage": (torch_file(first=20), "reaches beyond the end of its storage"),
    "a storage shorter than it declares": (torch_file(count=25), "shorter than it declares"),
    "a storage that is missing": (torch_file(key="9"), "lacks the entry 'a/data/9'"),
    "a storage's key that leads away": (torch_file(key="../../x"), "lacks the entry"),
    "a shape that overflows": (torch_file(shape=(2**32, 2**32), stride=(0, 0)), "a shape that no memory holds"),
    "a zero in a shape that overflows": (torch_file(shape=(0, 2**62), stride=(0, 0)), "a shape that no memory holds"),
    "a size of 2^63": (torch_file(shape=(2**63, 0)), "not a list of non-negative integers"),
    "a negative size": (torch_file(shape=(-1, 2)), "not a list of non-negative integers"),
    "a negative offset": (torch_file(first=-1), "not a list of non-negative integers"),
    "a size that is true": (torch_file(shape=(True, 2)), "not a list of non-negative integers"),
    "a size that is a float": (torch_file(shape=(1.5, 2)), "not a list of non-negative integers"),
    "a shape that is a text": (torch_file(shape="ab", stride="ab"), "not a list of non-negative integers"),
    "fewer strides than sizes": (torch_file(stride=(1,)), "another number of strides"),
    "a thousand dimensions": (torch_file(shape=(1,) * 1000, stride=(1,) * 1000), "has 1000 dimensions"),
    "a storage of an unknown kind": (torch_file(storage="QInt8Storage"), "quantized or unknown"),
    "a storage of a negative length": (torch_file(count=-1), "does not describe one"),
    # archives
    "a compressed storage": (
        lambda path: write_zip(path, {"data.pkl": state({"w": tensor()}), "data/0": FLOATS}, compress=("data/0",)),
        "compressed entry 'a/data/0', which PyTorch never writes",
    ),
    "a compressed pickle": (
        lambda path: write_zip(path, {"data.pkl": state({"w": tensor()}), "data/0": FLOATS}, compress=("data.pkl",)),
        "compressed entry",
    ),
    "compressed JSON": (
        lambda path: write_exported(path, {"config": {}}, compress=("models/model.json",)),
        "compressed entry",
    ),
    "two entries of one name": (doubled, "two entries called 'a/data/0'"),
    "entries that overlap": (overlapping, "entries that overlap"),
    "an entry longer than the archive": (zipped(longer), "entries that overlap"),
    "an entry with two dots": (entry_called("a/../../x"), "leads out of its folder"),
    "an entry from the root": (entry_called("/etc/x"), "leads out of its folder"),
    "an entry of another system": (entry_called("C:x"), "leads out of its folder"),
    "an entry with a backslash": (entry_called("a\\x"), "leads out of its folder"),
    "two pickles": (entry_called("b/data.pkl"), "2 entries called 'data.pkl'"),
    "a machine of another byte order": (
        lambda path: write_zip(path, {"data.pkl": state({"w": tensor()}), "data/0": FLOATS, "byteorder": b"big"}),
        "big-endian",
    ),
    # pickles
    "an opcode of the extension registry": (pickled(b"\x82\x01"), "opcode EXT1"),
    "a memo that was never filled": (pickled(b"h\x05"), "KeyError"),
    "an empty pickle": (pickled(b""), "IndexError"),
    "a text longer than the file": (pickled(b"\x8d" + struct.pack("<Q", 2**60)), "is damaged, incomplete"),
    "a class named by a number": (pickled(b"K\x01K\x02\x93"), "names a class by what is not text"),
    "modules in a circle": (pickled(CIRCLE + b"}(" + value("a")[:-2] + b"h\x01uub"), "nests modules more than 64 deep"),
    "modules that double forty times": (pickled(laughs(40)), "more than 100000 modules"),
    "a pickled name that is half of a surrogate pair": (
        pickled(b"}X\x03\x00\x00\x00\xed\xa0\x80Ns"),
        "a key that is not text",
    ),
    "a pickled name of 5,000 letters": (pickled(b"}" + value("w" * 5000) + b"Ns"), "longer than 4096 bytes"),
    "a place of the memo beyond 2^32": (pickled(b"Np%d\n" % 2**32), "not a number below 2.32"),
    "a negative place of the memo": (pickled(b"Np-1\n"), "not a number below 2.32"),
    "a storage named by a text that is too long": (pickled(b"P" + b"a" * 5000 + b"\n"), "something that is no storage"),
    "an opcode that does not exist": (pickled(b"\xff"), "opcode unknown"),
    "a legacy storage of another length": (
        lambda path: write_legacy(path, state({"w": tensor()}), storage=FLOATS + FLOATS[:4]),
        "not as long as it declares",
    ),
    # safetensors
    "a key that comes twice": (
        safetensors(b'{"w":' + json.dumps(entry()).encode() + b',"w":' + json.dumps(entry()).encode() + b"}"),
        "names a key twice",
    ),
    "a part of a tensor that comes twice": (
        safetensors(b'{"w":{"dtype":"F32","dtype":"I32","shape":[4,6],"data_offsets":[0,96]}}'),
        "names a key twice",
    ),
    "an unknown dtype": (safetensors({"w": entry(dtype="F4")}), "dtype 'F4', which is not read"),
    "a shape longer than its bytes": (safetensors({"w": entry((5, 6))}), "its storage has only 96 bytes"),
    "a shape shorter than its bytes": (safetensors({"w": entry((2, 6))}), "not as long as its shape says"),
    "a safetensors shape that overflows": (safetensors({"w": entry((2**40, 2**40))}), "no memory holds"),
    "a safetensors shape of zero and 2^62": (safetensors({"w": entry((0, 2**62), end=0)}, b""), "no memory holds"),
    "tensors that overlap": (
        safetensors({"a": entry((12,), end=48), "b": entry((13,), begin=44)}),
        "overlap or leave a gap",
    ),
    "a gap": (safetensors({"a": entry((11,), end=44), "b": entry((12,), begin=48)}), "overlap or leave a gap"),
    "bytes left over": (safetensors({"w": entry()}, FLOATS + b"x"), "is damaged or incomplete"),
    "an offset before the start": (safetensors({"w": entry(begin=-96, end=0)}), "lies beyond its end"),
    "metadata that are numbers": (safetensors({"__metadata__": {"a": 1}, "w": entry()}), "metadata that are not texts"),
    "a header that is a list": (safetensors(b"{}" + b" " * 7 + b"]"), "is not JSON"),
    "a header deeper than a stack": (safetensors(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "is not JSON"),
    "a header of NaN": (safetensors(b'{"w":NaN}'), "is not JSON"),
    "a header in UTF-16": (
        safetensors(json.dumps({"w": entry()}).encode("utf-16")),
        "is not JSON in UTF-8|unknown kind",
    ),
    "a header in UTF-16 without a mark": (
        safetensors(json.dumps({"w": entry()}).encode("utf-16-le")),
        "is not JSON in UTF-8",
    ),
    "a header with a mark before it": (safetensors(b"{}".join([b"\xef\xbb\xbf", b""])), "not a checkpoint|is not JSON"),
    "a name that is half of a surrogate pair": (safetensors(b'{"\\ud800":{}}'), "half of a surrogate pair"),
    "a text that is half of a surrogate pair": (
        safetensors(b'{"__metadata__":{"a":"\\\\\\uDC00 \\ud83d\\ude00"}}'),
        "half of a surrogate pair",
    ),
    "a name of 5,000 letters": (safetensors({"w" * 5000: entry()}), "5000 letters; at most 4096 are read"),
    "a header of 17 MB": (safetensors(b"{" + b" " * 17 * 2**20 + b"}", b""), "at most 16777216 are read"),
    "a header that claims 2 GB": (
        lambda path: path.write_bytes(struct.pack("<Q", 2**31) + b"{}" + FLOATS),
        "at most 16777216 are read",
    ),
    "more than 100,000 tensors": (
        lambda path: write_safetensors(path, dict.fromkeys(map(str, range(MANY)), entry((0,), end=0)), data=b""),
        "100001 tensors; at most 100000 are read",
    ),
    "more than 100,000 names of one pickled tensor": (
        lambda path: write_torch(
            path, state({"w": tensor() + b"q\x09", **dict.fromkeys(map(str, range(MANY)), b"h\x09")})
        ),
        "100002 tensors; at most 100000 are read",
    ),
    "more than 100,000 tensors of a program": (
        lambda path: write_exported(path, {"config": dict.fromkeys(map(str, range(MANY)))}),
        "100001 tensors; at most 100000 are read",
    ),
    "more than 100,000 tensors of ONNX": (
        onnx_graph(*(field(5, b"\x08\x00\x10\x01" + field(8, b"%d" % number)) for number in range(MANY))),
        "more than 100000 tensors",
    ),
    "more than 100,000 modules in one": (pickled(many_children()), "more than 100000 modules$"),
    # exported programs
    "a pickled weight": (exported(weight(use_pickle=True)), "holds a pickled tensor"),
    "a weight's file that leads away": (exported(weight(path_name="../weight_0")), "does not say where"),
    "a weight's file that is missing": (exported(weight(path_name="weight_7")), "lacks the entry"),
    "an unknown dtype of a program": (exported(weight(dtype=999)), "sparse, quantized or unknown"),
    "a sparse weight of a program": (exported(weight(layout=1)), "sparse, quantized or unknown"),
    "a symbolic size": (exported(weight(sizes=[{"as_expr": "s0"}], strides=[{"as_int": 1}])), "not a list"),
    "a program's stride beyond its weight": (exported(weight((4, 6), strides=[{"as_int": 30}] * 2)), "reaches beyond"),
    "a program's shape that overflows": (exported(weight((2**40, 2**40))), "no memory holds"),
    "a program without its graph": (
        lambda path: write_exported(path, {"config": {}}, graph={"graph_module": []}),
        "lacks its graph_module",
    ),
    "a program's key that comes twice": (
        lambda path: write_exported(path, b'{"config":{},"config":{}}'),
        "names a key twice",
    ),
    # ONNX
    "an unknown ONNX type": (onnx_type(99), "ONNX type 99"),
    "an ONNX shape that overflows": (onnx_dims(2**40, 2**40), "no memory holds"),
    "a negative ONNX size": (onnx_dims(-2, 2), "not a list of non-negative integers"),
    "an ONNX shape longer than its bytes": (onnx_dims(9, 9), "its storage has only"),
    "an ONNX field longer than the file": (
        onnx(lambda content: content + b"\x3a\xff\xff\xff\x7f"),
        "no protocol buffer",
    ),
    "an ONNX number without an end": (onnx(lambda content: content + b"\xff" * 12), "no protocol buffer"),
    "external data above the folder": (external(location="../outside.bin"), "no file in the folder"),
    "external data from the root": (external(location="/etc/passwd"), "no file in the folder"),
    "external data through a link": (external(location="link.bin"), "a link that leaves its folder"),
    "external data that are missing": (external(location="missing.bin"), "there is no file"),
    "external data beyond their file": (external(location="good.bin", offset="97"), "beyond the end"),
    "external data longer than their file": (
        external(location="good.bin", length="999"),
        "lies beyond the end|damaged",
    ),
    "external data at a text": (external(location="good.bin", offset="-1"), "an offset that is no number"),
    "an ONNX list of more numbers than its shape": (onnx_list(5), "more bytes than its shape"),
    "an ONNX list of fewer numbers than its shape": (onnx_list(3), "its storage has only 24 bytes"),
    "an ONNX number beyond its type": (
        onnx_list(4, kind=TensorProto.INT8, value=200),
        "that the tensor's type does not have",
    ),
    "an ONNX list in the field of another type": (onnx_list(4, kind=TensorProto.DOUBLE), "the field of another type"),
    "an ONNX list whose last number has no end": (
        onnx(lambda content: with_tensor(content, field(7, b"\x80"))),
        "no protocol buffer",
    ),
    "ONNX numbers stored twice": (
        onnx(lambda content: with_tensor(content, field(9, bytes(8)) + field(7, b"\1"))),
        "stores the numbers of 'n' twice",
    ),
    "an ONNX function that calls itself": (onnx(calling_itself), "nests graphs more than 64 deep"),
    "two ONNX functions of one name": (onnx(lambda content: content + 2 * onnx_function()), "two functions called 'f'"),
    "two ONNX graphs": (onnx(lambda content: content + onnx_model()), "holds 2 graphs"),
    "an ONNX name that stands for a tensor and a result": (
        onnx(lambda content: content.replace(b"\x12\x01y\x1a\x02/a", b"\x12\x01W\x1a\x02/a")),
        "two tensors called 'W'",
    ),
    # indexes
    "an index of a file above": (places(w="../x.safetensors"), "no file in the folder"),
    "an index of a file from the root": (places(w="/etc/passwd"), "no file in the folder"),
    "an index of a missing file": (places(w="x.safetensors"), "there is no file"),
    "an index of a key that is not there": (places(v="good.safetensors"), "which it lacks"),
    "an index of itself": (places(w="hostile"), "listed in another"),
    "an index of numbers": (with_index('{"weight_map": {"w": 3}}'), "no index"),
    "an index of nothing": (with_index("{}"), "no index"),
    "an index whose key comes twice": (
        with_index('{"weight_map": {"w": "good.safetensors", "w": "good.safetensors"}}'),
        "names a key twice",
    ),
    "an index of a link that leaves the folder": (
        linked("l", lambda outside: outside),
        "a link that leaves its folder",
    ),
    "an index of a link to itself": (linked("l", lambda outside: Path("l")), "cannot be followed|there is no file"),
    # other files
    "a git-LFS pointer": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
        "is a Git LFS pointer",
    ),
}
"""A writer of each file, and a pattern that the refusal matches."""

_NAN = np.full((2, 3), np.nan, np.float32).tobytes()

READ: dict[str, Write] = {
    "weights that are NaN": lambda path: write_torch(path, state({"w": tensor()}), storage=_NAN * 4),
    "a tuple nested 200,000 deep as a key": lambda path: write_torch(
        path, b"\x80\x02}(" + NESTED + b"N" + value("w") + tensor() + b"u."
    ),
    "lists nested 200,000 deep": lambda path: write_torch(
        path, b"\x80\x02}(" + value("x") + b"]" * 200_000 + b"a" * 199_999 + value("w") + tensor() + b"u."
    ),
    "a memo's number of four billion": lambda path: write_torch(
        path, b"\x80\x02}(" + value("w")[:-2] + b"r\xff\xff\xff\xff" + tensor() + b"u."
    ),
    "a compressed entry that nobody needs": lambda path: write_zip(
        path, {"data.pkl": state({"w": tensor()}), "data/0": FLOATS, "code/x.py": b"0" * 10**6}, compress=("code/x.py",)
    ),
}
"""Files that are odd and yet hold a tensor ``w`` that can be read."""
