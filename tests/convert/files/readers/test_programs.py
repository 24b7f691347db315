"""What the description of an exported program says of its tensors and of its convolutions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._export.serde.serialize import _TORCH_TO_SERIALIZE_DTYPE

from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.readers import exported
from conv2attn.convert.files.readers.archive import open_archive
from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.readers.common.quantised import DEQUANTISED
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.exported import ATTENTION, INNER, MODEL, read_exported
from tests.convert.files.readers.program_nodes import node
from tests.hostile.files import write_zip

Read = Callable[..., tuple[dict[str, object], dict[str, StoredConvolution]]]

CONFIG = "data/weights/model_weights_config.json"
MORE = "its layer computes more than a convolution (aten.{})"
QUANTISED = "torch.ops.quantized_decomposed.dequantize_per_tensor.default"


def entry(*shape: int, of: Any = torch.float32, **changed: Any) -> dict[str, Any]:
    """A weight as JSON describes it, in the one file of weights."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    meta = {
        "dtype": _TORCH_TO_SERIALIZE_DTYPE[of],
        "layout": 7,
        "sizes": [{"as_int": size} for size in shape],
        "strides": [{"as_int": stride} for stride in strides[: len(shape)]],
        "storage_offset": {"as_int": 0},
    }
    return {"path_name": "weight_0", "use_pickle": False, "tensor_meta": meta | changed}


def spec(kind: str, name: str, key: str) -> dict[str, Any]:
    return {kind: {"arg": {"name": name}, f"{kind}_name": key}}


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """What is read of a program of these weights and nodes."""

    def of(
        weights: Any = (),
        nodes: Any = (),
        *,
        specs: Any = None,
        results: Any = (),
        model: Any = None,
        entries: Any = (),
    ) -> tuple[dict[str, object], dict[str, StoredConvolution]]:
        given = dict(weights)
        if specs is None:
            specs = [spec("parameter", f"%p_{key.replace('.', '_')}", key) for key in given]
        signature = {"input_specs": specs, "output_specs": list(results)}
        graph = {"signature": signature, "graph": {"nodes": list(nodes)}}
        written = {
            CONFIG: json.dumps({"config": given}).encode(),
            MODEL: json.dumps({"graph_module": graph} if model is None else model).encode(),
            "data/weights/weight_0": bytes(4096),
        }
        write_zip(tmp_path / "x.pt2", written | dict(entries))
        return read_exported(open_archive(Source(tmp_path / "x.pt2")), "a/")

    return of


def conv(weight: str = "%p_a_weight", *, operation: str = "conv2d.default", layer: str = "a", **given: Any) -> Any:
    stack = f"call,{layer},torch.nn.modules.conv.Conv2d"
    return node(operation, "%y", stack=stack, **{"input": "%x", "weight": weight, **given})


WEIGHTS = {"a.weight": entry(4, 3, 2, 5), "a.bias": entry(4)}


# Tensors


@pytest.mark.parametrize("dtype", sorted(_TORCH_TO_SERIALIZE_DTYPE, key=str))
def test_a_dtype_has_the_code_that_torch_gives_it(dtype: torch.dtype, read: Read) -> None:
    found = read({"w": entry(2, 3, of=dtype)})[0]["w"]
    if dtype in (torch.complex32, torch.float8_e8m0fnu):
        assert isinstance(found, OddTensor)
        assert found.kind == "sparse, quantized or unknown"
    else:
        assert isinstance(found, StoredTensor)
        assert (found.dtype, found.shape, found.stride, found.first) == (dtype, (2, 3), (3, 1), 0)
    assert len(exported._DTYPES) == len(_TORCH_TO_SERIALIZE_DTYPE) - 2


def test_a_tensor_is_a_view_of_its_file(read: Read) -> None:
    view = {"strides": [{"as_int": 1}, {"as_int": 2}], "storage_offset": {"as_int": 5}}
    found = read({"w": entry(2, 3, **view)})[0]["w"]
    assert isinstance(found, StoredTensor)
    assert (found.stride, found.first) == ((1, 2), 5)


