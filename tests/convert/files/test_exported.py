"""An exported program is read as the network it computes, or refused by the layer's name."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from conv2attn.convert import convert_model
from conv2attn.convert.errors import ArchitectureNeededError
from conv2attn.convert.files.checkpoint import read_checkpoint
from conv2attn.convert.files.layers import layer_tree
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from conv2attn.convert.files.readers.exported import ATTENTION, INNER, MODEL
from conv2attn.convert.spec import ConvSpec
from tests.hostile.files import tensor_input, weight, write_exported

PADDINGS: dict[str, dict[str, Any]] = {
    "no padding": {},
    "zeros": {"padding": (1, 0)},
    "same": {"padding": "same"},
    "a reflection": {"padding": (1, 2), "padding_mode": "reflect"},
    "the edge": {"padding": (0, 1), "padding_mode": "replicate"},
    "a circle": {"padding": (1, 1), "padding_mode": "circular"},
}
EXACT = ("auto", "factored")  # the engines that compute exact attention as a convolution


def network(**options: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.ReLU(), nn.Conv2d(2, 3, (3, 5), **options), nn.BatchNorm2d(3)).eval()


def exported(
    model: nn.Module, path: Path, *, decompose: bool = False, dynamic: bool = False, strict: bool = False
) -> dict[str, StoredConvolution]:
    """What a program that torch.export saved says of its convolutions."""
    height, width = (torch.export.Dim(name, min=8, max=64) for name in ("height", "width"))
    shapes = ({2: height, 3: width},) if dynamic else None
    with warnings.catch_warnings(action="ignore"):  # torch.export's own
        program = torch.export.export(model, (torch.ones(1, 2, 9, 11),), dynamic_shapes=shapes, strict=strict)
        torch.export.save(program.run_decompositions() if decompose else program, path)
    return dict(read_checkpoint(path).convolutions)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("padding", PADDINGS)
def test_a_convolution_s_padding_is_read_whatever_its_mode(padding: str, strict: bool, tmp_path: Path) -> None:
    model = network(**PADDINGS[padding])
    found = exported(model, tmp_path / "x.pt2", strict=strict)
    x = torch.randn(1, 2, 9, 11)
    layers = layer_tree(found, read_checkpoint(tmp_path / "x.pt2").state_dict)
    assert found.keys() == {"1"}
    assert torch.equal(layers.get_submodule("1")(x), model[1](x))


@pytest.mark.parametrize("padding", PADDINGS)
def test_a_decomposed_padding_is_read_or_refused_by_name(padding: str, tmp_path: Path) -> None:
    model = network(**PADDINGS[padding])
    (stored,) = exported(model, tmp_path / "x.pt2", decompose=True).values()
    if "padding_mode" in PADDINGS[padding]:
        assert stored.problem is not None
        assert "computes more than a convolution" in stored.problem
    else:
        assert stored.spec is not None
        assert stored.spec.pads == ConvSpec.from_conv(model[1]).pads  # type: ignore[arg-type]


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize(
    ("engine", "padding"),
    [
        *((engine, padding) for engine in EXACT for padding in PADDINGS),
        *((engine, padding) for engine in ("literal", "separable", "sdpa") for padding in ("zeros", "the edge")),
    ],
)
def test_exact_attention_is_read_as_its_convolution_or_refused_by_name(
    engine: str, padding: str, decompose: bool, tmp_path: Path
) -> None:
    model = network(**PADDINGS[padding])
    found = exported(convert_model(model, engine=engine).model, tmp_path / "x.pt2", decompose=decompose)
    assert found.keys() == {"1"}
    is_plain = engine in EXACT and not (decompose and "padding_mode" in PADDINGS[padding])
    if is_plain:
        assert found["1"].spec is not None
        assert found["1"].spec.pads == ConvSpec.from_conv(model[1]).pads  # type: ignore[arg-type]
        assert found["1"].spec.padding_mode == model[1].padding_mode
    else:
        assert found["1"].problem == ATTENTION


@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("padding", ["no padding", "zeros", "a reflection"])
@pytest.mark.parametrize("engine", ["auto", "literal", "separable", "factored"])
def test_soft_attention_is_refused_by_name(engine: str, padding: str, decompose: bool, tmp_path: Path) -> None:
    model = convert_model(network(**PADDINGS[padding]), alpha=2.0, engine=engine).model
    found = exported(model, tmp_path / "x.pt2", decompose=decompose)
    assert found["1"].problem == ATTENTION
    assert all(stored.spec is None for stored in found.values())


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_attention_over_images_of_any_size_is_read_as_over_one(alpha: float | None, tmp_path: Path) -> None:
    model = convert_model(network(padding=1), alpha=alpha, engine="factored").model
    found = exported(model, tmp_path / "x.pt2", dynamic=True)
    assert (found["1"].spec is None) == (alpha is not None)


def test_exact_attention_opens_as_its_convolutions_and_soft_attention_asks_for_the_architecture(tmp_path: Path) -> None:
    model, x = network(padding=1), torch.randn(1, 2, 6, 7)
    exported(convert_model(model).model, tmp_path / "x.pt2")
    exported(convert_model(model, alpha=2.0, engine="factored").model, tmp_path / "y.pt2")
    exact = open_network(tmp_path / "x.pt2")
    assert exact.checkpoint.state_dict.keys() == model.state_dict().keys()
    assert torch.equal(exact.model.get_submodule("1")(x), model[1](x))
    with pytest.raises(ArchitectureNeededError):
        open_network(tmp_path / "y.pt2")


def test_attention_alone_is_read_as_in_a_network(tmp_path: Path) -> None:
    conv = nn.Conv2d(2, 3, 3, padding=1).eval()
    exact = exported(convert_model(conv).model, tmp_path / "x.pt2")
    soft = exported(convert_model(conv, alpha=2.0, engine="factored").model, tmp_path / "y.pt2")
    assert exact[""].spec == ConvSpec.from_conv(conv)
    assert soft[""].problem == ATTENTION


def test_attention_in_a_program_that_does_not_name_its_modules_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "x.pt2", tmp_path / "y.pt2"
    exported(convert_model(network(padding=1)).model, path)
    with zipfile.ZipFile(path) as read, zipfile.ZipFile(other, "w") as written:
        for name in read.namelist():
            content = read.read(name)
            if name.endswith(MODEL):
                graph = json.loads(content)
                for node in graph["graph_module"]["graph"]["nodes"]:
                    del node["metadata"]
                content = json.dumps(graph).encode()
            written.writestr(name, content)
    assert read_checkpoint(other).convolutions["1"].problem == ATTENTION


class PadsItself(nn.Conv2d):
    """Pads in forward, on one side, as timm's Conv2dSame does."""

    def forward(self, x: Tensor) -> Tensor:
        """Pads, then convolves."""
        return super().forward(functional.pad(x, (0, 1, 0, 1)))


