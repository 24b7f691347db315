"""A file that one reader takes for one thing and another reader for another is refused, or read as PyTorch reads it."""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, TensorProto, helper
from torch import nn
from torch._export.serde.schema import SCHEMA_VERSION
from torch._export.serde.serialize import serialize

from conv2attn.convert.attention.supported import unsupported_reason
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import read_checkpoint
from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from tests.hostile.bombs import described, dictionary, field, get, kept, persistent
from tests.hostile.files import EMPTY_ORDERED_DICT, FLOATS, state, tensor, value, weight, write_exported, write_zip

CONV = b"ctorch.nn.modules.conv\nConv2d\n)\x81"
BUILD, SET = b"b", b"s0"
KERNEL = described(persistent(), shape=value((1, 1, 2, 2)), stride=value((4, 4, 2, 1)))
STATE, STRIDE = get(0), get(1)  # where the pickles below keep a module's state, and what becomes its stride

# Zip archives: some programs count places from the file's beginning, some from the archive's.


def archive(number: float) -> Callable[[Path], None]:
    """A state dict whose tensor is this number everywhere."""
    entries = {"data.pkl": state({"w": tensor()}), "data/0": struct.pack("<24f", *[number] * 24), "version": b"3\n"}
    return lambda path: write_zip(path, entries)


def behind(path: Path) -> None:
    """One archive behind another."""
    archive(1.0)(path)
    first = path.read_bytes()
    archive(2.0)(path)
    path.write_bytes(first + path.read_bytes())


def in_comment(path: Path) -> None:
    """One archive in another's comment."""
    archive(2.0)(path)
    second = path.read_bytes()
    archive(1.0)(path)
    with zipfile.ZipFile(path, "a") as outer:
        outer.comment = second


@pytest.mark.parametrize("write", [behind, in_comment])
def test_of_two_archives_in_a_file_neither_is_read(write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "w")
    assert torch.equal(torch.load(tmp_path / "w")["w"], torch.ones(2, 3))  # the other reader takes the first
    with pytest.raises(CheckpointError, match="may hold two archives"):
        read_checkpoint(tmp_path / "w")


@pytest.mark.parametrize("name", ["DATA/0", "Data/0", "data.PKL"])
def test_an_entry_that_comes_in_two_cases_is_not_read(name: str, tmp_path: Path) -> None:
    """PyTorch looks names up in any case, and takes one of them."""
    entries = {"data.pkl": state({"w": tensor()}), "version": b"3\n", "data/0": struct.pack("<24f", *[1.0] * 24)}
    write_zip(tmp_path / "w", entries | {name: struct.pack("<24f", *[2.0] * 24)})
    with pytest.raises(CheckpointError, match=r"in different cases|has 2 entries called"):
        read_checkpoint(tmp_path / "w")
    write_zip(tmp_path / "w", entries | {"code/a.py": b"", "code/A.py": b""})
    assert torch.equal(read_checkpoint(tmp_path / "w").state_dict["w"], torch.ones(2, 3))


@pytest.mark.parametrize("name", ["BYTEORDER", "byteOrder"])
def test_a_byte_order_in_capitals_is_not_passed_over(name: str, tmp_path: Path) -> None:
    write_zip(tmp_path / "w", {"data.pkl": state({"w": tensor()}), "version": b"3\n", "data/0": FLOATS, name: b"big"})
    assert not torch.equal(torch.load(tmp_path / "w")["w"], torch.arange(6.0).reshape(2, 3))
    with pytest.raises(CheckpointError, match=f"spells the entry 'a/byteorder' in another case: 'a/{name}'"):
        read_checkpoint(tmp_path / "w")


@pytest.mark.parametrize("name", ["data.pkl", "DATA.PKL"])
def test_an_archive_that_is_a_program_and_a_pickle_is_not_read(name: str, tmp_path: Path) -> None:
    """torch.load reads the one and torch.export.load the other."""
    write_exported(tmp_path / "program", {"config": {"c.weight": weight()}})
    with zipfile.ZipFile(tmp_path / "program") as program:
        entries = {entry.partition("/")[2]: program.read(entry) for entry in program.namelist()}
    assert "c.weight" in read_checkpoint(tmp_path / "program").state_dict
    write_zip(tmp_path / "w", {**entries, name: state({"w": tensor()}), "data/0": FLOATS, "version": b"3\n"})
    assert torch.load(tmp_path / "w").keys() == {"w"}
    with pytest.raises(CheckpointError, match=r"holds both data\.pkl and models/model\.json|in another case"):
        read_checkpoint(tmp_path / "w")