@pytest.mark.parametrize(
    ("part", "value"),
    [("layout", 6), ("layout", 8), ("layout", None), ("dtype", 0), ("dtype", 99), ("dtype", "7"), ("dtype", None)],
)
def test_a_tensor_that_is_not_dense_numbers_is_odd(part: str, value: Any, read: Read) -> None:
    found = read({"w": entry(2, **{part: value})})[0]["w"]
    assert isinstance(found, OddTensor)
    assert found.kind == "sparse, quantized or unknown"


@pytest.mark.parametrize("value", [True, None, 0, "false"])
def test_a_tensor_that_may_be_pickled_is_odd(value: Any, read: Read) -> None:
    found = read({"w": entry(2) | {"use_pickle": value}})[0]["w"]
    assert isinstance(found, OddTensor)
    assert found.kind == "pickled"


@pytest.mark.parametrize(
    "changed",
    [{"sizes": [{"as_expr": "s0"}]}, {"sizes": [3]}, {"strides": [{}]}, {"storage_offset": 3}, {"sizes": [{}] * 2}],
)
def test_sizes_that_are_symbols_or_no_numbers_are_refused(changed: dict[str, Any], read: Read) -> None:
    with pytest.raises(CheckpointError):
        read({"w": entry(2, **changed)})


@pytest.mark.parametrize("name", [None, 3, "a/b", "/", "../x"])
def test_a_tensor_lies_in_the_folder_of_weights(name: Any, read: Read) -> None:
    long = "k" * 101
    with pytest.raises(CheckpointError, match=rf"x\.pt2 is damaged: it does not say where '{long[:100]}' lies$"):
        read({long: entry(2) | {"path_name": name}})


@pytest.mark.parametrize("given", [3, None, [], {}, {"tensor_meta": 3}])
def test_a_tensor_without_a_description_is_refused(given: Any, read: Read) -> None:
    with pytest.raises(CheckpointError, match="the program's description lacks its tensor_meta"):
        read({"w": given})


@pytest.mark.parametrize(
    ("model", "lacks"),
    [
        ({}, "graph_module"),
        ([], "graph_module"),
        ({"graph_module": {}}, "signature"),
        ({"graph_module": {"signature": {}}}, "graph"),
        ({"graph_module": {"signature": {}, "graph": 3}}, "graph"),
    ],
)
def test_a_program_has_a_graph_and_a_signature(model: Any, lacks: str, read: Read) -> None:
    with pytest.raises(CheckpointError, match=f"the program's description lacks its {lacks}$"):
        read(model=model)


def test_a_program_without_tensors_and_nodes_is_empty(read: Read) -> None:
    assert read(model={"graph_module": {"signature": {}, "graph": {}}}) == ({}, {})
    with pytest.raises(CheckpointError, match=r"the program's description lacks its config$"):
        read(entries={CONFIG: b"{}"})


def test_tensors_are_limited(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported, "MAX_TENSORS", 2)
    assert len(read({"a": entry(1), "b": entry(1)})[0]) == 2
    with pytest.raises(CheckpointError, match=r"x\.pt2 has 3 tensors; at most 2 are read"):
        read({"a": entry(1), "b": entry(1), "c": entry(1)})


def test_only_little_endian_programs_are_read(read: Read) -> None:
    assert read(entries={"byteorder": b"little"}) == ({}, {})
    for order in (b"big", b"little ", b"", b"middle"):
        with pytest.raises(CheckpointError, match=r"x\.pt2 was written on a big-endian machine; only little-endian"):
            read(entries={"byteorder": order})
    with pytest.raises(CheckpointError, match="has more than 16 bytes"):
        read(entries={"byteorder": b"little".ljust(17)})
    with pytest.raises(CheckpointError, match="was written on a big-endian machine"):
        read(entries={"byteorder": b"little".ljust(16)})


