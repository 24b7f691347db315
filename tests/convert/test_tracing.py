"""Networks and every engine go through torch.compile and torch.export, with any batch and size, and train compiled."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from conv2attn.convert import SelfAttention2d, attention_from_conv, certify, convert_model
from conv2attn.proofs.campaign.checks import engines_bound

LAYERS = [
    (None, "literal"),
    (None, "sdpa"),
    (None, "separable"),
    (1.0, "separable"),
    (1.0, "factored"),
]
SIZES = [(2, 16, 20), (3, 18, 24), (4, 25, 22)]  # batch, rows, columns


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()


def composite() -> nn.Sequential:
    convs = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, (3, 2), stride=2, padding=1, groups=2), nn.Conv2d(8, 4, 1)
    reflect = nn.Conv2d(4, 4, 3, padding=2, dilation=2, padding_mode="reflect")
    return nn.Sequential(convs[0], nn.BatchNorm2d(8), nn.ReLU(), convs[1], nn.ReLU(), convs[2], reflect)


def network(alpha: float | None) -> nn.Sequential:
    model = convert_model(composite().eval(), alpha=alpha).model
    assert isinstance(model, nn.Sequential)
    return model


def bound_of(model: nn.Module, x: Tensor) -> float:
    """How far two computations of the network can be apart: each layer's rounding, amplified by the layers after it."""
    error = 0.0
    for module in model.children():
        if isinstance(module, SelfAttention2d):
            amplification = module.weight.abs().sum((1, 2, 3)).max().item()
            reach = x.abs().max().item()
            error = error * amplification + 2 * certify(module, input_range=(-reach, reach)).rounding_attention
        elif isinstance(module, nn.BatchNorm2d):
            ones = torch.ones(1, 8, 1, 1, dtype=x.dtype)
            error *= 2 * (module(ones) - module(0 * ones)).abs().max().item()
            error += 4 * torch.finfo(x.dtype).eps * module(x).abs().max().item()
        x = module(x)
    return error


def inputs(channels: int = 3) -> list[Tensor]:
    return [torch.randn(batch, channels, *size).clamp(-1, 1) for batch, *size in SIZES]


@pytest.mark.parametrize("trained", [False, True])
def test_a_trained_layer_is_traced_with_the_positions_of_its_last_step(trained: bool) -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 4, 3), alpha=2.0), torch.randn(1, 3, 8, 7)
    layer.train_positions()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    layer(x).square().mean().backward()
    optimizer.step()
    layer.eval().requires_grad_(trained)
    with torch.no_grad():
        found = torch.compile(layer, backend="eager")(x)
        bound = engines_bound(layer, x)
        assert (found - layer(x)).abs().max().item() <= bound


GEOMETRIES: list[tuple[nn.Module, tuple[int, ...]]] = [
    (nn.Conv2d(3, 4, 3, padding=1), (9, 8)),
    (nn.Conv2d(4, 4, (3, 2), stride=(1, 2), padding=1, dilation=2, groups=2, bias=False), (9, 8)),
    (nn.Conv2d(3, 4, 3, padding="same"), (9, 8)),
    (nn.Conv2d(3, 4, 3, padding="valid"), (9, 8)),
    (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect", stride=2), (9, 8)),
    (nn.Conv2d(3, 4, 3, padding=(1, 2), padding_mode="replicate"), (9, 8)),
    (nn.Conv2d(3, 4, 3, padding="same", padding_mode="circular"), (9, 8)),
    (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (9, 8)),
    (nn.Conv1d(3, 4, 3, padding=1), (9,)),
    (nn.ConvTranspose1d(3, 4, 3, dilation=2), (9,)),
    (nn.Conv3d(3, 4, (3, 1, 2), padding=1), (5, 6, 4)),
    (nn.ConvTranspose3d(3, 4, 2, stride=2), (5, 6, 4)),
]


def graph_of(module: nn.Module, x: Tensor) -> list[tuple[str, ...]]:
    """Every node of an exported graph: its kind, name, operation and arguments."""
    nodes = torch.export.export(module, (x,)).graph.nodes
    return [tuple(map(str, (node.op, node.name, node.target, node.args, node.kwargs))) for node in nodes]


@pytest.mark.parametrize(
    ("conv", "size", "dtype"),
    [*((*each, torch.float32) for each in GEOMETRIES), (*GEOMETRIES[1], torch.bfloat16)],
)
def test_the_graph_of_an_exact_layer_is_its_convolution_s_node_for_node(
    conv: nn.Conv2d, size: tuple[int, ...], dtype: torch.dtype
) -> None:
    made, x = copy.deepcopy(conv).to(dtype), torch.randn(2, conv.in_channels, *size).to(dtype)
    assert graph_of(attention_from_conv(made), x) == graph_of(made, x)
    assert graph_of(attention_from_conv(made), x[0]) == graph_of(made, x[0])


def test_the_graph_of_an_exact_network_is_the_cnn_s_node_for_node() -> None:
    cnn = composite().eval()
    assert graph_of(convert_model(cnn).model, inputs()[0]) == graph_of(cnn, inputs()[0])
    soft = [node[2] for node in graph_of(convert_model(cnn, alpha=2.0).model, inputs()[0])]
    assert soft.count("aten.conv2d.default") == 2 * 4  # constant kernels, and the convolutions


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_a_converted_network_compiles_into_one_graph_for_every_size(alpha: float | None) -> None:
    model = network(alpha)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for x in inputs():
        assert (compiled(x) - model(x)).abs().max() <= bound_of(model, x)


@pytest.mark.parametrize(("alpha", "strict"), [(None, True), (2.0, False)])
def test_a_converted_network_exports_with_dynamic_batch_and_size(alpha: float | None, strict: bool) -> None:
    model = network(alpha)
    dynamic = {axis: Dim(name, min=low, max=64) for axis, name, low in ((0, "b", 2), (2, "h", 8), (3, "w", 8))}
    program = torch.export.export(model, (inputs()[0],), dynamic_shapes=(dynamic,), strict=strict).module()
    for x in inputs():
        assert (program(x) - model(x)).abs().max() <= bound_of(model, x)


# Every engine by itself


def make(alpha: float | None, engine: str = "auto") -> SelfAttention2d:
    conv = nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=1, dilation=(1, 2), groups=2)
    return attention_from_conv(conv, alpha=alpha, engine=engine)