class Rectified(nn.Conv2d):
    """Computes something after the convolution."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolves, then rectifies."""
        return super().forward(x).relu()


@pytest.mark.parametrize("kind", [PadsItself, Rectified])
def test_a_subclass_that_computes_more_is_refused_by_name(kind: type[nn.Conv2d], tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = exported(nn.Sequential(kind(2, 3, 3)).eval(), tmp_path / "x.pt2")
    assert "computes more than a convolution" in str(found["0"].problem)


def test_padding_by_a_module_of_its_own_stays_one(tmp_path: Path) -> None:
    found = exported(nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(2, 3, 3)).eval(), tmp_path / "x.pt2")
    assert found["1"].spec == ConvSpec.from_conv(nn.Conv2d(2, 3, 3))


class Twice(nn.Module):
    """Applies one convolution to its own result."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        """Convolves twice."""
        return self.conv(self.conv(x))  # type: ignore[no-any-return]


def test_a_layer_that_is_called_twice_is_one_convolution(tmp_path: Path) -> None:
    model = Twice().eval()
    assert exported(model, tmp_path / "x.pt2")["conv"].spec == ConvSpec.from_conv(model.conv)


class Branches(nn.Module):
    """Another convolution for bright images than for dark ones, behind one for both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bright, self.dark = (nn.Conv2d(2, 2, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        """Which branch runs, the image says."""
        x = self.first(x)
        found: list[Tensor] | Tensor = torch.cond(
            x.sum() > 0, lambda x: self.bright(x).sum((2, 3)), lambda x: self.dark(x).sum((2, 3)), [x]
        )
        assert isinstance(found, Tensor)
        return found


class WithoutGradient(nn.Module):
    """A convolution that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.fixed = nn.Conv2d(2, 2, 3), nn.Conv2d(2, 2, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Without a gradient, PyTorch's program has a graph of its own."""
        x = self.first(x)
        with torch.no_grad():
            y: Tensor = self.fixed(x)
        return y


@pytest.mark.parametrize(("make", "count"), [(Branches, 2), (WithoutGradient, 1)])
def test_convolutions_in_graphs_within_a_program_are_named(
    make: Callable[[], nn.Module], count: int, tmp_path: Path
) -> None:
    found = exported(make().eval().requires_grad_(make is WithoutGradient), tmp_path / "x.pt2")
    assert found.pop("first").spec is not None
    assert [stored.problem for stored in found.values()] == [INNER] * count


class Computed(nn.Module):
    """A convolution whose weight is computed from a parameter."""

    def __init__(self, compute: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.compute = nn.Conv2d(2, 2, 3), compute

    def forward(self, x: Tensor) -> Tensor:
        """Convolves with what is made of the weight."""
        return functional.conv2d(x, self.compute(self.conv.weight), self.conv.bias)


@pytest.mark.parametrize("compute", [lambda weight: 3 * weight, lambda weight: weight.flip(3), Tensor.detach_])
def test_a_weight_that_a_program_computes_is_not_taken_for_what_is_stored(
    compute: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    (stored,) = exported(Computed(compute).eval().requires_grad_(False), tmp_path / "x.pt2").values()
    assert stored.problem is not None


class Again(nn.Module):
    """A convolution, and another with the same weight and a stride of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Convolves twice."""
        return functional.conv2d(self.conv(x), self.conv.weight, stride=2)


def test_a_weight_of_two_geometries_is_two_layers(tmp_path: Path) -> None:
    found = exported(Again().eval(), tmp_path / "x.pt2")
    assert [stored.spec and stored.spec.stride for stored in found.values()] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("write", ["self", "out"])
@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_weight_that_a_program_changes_is_not_taken_for_what_is_stored(part: str, write: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pt2"
    signature = [{"parameter": {"arg": {"name": name}, "parameter_name": f"c.{name}"}} for name in ("weight", "bias")]
    change = {
        "target": "torch.ops.aten.mul_.Scalar" if write == "self" else "torch.ops.aten.mul.out",
        "name": "mul",
        "inputs": [tensor_input(write, part)],
    }
    node = {
        "target": "torch.ops.aten.conv2d.default",
        "name": "conv2d",
        "inputs": [tensor_input(name, name) for name in ("weight", "bias")],
    }
    config = {"config": {"c.weight": weight((2, 3, 2, 2)), "c.bias": weight((2,))}}
    for nodes, problem in (([node], None), ([change, node], "the program changes its weight or bias")):
        graph = {"graph_module": {"graph": {"nodes": nodes}, "signature": {"input_specs": signature}}}
        write_exported(path, config, graph=graph)
        assert read_checkpoint(path).convolutions["c"].problem == problem


class Writing(nn.Module):
    """A convolution whose weight is changed before it runs, through a view of it, or that changes its result."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.conv, self.way = nn.Conv2d(2, 2, 3), way

    def forward(self, x: Tensor) -> Tensor:
        """Changes, and convolves."""
        view = self.conv.weight.detach()
        if self.way == "in place":
            view.mul_(2)
        elif self.way == "copied":
            view.copy_(self.conv.weight * 2)
        elif self.way == "a part":
            view[0] = 0
        elif self.way == "out":
            torch.mul(view, 2, out=view)
        elif self.way == "another":
            x = x.clone().add_(view.sum())
        return functional.relu(self.conv(x), inplace=True)


@pytest.mark.parametrize("way", ["in place", "copied", "a part", "out", "another", "none"])
def test_a_weight_that_a_program_changes_through_a_view_is_refused(way: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    (stored,) = exported(Writing(way).eval(), tmp_path / "x.pt2").values()
    found, x = read_checkpoint(tmp_path / "x.pt2").state_dict, torch.randn(1, 2, 9, 11)
    with warnings.catch_warnings(action="ignore"):
        theirs = torch.export.load(tmp_path / "x.pt2").module()(x)
    plain = functional.relu(functional.conv2d(x, found["conv.weight"], found["conv.bias"]))
    assert (stored.problem is None) == (way in ("another", "none"))
    assert torch.equal(theirs, plain) == (way == "none")
    if stored.problem is not None:
        assert stored.problem == "the program changes its weight or bias"


class Later(nn.Module):
    """Writes into a weight after it was used, so that it is another the next time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 2, bias=False)
        weight = self.conv.weight.detach().clone()
        del self.conv.weight
        self.conv.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        """Convolves."""
        found: Tensor = self.conv(x)
        self.conv.weight.mul_(2)
        return found


@pytest.mark.parametrize("decompose", [False, True])
def test_a_weight_that_a_program_changes_when_it_ends_is_refused(decompose: bool, tmp_path: Path) -> None:
    (stored,) = exported(Later().eval(), tmp_path / "x.pt2", decompose=decompose).values()
    x = torch.randn(1, 2, 9, 11)
    with warnings.catch_warnings(action="ignore"):
        theirs = torch.export.load(tmp_path / "x.pt2").module()
    assert not torch.equal(theirs(x), theirs(x))
    assert stored.problem == "the program changes its weight or bias"


def entry_of(kind: str, content: object) -> dict[str, object]:
    """Whether a convolution is transposed, as an argument of this kind."""
    return {"name": "transposed", "arg": {kind: content}, "kind": 1}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (entry_of("as_bool", True), None),
        (entry_of("as_bool", False), None),
        (entry_of("as_none", True), None),
        (entry_of("as_int", 1), "whether it is transposed is told by no truth value"),
        (entry_of("as_float", 1.0), "whether it is transposed is told by no truth value"),
    ],
)
def test_a_convolution_is_transposed_by_a_truth_value_alone(
    given: dict[str, object], problem: str | None, tmp_path: Path
) -> None:
    """PyTorch takes numbers for one."""
    tensors = [tensor_input("weight", "weight")]
    node = {"target": "torch.ops.aten.convolution.default", "name": "own", "inputs": [*tensors, given]}
    (stored,) = program_of(node, tmp_path / "x").values()
    assert stored.problem == problem
    if stored.spec is not None:
        assert stored.spec.transposed == (given["arg"] == {"as_bool": True})


def program_of(node: Mapping[str, object], path: Path) -> dict[str, StoredConvolution]:
    """The convolutions of a program of one node."""
    signature = [{"parameter": {"arg": {"name": "weight"}, "parameter_name": "c.weight"}}]
    graph = {"graph": {"nodes": [node]}, "signature": {"input_specs": signature}}
    write_exported(path, {"config": {"c.weight": weight((2, 3, 2, 2))}}, graph={"graph_module": graph})
    return dict(read_checkpoint(path).convolutions)


@pytest.mark.parametrize(
    "target",
    [
        *("torch._ops.ops.aten.conv2d.default", "torch.ops.aten._convolution.default", "torch.ops.own.fast_conv"),
        *("torch.ops.aten.mkldnn_convolution.default", "torch.ops.onednn.qconv2d_pointwise.default"),
    ],
)
def test_a_convolution_by_another_operation_is_named(target: str, tmp_path: Path) -> None:
    node: dict[str, object] = {"target": target, "name": "own", "inputs": [tensor_input("weight", "weight")]}
    assert [*program_of(node, tmp_path / "x")] == ["c"]
    assert str(program_of(node, tmp_path / "x")["c"].problem).endswith("is not a plain convolution")


def test_a_change_of_dtype_is_no_convolution(tmp_path: Path) -> None:
    node: dict[str, object] = {"target": "torch.ops.prims.convert_element_type.default", "name": "own", "inputs": []}
    assert program_of(node, tmp_path / "x") == {}