@pytest.mark.parametrize("name", [CONFIG, MODEL])
def test_a_description_that_is_no_json_or_too_long_is_named(
    name: str, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CheckpointError, match=rf"x\.pt2: {name} is not JSON in UTF-8"):
        read(entries={name: b"{"})
    monkeypatch.setattr(exported, "MAX_HEADER", 99)
    with pytest.raises(CheckpointError, match="has more than 99 bytes"):
        read(entries={name: b"{}".ljust(100)})


# Convolutions


def one(found: tuple[dict[str, object], dict[str, StoredConvolution]], name: str = "a") -> StoredConvolution:
    assert list(found[1]) == [name]
    return found[1][name]


def test_a_node_is_the_layer_that_its_weight_belongs_to(read: Read) -> None:
    geometry: Any = {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 3], "groups": 1}
    found = one(read(WEIGHTS, [conv(bias="%p_a_bias", **geometry)]))
    assert (found.weight, found.bias, found.problem, found.note) == ("a.weight", "a.bias", None, None)
    assert found.spec is not None
    assert (found.spec.stride, found.spec.padding, found.spec.dilation) == ((2, 1), (1, 2), (1, 3))
    assert (found.spec.in_channels, found.spec.out_channels, found.spec.kernel_size) == (3, 4, (2, 5))
    without = one(read(WEIGHTS, [conv()]))
    assert without.spec is not None
    assert (without.bias, without.spec.stride, without.spec.padding) == (None, (1, 1), (0, 0))


def test_one_number_is_meant_for_all_axes_and_groups_are_one_number(read: Read) -> None:
    found = one(read(WEIGHTS, [conv(stride=[2], padding=[1], dilation=[3])])).spec
    assert found is not None
    assert (found.stride, found.padding, found.dilation) == ((2, 2), (1, 1), (3, 3))
    assert one(read(WEIGHTS, [conv(groups=[1])])).problem == "its groups are not a number"
    assert one(read(WEIGHTS, [conv(stride=[1, 2, 3])])).problem is not None


@pytest.mark.parametrize(
    ("operation", "weight", "given"),
    [
        ("conv1d.default", entry(4, 3, 2), {}),
        ("conv1d.padding", entry(4, 3, 2), {"padding": "same"}),
        ("conv2d.padding", entry(4, 3, 2, 2), {"padding": "valid"}),
        ("conv3d.default", entry(4, 3, 2, 2, 2), {}),
        ("conv_transpose1d.default", entry(3, 4, 2), {"output_padding": [1], "stride": [2]}),
        ("conv_transpose2d.input", entry(3, 4, 2, 2), {"output_padding": [1], "stride": [2]}),
        ("conv_transpose3d.input", entry(3, 4, 2, 2, 2), {"output_padding": [1], "stride": [2]}),
        ("convolution.default", entry(4, 3, 2, 2), {"transposed": False, "output_padding": [0, 0]}),
        ("convolution.default", entry(3, 4, 2, 2), {"transposed": True, "output_padding": [1, 1], "stride": [2, 2]}),
    ],
)
def test_every_form_of_a_convolution_is_read(operation: str, weight: Any, given: dict[str, Any], read: Read) -> None:
    found = one(read({"a.weight": weight}, [conv(operation=operation, **given)])).spec
    assert found is not None
    assert (found.in_channels, found.out_channels) == (3, 4)
    is_transposed = "transpose" in operation or given.get("transposed") is True
    assert found.transposed == is_transposed
    assert found.output_padding == ((1 if is_transposed else 0),) * found.axes
    assert found.padding == (given["padding"] if "padding" in given else (0,) * found.axes)


