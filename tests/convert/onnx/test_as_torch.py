"""Nodes of ONNX files are torch's operations: each row gives what ONNX Runtime gives, or is refused by name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from conv2attn.convert import ConversionError
from conv2attn.convert.onnx import rows
from conv2attn.convert.onnx.as_torch import OnnxNetwork
from conv2attn.convert.onnx.rows import ROWS
from conv2attn.convert.onnx.run import session
from conv2attn.convert.sameness.same import same
from tests.convert.sameness.planted import opaque
from tests.onnx_files import network, port, tensor

GENERATOR = torch.Generator().manual_seed(1)
MAP = torch.randn(2, 4, 7, 9, generator=GENERATOR)
ROW = torch.randn(3, 8, generator=GENERATOR)
POSITIVE = ROW.abs() + 0.1
IDS = torch.tensor([[2, 0, -1], [1, 1, 2]])
W = {
    "conv": torch.randn(6, 2, 3, 3, generator=GENERATOR),
    "back": torch.randn(4, 3, 3, 2, generator=GENERATOR),
    "square": torch.randn(8, 5, generator=GENERATOR),
    "four": torch.rand(4, generator=GENERATOR) + 0.5,
    "eight": torch.rand(8, generator=GENERATOR) + 0.5,
    "five": torch.randn(5, generator=GENERATOR),
}


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


# operator: its input, further inputs, attributes, opset
Case = tuple[str, torch.Tensor, Any, dict[str, Any], int]
CASES: list[Case] = [
    *(
        (name, ROW, [], {}, 18)
        for name in ("Abs", "Ceil", "Erf", "Exp", "Floor", "Neg", "Relu", "Round", "Sigmoid", "Sign", "Sin")
    ),
    *(
        (name, POSITIVE, [], {}, 18)
        for name in ("Log", "Sqrt", "Reciprocal", "Softplus", "Softsign", "Tanh", "HardSwish", "Mish")
    ),
    *((name, ROW, [POSITIVE], {}, 18) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "PRelu")),
    ("Pow", POSITIVE, [ROW], {}, 18),
    ("Div", ints(-7, 7, 5), [ints(2, -2, 3)], {}, 18),
    ("Mod", ints(-7, 7, 5), [ints(3, -3, 3)], {}, 18),
    ("Clip", ROW, [torch.tensor(-0.5), torch.tensor(0.7)], {}, 13),
    ("Clip", ROW, [None, torch.tensor(0.7)], {}, 13),
    ("Elu", ROW, [], {"alpha": 0.7}, 18),
    ("LeakyRelu", ROW, [], {}, 18),
    ("HardSigmoid", ROW, [], {"alpha": 0.3}, 18),
    ("Gelu", ROW, [], {"approximate": "tanh"}, 20),
    ("Cast", ROW, [], {"to": 7}, 18),
    ("Softmax", MAP, [], {}, 11),
    ("Softmax", MAP, [], {"axis": 2}, 13),
    ("LogSoftmax", ROW, [], {}, 13),
    ("MatMul", ROW, [W["square"]], {}, 13),
    ("Gemm", ROW, [W["square"], W["five"]], {}, 13),
    ("Gemm", ROW, [W["square"].T.contiguous(), W["five"]], {"transB": 1, "alpha": 0.5, "beta": 2.0}, 13),
    ("Einsum", ROW, [W["square"]], {"equation": "ij,jk->ki"}, 13),
    *(
        (name, POSITIVE, [], {"axes": [1], "keepdims": keep}, 11)
        for name in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare")
        for keep in (0, 1)
    ),
    ("ReduceSum", MAP, [ints(-1, 1)], {}, 18),
    ("ReduceLogSumExp", MAP, [], {}, 11),
    ("ArgMax", ROW, [], {"axis": 1}, 13),
    ("ArgMin", ROW, [], {"axis": 0, "keepdims": 0}, 13),
    ("Conv", MAP, [W["conv"], None], {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 0], "dilations": [1, 2]}, 11),
    ("Conv", MAP, [W["conv"]], {"group": 2, "pads": [0, 1, 2, 3]}, 11),
    ("Conv", MAP, [W["conv"]], {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}, 11),
    ("Conv", MAP, [W["conv"]], {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 2]}, 11),
    ("ConvTranspose", MAP, [W["back"]], {"strides": [2, 3], "pads": [1, 0, 1, 0], "output_padding": [1, 0]}, 11),
    ("ConvTranspose", MAP, [W["back"]], {"strides": [2, 2], "pads": [1, 0, 0, 1]}, 11),
    ("MaxPool", MAP, [], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 1]}, 12),
    ("MaxPool", MAP, [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}, 12),
    ("AveragePool", MAP, [], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 1]}, 11),
    ("AveragePool", MAP, [], {"kernel_shape": [3, 3], "pads": [0, 1, 1, 0], "count_include_pad": 1}, 11),
    ("AveragePool", MAP, [], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER"}, 11),
    ("GlobalAveragePool", MAP, [], {}, 11),
    ("GlobalMaxPool", MAP, [], {}, 11),
    ("BatchNormalization", MAP, [W["four"], W["four"] - 1, W["four"] * 0.3, W["four"]], {"epsilon": 1e-3}, 15),
    ("InstanceNormalization", MAP, [W["four"], W["four"] - 1], {"epsilon": 1e-3}, 11),
    ("LayerNormalization", ROW, [W["eight"], W["eight"] - 1], {"epsilon": 1e-3}, 17),
    ("GroupNormalization", MAP, [W["four"], W["four"] - 1], {"num_groups": 2}, 21),
    ("LRN", MAP, [], {"size": 3, "alpha": 0.1}, 13),
    ("Reshape", MAP, [ints(0, -1, 3)], {}, 13),
    ("Flatten", MAP, [], {"axis": 2}, 13),
    ("Transpose", MAP, [], {}, 13),
    ("Squeeze", MAP[:, :1], [], {"axes": [1]}, 11),
    ("Unsqueeze", ROW, [ints(-1, 1)], {}, 13),
    ("Concat", ROW, [ROW.flip(0)], {"axis": 1}, 13),
    ("Slice", MAP, [ints(5, -8), ints(-100, 100), ints(2, 3), ints(-2, 3)], {}, 13),
    ("Gather", ROW, [IDS], {}, 13),
    ("Gather", MAP, [IDS], {"axis": 2}, 13),
    ("GatherElements", ROW, [IDS[:, :2].repeat(1, 2)], {}, 13),
    ("GatherND", MAP, [torch.tensor([[0, 3], [1, 2]])], {}, 13),
    ("ScatterND", ROW, [torch.tensor([[2], [0]]), ROW[:2] * 2], {}, 13),
    ("ScatterElements", ROW, [IDS[:1].abs(), ROW[:1, :3]], {}, 13),
    ("Expand", ROW, [ints(2, 1, 8)], {}, 13),
    ("Tile", ROW, [ints(2, 3)], {}, 13),
    ("Pad", MAP, [ints(0, 1, 2, 0, 0, 0, 1, 3), torch.tensor(0.5)], {}, 13),
    ("Pad", MAP, [ints(0, 0, 2, 1, 0, 0, 1, 3)], {"mode": "reflect"}, 13),
    ("Pad", MAP, [ints(0, 0, 2, 1, 0, 0, 1, 3)], {"mode": "edge"}, 13),
    ("Resize", MAP, [None, torch.tensor([1.0, 1.0, 2.0, 2.0])], {"mode": "linear"}, 13),
    (
        "Resize",
        MAP,
        [None, None, ints(2, 4, 5, 13)],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        13,
    ),
    (
        "Resize",
        MAP,
        [None, torch.tensor([1.0, 1.0, 2.0, 3.0])],
        {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
        13,
    ),
    (
        "Resize",
        MAP,
        [None, None, ints(2, 4, 14, 18)],
        {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"},
        13,
    ),
    ("DepthToSpace", MAP, [], {"blocksize": 2}, 13),
    ("DepthToSpace", MAP, [], {"blocksize": 2, "mode": "CRD"}, 13),
    ("SpaceToDepth", MAP[..., :6, :8], [], {"blocksize": 2}, 13),
    ("OneHot", IDS, [torch.tensor(4), torch.tensor([0.5, 2.0])], {"axis": 1}, 11),
    ("Trilu", MAP, [torch.tensor(1)], {"upper": 0}, 14),
    ("CumSum", ROW, [torch.tensor(1)], {}, 14),
    ("Where", ROW > 0, [ROW, POSITIVE], {}, 16),
    ("Range", torch.tensor(2), [torch.tensor(9), torch.tensor(3)], {}, 11),
]


def file_of(case: Case, path: Path, domain: str = "") -> Path:
    op, x, others, attributes, opset = case
    names = ["" if one is None else f"i{place}" for place, one in enumerate(others)]
    held = [tensor(name, one) for name, one in zip(names, others, strict=True) if one is not None]
    node = helper.make_node(op, ["x", *names], ["y"], name="the node", domain=domain, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.numpy().dtype)
    ports = [helper.make_tensor_value_info("x", kind, list(x.shape))]
    graph = helper.make_graph([node], "one", ports, [onnx.ValueInfoProto(name="y")], held)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    onnx.save(model, path)
    return path


@torch.no_grad()
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_a_row_gives_what_onnx_runtime_gives(case: Case, tmp_path: Path) -> None:
    path = file_of(case, tmp_path / "one.onnx")
    (theirs,) = session(path).run(None, {"x": case[1].numpy()})
    ours = OnnxNetwork(path)(case[1])["y"]
    assert tuple(ours.shape) == theirs.shape
    assert ours.numpy().dtype == theirs.dtype
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-4, atol=1e-5)


MICROSOFT: list[Case] = [
    ("Gelu", ROW, [], {}, 14),
    ("BiasGelu", ROW, [W["eight"]], {}, 14),
    ("FastGelu", ROW, [W["eight"]], {}, 14),
    ("QuickGelu", ROW, [], {"alpha": 1.5}, 14),
    (
        "SkipLayerNormalization",
        ROW[None],
        [POSITIVE[None], W["eight"], W["eight"] - 1, W["eight"]],
        {"epsilon": 1e-3},
        14,
    ),
    ("SkipSimplifiedLayerNormalization", ROW[None], [POSITIVE[None], W["eight"]], {"epsilon": 1e-3}, 14),
    ("FusedMatMul", ROW, [W["square"].T.contiguous()], {"transB": 1, "alpha": 0.5}, 14),
    ("FusedConv", MAP, [W["conv"]], {"group": 2, "activation": "Relu"}, 14),
    ("FusedGemm", ROW, [W["square"], W["five"]], {"activation": "LeakyRelu", "activation_alpha": 0.1}, 14),
    (
        "Attention",
        ROW[None],
        [torch.randn(8, 24, generator=GENERATOR), torch.randn(24, generator=GENERATOR)],
        {"num_heads": 2},
        14,
    ),
    ("MultiHeadAttention", ROW[None], [ROW[None] * 2, ROW[None] - 1], {"num_heads": 2}, 14),
]


@torch.no_grad()
@pytest.mark.parametrize("case", MICROSOFT, ids=lambda case: case[0])
def test_operators_that_onnx_runtime_s_optimiser_writes_have_rows(case: Case, tmp_path: Path) -> None:
    path = file_of(case, tmp_path / "one.onnx", "com.microsoft")
    (theirs, *_) = session(path).run(None, {"x": case[1].numpy()})
    np.testing.assert_allclose(OnnxNetwork(path)(case[1])["y"].numpy(), theirs, rtol=1e-4, atol=1e-5)


def test_every_row_is_tried_or_gives_the_same_as_another() -> None:
    tried = {case[0] for case in (*CASES, *MICROSOFT)} | {
        "Split",
        "TopK",
        "Shape",
        "Size",
        "ConstantOfShape",
        "NonZero",
    }
    plain = {
        "Cos",
        "Cosh",
        "Sinh",
        "Tan",
        "Acos",
        "Asin",
        "Atan",
        "IsNaN",
        "IsInf",
        "Not",
        "Identity",
        "Dropout",
        "Selu",
    }
    plain |= {
        "And",
        "Or",
        "Xor",
        "Equal",
        "Greater",
        "Less",
        "GreaterOrEqual",
        "LessOrEqual",
        "CastLike",
        "Celu",
        "Swish",
    }
    alike = {"RMSNormalization", "SimplifiedLayerNormalization", "EyeLike"}
    assert set(ROWS) == tried | plain | alike


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (("Det", torch.eye(3), [], {}, 13), r"Det \(the node\) has no row"),
        (
            ("Resize", MAP, [None, torch.tensor([1.0, 1.0, 2.0, 2.0])], {"mode": "cubic", "cubic_coeff_a": -0.5}, 13),
            "of the mode cubic",
        ),
        (("CumSum", ROW, [torch.tensor(1)], {"reverse": 1}, 14), "reversed"),
    ],
    ids=["no row", "mode", "attribute"],
)
def test_what_has_no_row_is_refused_by_name(case: Case, says: str, tmp_path: Path) -> None:
    path = file_of(case, tmp_path / "one.onnx")
    with pytest.raises(ConversionError, match=says):
        OnnxNetwork(path)(case[1])
    other = tmp_path / "other.onnx"
    model = onnx.load(path)
    model.graph.node.append(helper.make_node("Mul", ["y", "two"], ["z"]))
    model.graph.initializer.append(tensor("two", torch.tensor(1.01)))
    model.graph.output[0].name = "z"
    onnx.save(model, other)
    found = same(path, other, case[1])
    assert found.verdict == "cannot say"
    assert case[0] in found.reason


def chain(scale: float, path: Path) -> Path:
    """A small network whose shapes are computed in the file: [n, 4, 7, 9] to [n, 6]."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first", group=2),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Shape", ["b"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["b", "t"], ["c"]),
        helper.make_node("ReduceMean", ["c"], ["y"], axes=[2], keepdims=0),
    ]
    held = [tensor("w", W["conv"] * scale), tensor("zero", ints(0)), tensor("rest", ints(6, -1))]
    onnx.save(network(nodes, held, inputs=[port("x", ["n", 4, 7, 9])], outputs=[port("y", ["n", 6])]), path)
    return path