@pytest.mark.parametrize("name", ["extra.txt", "b/extra.txt"])
def test_an_archive_of_several_folders_is_not_read(name: str, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "w")
    with zipfile.ZipFile(tmp_path / "w", "a") as archive:
        archive.writestr(name, b"")
    with pytest.raises(RuntimeError, match="not in a subdirectory"):
        torch.load(tmp_path / "w")
    with pytest.raises(CheckpointError, match=f"has the entry '{name}' outside of its folder 'w/'"):
        read_checkpoint(tmp_path / "w")


# Programs: weights in two forms, of which PyTorch reads the other.


def exported(number: float) -> torch.export.ExportedProgram:
    """A program of one convolution whose weight and bias are this number everywhere."""
    conv = nn.Conv2d(1, 1, 2)
    for parameter in conv.parameters():
        nn.init.constant_(parameter, number)
    return torch.export.export(conv, (torch.ones(1, 1, 3, 3),))


def entries_of(number: float, path: Path) -> dict[str, bytes]:
    """The entries of such a program, as PyTorch writes it."""
    torch.export.save(exported(number), path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def older(number: float) -> dict[str, bytes]:
    """The same as versions of PyTorch before 2.8 wrote it: entries in no folder."""
    found = serialize(exported(number))
    parts = {"state_dict": found.state_dict, "constants": found.constants, "example_inputs": found.example_inputs}
    pickled = {f"serialized_{name}.pt": bytes(part) for name, part in parts.items()}
    version = ".".join(map(str, SCHEMA_VERSION)).encode()
    return {"version": version, "serialized_exported_program.json": found.exported_program, **pickled}


def test_what_pytorch_reads_of_a_program_in_two_forms_is_not_passed_over(tmp_path: Path) -> None:
    """The older form of a program; the older form of its weights; weights of two dtypes in one entry."""
    path = tmp_path / "w.pt2"
    entries, pickled = entries_of(1.0, path), io.BytesIO()
    torch.save(exported(2.0).state_dict, pickled)
    config = json.loads(entries["w/data/weights/model_weights_config.json"])
    (weight, bias), places = config["config"].values(), "w/data/weights/model_weights_config.json"
    bias["path_name"], bias["tensor_meta"]["dtype"] = weight["path_name"], 4
    changes = {
        "outside of its folder": older(2.0),
        "keeps its weights in the pickle": {"w/data/weights/model.pt": pickled.getvalue()},
        "of the numbers of 'bias' that they are of two dtypes": {places: json.dumps(config).encode()},
    }
    assert read_checkpoint(path).state_dict["weight"].unique() == 1
    for reason, change in changes.items():
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in (entries | change).items():
                archive.writestr(name, content)
        with warnings.catch_warnings(action="ignore"):
            theirs = torch.export.load(path).state_dict
        assert theirs["weight"].unique() == (1 if "dtypes" in reason else 2)
        assert theirs["bias"].dtype == torch.float32
        with pytest.raises(CheckpointError, match=reason):
            read_checkpoint(path)


def test_an_ordered_dictionary_that_is_not_initialised_is_empty(tmp_path: Path) -> None:
    """NEWOBJ calls ``__new__`` alone, which passes over what the dictionary would be made of."""
    pairs = b"](" + value("w") + tensor() + b"\x86e\x85"
    later = b"(" + value("v") + tensor() + b"u."
    for opcode, keys in ((b"R", {"v", "w"}), (b"\x81", {"v"})):
        pickled = b"\x80\x02ccollections\nOrderedDict\n" + pairs + opcode + later
        write_zip(tmp_path / "w", {"data.pkl": pickled, "data/0": FLOATS, "version": b"3\n"})
        assert torch.load(tmp_path / "w").keys() == keys
        assert read_checkpoint(tmp_path / "w").state_dict.keys() == keys


# Pickles: a tensor that is made and then changed, by ways that torch follows.

LATER = struct.pack("<24f", *range(100, 124))
OTHERS = tensor(key="1")
DATA = b"}" + value("data") + OTHERS + b"s"
REBUILT = b"ctorch._utils\n_rebuild_tensor_v2\n"
SET_AGAIN = b"(" + persistent(key="1") + value(0) + value((2, 3)) + value((3, 1)) + b"t"
CHANGED: dict[str, tuple[bytes, str]] = {
    "a parameter with a state": (
        b"ctorch._utils\n_rebuild_parameter_with_state\n(" + tensor() + b"\x88" + EMPTY_ORDERED_DICT + DATA + b"tR",
        "attributes that change it",
    ),
    "a parameter with a state of slots": (
        b"ctorch._utils\n_rebuild_parameter_with_state\n("
        + tensor()
        + b"\x88"
        + EMPTY_ORDERED_DICT
        + b"N"
        + DATA
        + b"\x86tR",
        "attributes that change it",
    ),
    "a subclass with a state": (
        b"ctorch._tensor\n_rebuild_from_type_v2\n("
        + REBUILT
        + b"ctorch\nTensor\n"
        + tensor()[len(REBUILT) : -1]
        + DATA
        + b"tR",
        "attributes that change it",
    ),
    "a state that sets the storage": (tensor() + SET_AGAIN + b"b", "changes a tensor"),
    "numbers that are set": (tensor() + value(0) + value(77.0) + b"s", "changes a tensor"),
    "a storage of a second kind": (tensor(storage="BFloat16Storage", key="2"), "of two kinds"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_tensor_that_torch_changes_while_it_unpickles_is_refused(name: str, tmp_path: Path) -> None:
    opcodes, reason = CHANGED[name]
    pickled = state({"first": tensor(storage="HalfStorage", key="2"), "w": opcodes})
    storages = {"data/0": FLOATS, "data/1": LATER, "data/2": struct.pack("<24e", *range(100, 124))}
    write_zip(tmp_path / "w", {"data.pkl": pickled, "version": b"3\n", **storages})
    theirs = torch.load(tmp_path / "w", weights_only=name != "numbers that are set")["w"]
    assert theirs.flatten()[2] >= 77
    with pytest.raises(CheckpointError, match=reason):
        read_checkpoint(tmp_path / "w")


# Pickles: a module copies the state that it is given, when it is given it.


def convolution_state(**changes: bytes) -> bytes:
    """The opcodes that push what nn.Conv2d(1, 1, 2) holds, with its stride from the memo."""
    plain: dict[str, object] = {"padding": (0, 0), "dilation": (1, 1), "output_padding": (0, 0), "kernel_size": (2, 2)}
    plain |= {"in_channels": 1, "out_channels": 1, "groups": 1, "padding_mode": "zeros"}
    plain |= {"transposed": False, "training": False, "_reversed_padding_repeated_twice": [0, 0, 0, 0]}
    parts = {"_parameters": dictionary([(value("weight"), KERNEL), (value("bias"), b"N")]), "_buffers": b"}"}
    hooks = dict.fromkeys(("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_hooks"), b"}")
    found = {key: value(content) for key, content in plain.items()} | parts | hooks
    found |= {"_modules": b"}", "stride": STRIDE} | changes
    return dictionary((value(key), opcodes) for key, opcodes in found.items())


def module(*opcodes: bytes, stride: bytes | None = None, **changes: bytes) -> Callable[[Path], None]:
    """A pickled module, by the opcodes after the one that makes the object; its state and its stride are remembered."""
    start = b"\x80\x02" + kept(b"N", value((1, 1)) if stride is None else stride)
    remembered = convolution_state(**changes) + b"r" + struct.pack("<I", 1000) + b"0"
    content = start + remembered + CONV + b"".join(opcodes) + b"."
    entries = {"data.pkl": content, "data/0": struct.pack("<24f", *range(24)), "version": b"3\n"}
    return lambda path: write_zip(path, entries)


ITEMS = b"](K\x01K\x01e"
HOOK = b"cbuiltins\nabs\n"
HIDING = ("forward", "_conv_forward", "weight", "bias", "_call_impl", "_compiled_call_impl")


def ordered(opcodes: bytes) -> bytes:
    """The opcodes that push an OrderedDict that is made of something."""
    return b"ccollections\nOrderedDict\n" + opcodes + b"\x85R"


PICKLES: dict[str, Callable[[Path], None]] = {
    "plain": module(STATE, BUILD),
    "the state changes after it was given": module(STATE, BUILD, STATE, value("stride"), value((2, 2)), SET),
    "a second state completes the first": module(STATE, BUILD, dictionary([(value("stride"), value((2, 2)))]), BUILD),
    "a first state is kept beside the second": module(
        dictionary([(value("forward"), b"cbuiltins\nabs\n")]), BUILD, STATE, BUILD
    ),
    "a list changes after torch.Size has copied it": module(
        STATE,
        BUILD,
        get(2),
        b"K\x02a0",
        stride=ITEMS + b"r" + struct.pack("<I", 1002) + b"0ctorch\nSize\n" + get(2) + b"\x85R",
    ),
    "a method in the state": module(STATE, BUILD, _conv_forward=b"cbuiltins\nabs\n"),
    "another padding in the state": module(
        STATE, BUILD, padding_mode=value("circular"), _reversed_padding_repeated_twice=value([1, 1, 1, 1])
    ),
    "a hook in the state": module(STATE, BUILD, _forward_pre_hooks=dictionary([(b"K\x00", HOOK)])),
    "a hook in a list of pairs": module(STATE, BUILD, _forward_pre_hooks=ordered(b"](K\x00" + HOOK + b"\x86e")),
    "a hook in a tuple of pairs": module(STATE, BUILD, _forward_pre_hooks=ordered(b"(K\x00" + HOOK + b"\x86t")),
    "a hook in a dictionary's copy": module(STATE, BUILD, _forward_pre_hooks=ordered(dictionary([(b"K\x00", HOOK)]))),
    "a weight that hides the parameter": module(STATE, BUILD, weight=KERNEL),
    "a bias that hides the parameter": module(STATE, BUILD, bias=tensor((1,), stride=(1,))),
    "a call of its own": module(STATE, BUILD, _call_impl=HOOK),
    "a compiled call": module(STATE, BUILD, _compiled_call_impl=HOOK),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickled_convolution_is_what_torch_unpickles_or_is_refused(name: str, tmp_path: Path) -> None:
    PICKLES[name](tmp_path / "w")
    theirs = torch.load(tmp_path / "w", weights_only=False)
    found: StoredConvolution = read_checkpoint(tmp_path / "w").convolutions[""]
    assert isinstance(theirs, nn.Conv2d)
    plain = nn.Conv2d(1, 1, 2, stride=theirs.stride, padding=theirs.padding, padding_mode=theirs.padding_mode)  # type: ignore[arg-type]
    changed = set(HIDING).intersection(vars(theirs)) | set(theirs._forward_pre_hooks)
    pads = [list(conv._reversed_padding_repeated_twice) for conv in (theirs, plain)]
    if changed or pads[0] != pads[1]:
        assert found.spec is None
    else:
        assert found.spec is not None
        assert found.spec.stride == theirs.stride
    assert (found.spec is None) == (
        name.startswith(("a first", "a method", "a hook", "another", "a weight", "a bias", "a call", "a compiled"))
    )


@pytest.mark.parametrize("bias", [b"N", tensor((1,), stride=(1,), first=4)])
def test_a_parameter_and_a_buffer_of_one_name_are_not_read(bias: bytes, tmp_path: Path) -> None:
    parts = {"_parameters": dictionary([(value("weight"), KERNEL), (value("bias"), bias)])}
    parts["_buffers"] = dictionary([(value("bias"), tensor((1,), stride=(1,), first=9))])
    module(STATE, BUILD, **parts)(tmp_path / "w")
    theirs = torch.load(tmp_path / "w", weights_only=False)
    assert theirs.bias is None or theirs.bias == 4
    assert theirs.state_dict()["bias"] == 9
    with pytest.raises(CheckpointError, match="a parameter and a buffer of one name"):
        read_checkpoint(tmp_path / "w")


@pytest.mark.parametrize("method", ["forward", "_conv_forward"])
def test_a_convolution_with_a_method_of_its_own_is_not_converted(method: str) -> None:
    conv = nn.Conv2d(1, 1, 1)
    setattr(conv, method, lambda *arguments: arguments[0])
    assert f"its {method} method was replaced" in str(unsupported_reason(conv))


# ONNX: what says the same thing twice, or in a field for something else.


def convolution(**attributes: Any) -> ModelProto:
    """A model of one convolution of a kernel [[0, 1], [2, 3]]."""
    kernel = helper.make_tensor(
        "w", TensorProto.FLOAT, (1, 1, 2, 2), np.arange(4, dtype=np.float32).tobytes(), raw=True
    )
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="layer", **attributes)
    return helper.make_model(helper.make_graph([node], "graph", [], [], [kernel]))


def doubles(model: ModelProto) -> None:
    """Two numbers of eight bytes where four of four are meant."""
    found = model.graph.initializer[0]
    found.ClearField("raw_data")
    found.double_data.extend([1.0, 2.0])


def halves(model: ModelProto) -> None:
    """Two numbers of four bytes where four of two are meant."""
    found = model.graph.initializer[0]
    found.ClearField("raw_data")
    found.data_type = TensorProto.FLOAT16
    found.float_data.extend([1.0, 2.0])


def longer(model: ModelProto) -> None:
    model.graph.initializer[0].raw_data += bytes(4)


def attribute_of_two_kinds(model: ModelProto) -> None:
    model.graph.node[0].attribute[0].i = 5


def sparse_too(model: ModelProto) -> None:
    """One number of the kernel, and zeros: ONNX Runtime takes these."""
    values, place = helper.make_tensor("w", 1, [1], [5.0]), helper.make_tensor("", TensorProto.INT64, [1], [0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, place, [1, 1, 2, 2]))


def attribute_twice(model: ModelProto) -> None:
    model.graph.node[0].attribute.append(helper.make_attribute("strides", [3, 3]))


REFUSED: list[tuple[Callable[[ModelProto], None], str]] = [
    (doubles, "in the field of another type"),
    (halves, "in the field of another type"),
    (longer, "more bytes than its shape"),
    (sparse_too, "two tensors called 'w'"),
    (attribute_of_two_kinds, "'strides' twice"),
    (attribute_twice, "'strides' twice"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_an_onnx_file_that_says_two_things_is_refused(
    change: Callable[[ModelProto], None], reason: str, tmp_path: Path
) -> None:
    model = convolution(strides=[1, 1])
    change(model)
    (tmp_path / "w").write_bytes(model.SerializeToString())
    with pytest.raises(CheckpointError, match=reason):
        read_checkpoint(tmp_path / "w")


def fixed(number: int, content: bytes) -> bytes:
    """A field of four bytes."""
    return bytes([number << 3 | 5]) + content


def packed(*sizes: int, name: bytes = b"w", more: bytes = b"") -> bytes:
    """A tensor of ones, and what else it says."""
    numbers = np.ones(sizes, np.float32).tobytes()
    return field(5, field(1, bytes(sizes)) + b"\x10\x01" + field(8, name) + field(9, numbers) + more)


def node(*inputs: bytes, more: bytes = b"") -> bytes:
    """A convolution, and what else it says."""
    return field(1, b"".join(field(1, name) for name in (b"x", *inputs)) + field(2, b"y") + field(4, b"Conv") + more)


IDENTITY = field(7, field(4, b"Constant") + field(2, b"q") + field(5, field(1, b"value") + packed(1, 1, 2, 2)))
VALUE = field(5, field(1, b"value") + field(5, field(1, b"\1")) * 2)
STRIDES = field(1, b"strides") + field(8, b"\2\2")
BYTES: dict[str, tuple[bytes, bytes, str]] = {  # the graph, what follows it, and the reason
    "a second name of four bytes": (packed(1, 1, 2, 2, more=fixed(8, b"wide")) + node(b"w"), b"", "no protocol buffer"),
    "a size of four bytes": (packed(1, 1, 2, 2, more=fixed(1, b"\1\0\0\0")) + node(b"w"), b"", "no protocol buffer"),
    "a bias of four bytes": (packed(1, 1, 2, 2) + node(b"w", more=fixed(1, b"bias")), b"", "no protocol buffer"),
    "an operator of four bytes": (packed(1, 1, 2, 2) + node(b"w", more=fixed(4, b"Relu")), b"", "no protocol buffer"),
    "strides of four bytes": (
        packed(1, 1, 2, 2) + node(b"w", more=field(5, field(1, b"strides") + fixed(8, b"\x82\0\x82\0"))),
        b"",
        "no protocol buffer",
    ),
    "groups of bytes": (
        packed(1, 1, 2, 2) + node(b"w", more=field(5, field(1, b"group") + field(3, b"\2"))),
        b"",
        "no protocol buffer",
    ),
    "a location that there is not": (
        packed(1, 1, 2, 2, more=field(13, field(1, b"location") + field(2, b"w")) + bytes([14 << 3, 1, 14 << 3, 7])),
        b"",
        "holds the number 7 where the standard knows no such one",
    ),
    "names that are not text": (packed(1, name=b"w\xff") + node(b"w\xfe"), b"", "not text in UTF-8"),
    "a tensor in two parts": (field(1, field(4, b"Constant") + field(2, b"w") + VALUE), b"", "'value' twice"),
    "a graph in two parts": (
        field(1, field(4, b"If") + field(5, field(1, b"then") + field(6, packed(1)) + field(6, node(b"w")))),
        b"",
        "'then' twice",
    ),
    "strides of a function outside any": (
        packed(1, 1, 2, 2) + node(b"w", more=field(5, STRIDES + bytes([170, 1, 1]) + b"s")),
        b"",
        "'strides' refer to one of a function, outside any",
    ),
    "a function in the place of an operator": (
        packed(1),
        bytes([202, 1]) + field(25, field(1, b"Identity") + field(5, b"q") + IDENTITY)[1:],
        "function 'Identity' in the domain ''",
    ),
}


@pytest.mark.parametrize("name", BYTES)
def test_an_onnx_file_of_which_protocol_buffers_read_something_else_is_refused(name: str, tmp_path: Path) -> None:
    graph, behind, reason = BYTES[name]
    content = b"\x08\x0a" + field(7, graph) + behind
    assert ModelProto.FromString(content).graph.ByteSize() > 0  # to which it is no damage
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(CheckpointError, match=reason):
        read_checkpoint(tmp_path / "w")


def test_an_axis_of_the_type_of_integers_without_one_is_the_first(tmp_path: Path) -> None:
    """The standard's default is the second; ONNX Runtime takes the first."""
    weight = helper.make_tensor("q", TensorProto.INT8, (2, 2, 1, 1), [1, 2, 3, 4])
    scale = helper.make_tensor("s", TensorProto.FLOAT, (2,), [1.0, 10.0])
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0),
        helper.make_node("Conv", ["x", "w"], ["y"], name="layer"),
    ]
    nodes[0].attribute[0].ClearField("i")
    model = helper.make_model(helper.make_graph(nodes, "graph", [], [], [weight, scale]))
    (tmp_path / "w").write_bytes(model.SerializeToString())
    found = read_checkpoint(tmp_path / "w")
    assert found.state_dict[found.convolutions["layer"].weight].flatten().tolist() == [1, 2, 30, 40]


def test_an_onnx_file_that_says_one_thing_is_read(tmp_path: Path) -> None:
    model = convolution(strides=[1, 1], kernel_shape=[2, 2])
    model.graph.node[0].domain = "ai.onnx"
    (tmp_path / "w").write_bytes(model.SerializeToString())
    found = read_checkpoint(tmp_path / "w")
    assert torch.equal(found.state_dict["w"], torch.arange(4.0).view(1, 1, 2, 2))
    assert found.convolutions["layer"].spec is not None


def test_a_convolution_of_somebody_else_s_operators_is_not_converted(tmp_path: Path) -> None:
    model = convolution()
    model.graph.node[0].domain = "com.example.channels_last"
    (tmp_path / "w").write_bytes(model.SerializeToString())
    assert "not of ONNX" in str(read_checkpoint(tmp_path / "w").convolutions["layer"].problem)


def test_a_kernel_that_is_not_its_weight_s_is_not_converted(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(convolution(kernel_shape=[7, 7]).SerializeToString())
    assert "the shape of its kernel" in str(read_checkpoint(tmp_path / "w").convolutions["layer"].problem)