@pytest.mark.parametrize(
    "operation",
    ["conv2d.other", "conv4d.default", "conv_transpose1d.input", "conv_tbc.default", "convolution.out", "conv2d"],
)
def test_other_operations_are_told(operation: str, read: Read) -> None:
    found = one(read(WEIGHTS, [conv(operation=operation)]))
    assert found == StoredConvolution.refused(f"aten.{operation} is not a plain convolution")
    long = one(read(WEIGHTS, [conv(operation=f"conv{'v' * 200}")]))
    assert long.problem == f"aten.conv{'v' * 91} is not a plain convolution"


def test_weights_and_biases_that_a_program_computes_or_changes_are_refused(read: Read) -> None:
    assert one(read(WEIGHTS, [conv(bias="%other")])).problem == "its bias is computed"
    computed = read(WEIGHTS, [conv("%other")])
    assert one(computed, "y").problem == "its weight is computed or not a plain tensor"
    for name in ("%p_a_weight", "%p_a_bias"):
        changing = node("add_.Tensor", "%z", self=name)
        found = one(read(WEIGHTS, [changing, conv(bias="%p_a_bias")]))
        assert found.problem == "the program changes its weight or bias"
    changing = node("add_.Tensor", "%z", self="%p_a_bias")
    apart = {**WEIGHTS, "a.bias": entry(4) | {"path_name": "weight_1"}}
    file = {"data/weights/weight_1": bytes(4096)}
    assert one(read(apart, [changing, conv()], entries=file)).spec is not None
    assert one(read(apart, [changing, conv(bias="%p_a_bias")], entries=file)).spec is None


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_a_weight_that_gets_other_numbers_when_a_program_ends_is_refused(kind: str, read: Read) -> None:
    def given(name: object, mutation: str = f"{kind}_mutation") -> dict[str, Any]:
        return {mutation: {"arg": {"name": "%z"}, f"{kind}_name": name}}

    for results in ([given("a.weight")], [{"user_output": {}}, 3, given("a.bias")]):
        found = one(read(WEIGHTS, [conv(bias="%p_a_bias")], results=results))
        assert found.problem == "the program changes its weight or bias"
    harmless: list[Any] = [{}, given("b.weight"), given(["a.weight"]), given("a.weight", "user_input_mutation")]
    for result in harmless:
        assert one(read(WEIGHTS, [conv(bias="%p_a_bias")], results=[result])).spec is not None
    assert one(read(WEIGHTS, [conv()], results=[{f"{kind}_mutation": "a.weight"}])).spec is not None


def test_the_numbers_of_a_file_are_of_one_dtype(read: Read) -> None:
    weights = {"a.weight": entry(4, 3, 2, 5), "other": entry(2, of=torch.int32)}
    with pytest.raises(CheckpointError, match="says of the numbers of 'other' that they are of two dtypes"):
        read(weights, [conv()])
    apart = {**weights, "other": entry(2, of=torch.int32) | {"path_name": "weight_1"}}
    assert one(read(apart, [conv()], entries={"data/weights/weight_1": bytes(8)})).spec is not None


def test_a_weight_whose_numbers_another_tensor_changes_is_refused(read: Read) -> None:
    """Another buffer may be a view of it: both lie in one file."""
    changing = node("add_.Tensor", "%z", self="%p_other")
    found = one(read({**WEIGHTS, "other": entry(2)}, [changing, conv()]))
    assert found.problem == "the program changes its weight or bias"


def test_integers_and_scales_that_a_program_changes_are_refused(read: Read) -> None:
    given = {"input": "%p_q", "scale": 0.5, "zero_point": 3}
    made = dict(node("d", "%w", stack=None, **given), target=QUANTISED)
    weights = {"q": entry(4, 3, 2, 5, of=torch.int8)}
    assert one(read(weights, [made, conv("%w")])).spec is not None
    for changing in (
        [node("add_.Tensor", "%z", self="%p_q")],
        [node("detach.default", "%v", self="%p_q"), node("zero_.default", "%z", self="%v")],
    ):
        found = one(read(weights, [made, *changing, conv("%w")]))
        assert found.problem == "the program changes its weight or bias"


