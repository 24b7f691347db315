"""A converted network goes through torch.compile and torch.export, with any batch and size."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv, certify, convert_model
from conv2attn.proofs.evidence.campaign.checks.bounds import engines_bound

SHAPES = [(2, 3, 16, 20), (3, 3, 18, 24), (4, 3, 25, 22)]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()


def network(alpha: float | None) -> nn.Sequential:
    convs = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, (3, 2), stride=2, padding=1, groups=2), nn.Conv2d(8, 4, 1)
    reflect = nn.Conv2d(4, 4, 3, padding=2, dilation=2, padding_mode="reflect")
    cnn = nn.Sequential(convs[0], nn.BatchNorm2d(8), nn.ReLU(), convs[1], nn.ReLU(), convs[2], reflect).eval()
    model = convert_model(cnn, alpha=alpha).model
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


def inputs() -> list[Tensor]:
    return [torch.randn(shape).clamp(-1, 1) for shape in SHAPES]


@pytest.mark.parametrize("trained", [False, True])
def test_a_trained_layer_is_traced_with_the_positions_of_its_last_step(trained: bool) -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 4, 3), alpha=2.0).requires_grad_(), torch.randn(1, 3, 8, 7)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    layer(x).square().mean().backward()
    optimizer.step()
    layer.eval().requires_grad_(trained)
    with torch.no_grad():
        found = torch.compile(layer, backend="eager")(x)
        bound = engines_bound(layer, x)
        assert (found - layer(x)).abs().max().item() <= bound


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_a_converted_network_compiles_into_one_graph_for_every_size(alpha: float | None) -> None:
    model = network(alpha)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for x in inputs():
        assert (compiled(x) - model(x)).abs().max() <= bound_of(model, x)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_a_converted_network_exports_with_dynamic_batch_and_size(alpha: float | None, strict: bool) -> None:
    model = network(alpha)
    dynamic = {
        axis: torch.export.Dim(name, min=low, max=64) for axis, name, low in ((0, "b", 2), (2, "h", 8), (3, "w", 8))
    }
    program = torch.export.export(model, (inputs()[0],), dynamic_shapes=(dynamic,), strict=strict).module()
    for x in inputs():
        assert (program(x) - model(x)).abs().max() <= bound_of(model, x)


def test_a_compiled_network_trains_like_the_plain_one() -> None:
    model = network(None)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = inputs()[0]
    plain = torch.autograd.grad(model(x).sum(), list(model[0].parameters())[:2])
    traced = torch.autograd.grad(compiled(x).sum(), list(model[0].parameters())[:2])
    for a, b in zip(plain, traced, strict=True):
        assert torch.equal(a, b)


def test_a_compiled_network_refuses_positions_that_changed_behind_its_back() -> None:
    model = network(None)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = inputs()[0]
    compiled(x)
    with torch.no_grad():
        model.get_parameter("0.alpha").fill_(1.0)
    with pytest.raises(RuntimeError, match="changed after the layer was traced"):
        compiled(x)
    expected = model(x)  # looks at the positions again, so that the graph is made anew
    assert (compiled(x) - expected).abs().max() <= bound_of(model, x)


def test_an_exported_network_refuses_positions_that_changed() -> None:
    model = network(None)
    x = inputs()[0]
    program = torch.export.export(model, (x,)).module()
    state = program.state_dict()
    with torch.no_grad():
        state["0.alpha"].fill_(1.0)
    with pytest.raises(RuntimeError, match="changed after the layer was traced"):
        program(x)


@pytest.mark.parametrize("change", ["load", "double", "copy"])
def test_what_replaces_positions_is_seen_by_the_next_trace(change: str) -> None:
    model, soft = network(None), network(1.0)
    x = inputs()[0]
    if change == "load":
        model.load_state_dict(soft.state_dict())
    elif change == "double":
        model, x = soft.double(), x.double()
    else:
        model = copy.deepcopy(soft)
    program = torch.export.export(model, (x,)).module()
    assert (program(x) - model(x)).abs().max() <= bound_of(model, x)