@pytest.mark.fault
def test_two_onnx_files_are_compared(tmp_path: Path) -> None:
    a, b, c = (chain(scale, tmp_path / f"{scale}.onnx") for scale in (1.0, 1 + 1e-7, 1.001))
    assert same(a, b, MAP).verdict == "rounding"
    for pair in ((a, c), (c, a)):
        found = same(*pair, MAP)
        assert found.verdict == "not rounding"
        assert found.where[0].name == "first"
        assert "of weight differ" in found.where[0].why


@pytest.mark.fault
def test_an_onnx_file_beside_a_black_box_is_judged(tmp_path: Path) -> None:
    a, c = (chain(scale, tmp_path / f"{scale}.onnx") for scale in (1.0, 1.001))
    read = OnnxNetwork(a)
    box = opaque(lambda x: read(x)["y"])
    assert same(a, box, MAP).exit_code == 0
    assert same(box, c, MAP).verdict == "not rounding"


@pytest.mark.fault
def test_a_wrong_row_does_not_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (chain(scale, tmp_path / f"{scale}.onnx") for scale in (1.0, 1.001))
    right = rows.ROWS["Relu"]
    monkeypatch.setitem(rows.ROWS, "Relu", lambda node: right(node) * 1.0001)
    found = same(a, b, MAP)
    assert found.verdict == "cannot say"
    assert "ONNX Runtime's run of A" in found.reason


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamo", [True, False])
def test_exported_networks_are_read(tmp_path: Path, dynamo: bool) -> None:
    from tests.convert.sameness.planted import SIZES, attending, dense, mobile

    for build in (dense, mobile, attending):
        x, cnn = torch.randn(2, *SIZES[build]), build()
        wrong = copy.deepcopy(cnn)
        for module in wrong.modules():
            if isinstance(module, nn.LayerNorm | nn.BatchNorm2d | nn.GroupNorm):
                module.eps *= 1000
        files = [tmp_path / f"{build.__name__}{n}.onnx" for n in range(2)]
        for one, file in zip((cnn, wrong), files, strict=True):
            torch.onnx.export(one, (x,), file, dynamo=dynamo, verbose=False)
        assert same(files[0], files[1], x).verdict == "not rounding"
        assert same(files[0], opaque(cnn), x).exit_code == 0