def test_a_name_stands_for_one_tensor(read: Read) -> None:
    """PyTorch takes one of two."""
    two = [spec("parameter", "%p", "a.weight"), spec("buffer", "%p", "a.bias")]
    with pytest.raises(CheckpointError, match="the program has two tensors called '%p'"):
        read(WEIGHTS, [], specs=two)
    with pytest.raises(CheckpointError, match="the program has two tensors called '%p_a_weight'"):
        read(WEIGHTS, [node("neg.default", "%p_a_weight", self="%x"), conv()])
    with pytest.raises(CheckpointError, match="the program computes '%y' twice"):
        read(WEIGHTS, [conv(), conv()])


def test_an_argument_at_the_place_of_another_is_told(read: Read) -> None:
    """PyTorch goes by the places of those that are given so: here what is called the dilation is its padding."""
    placed = conv(bias="%p_a_bias", stride=[1, 1], dilation=[2, 2])
    assert one(read(WEIGHTS, [placed])).spec is not None
    for entry_ in placed["inputs"]:
        entry_["kind"] = 1
    assert one(read(WEIGHTS, [placed])).problem == "it is given an argument at the place of another"
    placed["inputs"][-1]["kind"] = 2
    found = one(read(WEIGHTS, [placed])).spec
    assert found is not None
    assert found.dilation == (2, 2)


def test_names_of_tensors_are_no_longer_than_names_are(read: Read) -> None:
    for length in (4096, 4097):
        key = "k" * length
        if length > 4096:
            for weights, specs in (({key: entry(2)}, []), ({}, [spec("parameter", "%p", key)])):
                with pytest.raises(CheckpointError, match="names a tensor by 4097 letters; at most 4096 are read"):
                    read(weights, specs=specs)
        else:
            assert key in read({key: entry(2)}, specs=[spec("parameter", "%p", key)])[0]


def test_only_parameters_and_buffers_that_are_named_are_known(read: Read) -> None:
    node_of = [conv()]
    for kind in ("parameter", "buffer"):
        assert one(read(WEIGHTS, node_of, specs=[3, spec(kind, "%p_a_weight", "a.weight")])).spec is not None
    named = {"arg": {"name": "%p_a_weight"}}
    wrong: list[Any] = [
        *[{"parameter": {"arg": given, "parameter_name": "a.weight"}} for given in (3, {}, {"name": 3}, None)],
        *[{"parameter": named | key} for key in ({}, {"parameter_name": 3}, {"buffer_name": "a.weight"})],
        {"parameter": 3},
        {"user_input": {"arg": {"name": "%p_a_weight"}, "user_input_name": "a.weight"}},
    ]
    for given in wrong:
        assert list(read(WEIGHTS, node_of, specs=[given])[1]) == ["y"]
    assert list(read(WEIGHTS, node_of, specs=3)[1]) == ["y"]


def test_a_padding_in_the_layer_s_own_part_is_its_own_and_anything_else_is_told(read: Read) -> None:
    stack = "call,a,torch.nn.modules.conv.Conv2d"
    pad = node("pad.default", "%x", stack=stack, self="%i", pad=[1, 1, 2, 2], mode="reflect")
    found = one(read(WEIGHTS, [pad, conv()])).spec
    assert found is not None
    assert (found.padding, found.padding_mode) == ((2, 1), "reflect")
    relu = node("relu.default", "%z", stack=stack, self="%y")
    assert one(read(WEIGHTS, [conv(), relu])).problem == MORE.format("relu.default")
    assert one(read(WEIGHTS, [conv(layer="other"), relu])).spec is not None