def rounding(layer: SelfAttention2d) -> float:
    """How far two engines' results for an image can be apart."""
    return 2 * certify(layer, input_range=(-1, 1)).rounding_attention


@pytest.mark.parametrize(("alpha", "engine", "dynamic"), [*((*layer, None) for layer in LAYERS), (1.0, "auto", True)])
def test_every_engine_compiles_into_one_graph(alpha: float | None, engine: str, dynamic: bool | None) -> None:
    layer = make(alpha, engine)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for x in inputs(2):
        assert (compiled(x) - layer(x)).abs().max() <= rounding(layer)


@pytest.mark.parametrize(
    ("alpha", "engine", "strict"), [*((*layer, False) for layer in LAYERS), (None, "literal", True)]
)
def test_every_engine_exports_with_dynamic_batch_and_size(alpha: float | None, engine: str, strict: bool) -> None:
    layer = make(alpha, engine)
    sizes = {0: Dim("batch", min=2), 2: Dim("rows", min=4), 3: Dim("columns", min=4)}
    program = torch.export.export(layer, (inputs(2)[0],), dynamic_shapes=(sizes,), strict=strict)
    for exported in (program, program.run_decompositions()):
        module = exported.module()
        for x in inputs(2):
            assert (module(x) - layer(x)).abs().max() <= rounding(layer)


@pytest.mark.parametrize(("alpha", "engine"), LAYERS)
def test_a_compiled_step_has_the_gradients_of_the_plain_one(alpha: float | None, engine: str) -> None:
    layer = make(alpha, engine).double()
    if alpha is not None and engine != "factored":
        layer.train_positions()
    wanted = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for x in inputs(2)[:2]:
        plain = torch.autograd.grad(layer(x.double()).square().sum(), wanted)
        traced = torch.autograd.grad(compiled(x.double()).square().sum(), wanted)
        for a, b in zip(plain, traced, strict=True):
            assert (a - b).abs().max() <= 1e-12 * a.abs().max()


@pytest.mark.parametrize("transposed", [False, True])
def test_inductor_compiles_a_training_step_for_symbolic_sizes(transposed: bool) -> None:
    layer = attention_from_conv(nn.ConvTranspose2d(2, 4, 3, stride=2), alpha=1.0) if transposed else make(1.0)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    # Inductor (torch 2.13) may take from its cache the graph of this layer for other sizes, which has other strides.
    # The machine's compiled headers are used: half of a compilation into an empty folder goes into them.
    from torch._inductor import config as inductor  # seconds

    with inductor.patch(fx_graph_cache=False):
        for x in inputs(2):
            output = compiled(x)
            assert (output - layer(x)).abs().max() <= rounding(layer)
            (gradient,) = torch.autograd.grad(output.sum(), [layer.weight])
            assert gradient.isfinite().all()


@pytest.mark.parametrize("groups", [1, 2])
def test_a_layer_of_trained_positions_exports_with_dynamic_batch_and_size(groups: int) -> None:
    layer = attention_from_conv(nn.Conv2d(4, 6, 3, padding=1, groups=groups), alpha=2.0)
    layer.train_positions()
    layer.eval().requires_grad_(False)
    sizes = dict.fromkeys((0, 2, 3), Dim.AUTO)
    program = torch.export.export(layer, (torch.randn(2, 4, 12, 14),), dynamic_shapes=(sizes,)).module()
    for shape in ((2, 4, 12, 14), (3, 4, 16, 14), (2, 4, 18, 21)):
        x = torch.randn(shape)
        assert (program(x) - layer(x)).abs().max().item() <= engines_bound(layer, x)