def test_a_layer_of_two_geometries_is_two(read: Read) -> None:
    other = dict(conv(stride=[2]), name="second")
    other["outputs"] = [{"as_tensor": {"name": "%second"}}]
    again = dict(conv(), name="again", outputs=[{"as_tensor": {"name": "%again"}}])
    found = read(WEIGHTS, [conv(), again, other])[1]
    assert list(found) == ["a", "second"]
    assert found["second"].spec is not None
    assert found["second"].spec.stride == (2, 2)


def test_convolutions_in_graphs_within_are_refused_by_name_and_no_other(read: Read) -> None:
    inner = {"name": "branch", "target": "torch.ops.higher_order.cond", "outputs": []}
    graph = {"as_graph": {"name": "true", "graph": {"nodes": [conv()]}}}
    found = read(WEIGHTS, [conv(), inner | {"inputs": [{"name": "g", "arg": graph}]}])[1]
    assert list(found) == ["a", "true.y"]
    assert found["a"].spec is not None
    assert found["true.y"] == StoredConvolution.refused(INNER)


# Integers


def dequantising(source: str = "%p_q", output: str = "%w") -> Any:
    given = {"input": source, "scale": 0.5, "zero_point": 1, "quant_min": -128, "quant_max": 127}
    return dict(node("x", output, stack=None, **given), target=QUANTISED)


def test_a_weight_that_is_dequantised_is_a_tensor_of_its_own(read: Read) -> None:
    weights = {"q": entry(4, 3, 2, 2, of=torch.int8)}
    tensors, found = read(weights, [dequantising(), conv("%w")])
    key = "q (dequantised for y)"
    assert list(tensors) == ["q", key]
    assert list(found) == ["a"]
    assert (found["a"].weight, found["a"].note) == (key, DEQUANTISED)
    assert found["a"].spec is not None
    made = tensors[key]
    assert isinstance(made, StoredTensor)
    assert made.read().unique().tolist() == [-0.5]
    nowhere = dict(conv("%w"), metadata={})
    assert list(read({"b.weight": entry(4, 3, 2, 2, of=torch.int8)}, [dequantising("%p_b_weight"), nowhere])[1]) == [
        "b"
    ]


def test_a_description_of_a_dequantised_weight_is_charged(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    charged = []
    monkeypatch.setattr(Budget, "spend", lambda _, memory=0, steps=0: charged.append(memory))
    read({"q": entry(4, 3, 2, 2, of=torch.int8)}, [dequantising(), conv("%w")])
    assert sys.getsizeof("q (dequantised for y)") + 2000 in charged


# Attention


ATTENTIVE = WEIGHTS | {"a.alpha": entry(10), "a.centers": entry(10, 2)}


def test_exact_attention_is_its_convolution_and_its_positions_are_left_out(read: Read) -> None:
    tensors, found = read(ATTENTIVE, [conv(bias="%p_a_bias")])
    assert list(tensors) == ["a.weight", "a.bias"]
    assert found["a"].spec is not None
    root = {key.removeprefix("a."): value for key, value in ATTENTIVE.items()}
    tensors, found = read(root, [conv("%p_weight", layer="", bias="%p_bias")])
    assert list(tensors) == ["weight", "bias"]
    assert found[""].spec is not None


def test_attention_whose_program_is_not_a_convolution_is_refused(read: Read) -> None:
    relu = node("relu.default", "%z", stack="call,a,torch.nn.modules.conv.Conv2d", self="%y")
    refused = {"a": StoredConvolution.refused(ATTENTION)}
    for nodes in ([], [conv(), relu], [conv(layer="b")], [dict(conv(), metadata={})]):
        tensors, found = read(ATTENTIVE, nodes)
        assert (list(tensors), found) == (list(ATTENTIVE), refused)
    for missing in ("a.alpha", "a.centers", "a.weight"):
        some = {key: value for key, value in ATTENTIVE.items() if key != missing}
        assert read(some, [])[1] == {}
    odd = {key.replace("a.weight", "a.xweight"): value for key, value in ATTENTIVE.items()}
    assert read(odd, [])[1] == {}
