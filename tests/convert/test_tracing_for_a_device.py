"""A converted layer is traced for a GPU into one graph, which computes there, waits for nothing, and checks positions.

torch.compile traces with tensors that have no values (FakeTensor), of whatever device; so no GPU is needed for it. The
graph is then run on the pretend device.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from conv2attn.convert import SelfAttention2d, attention_from_conv, certify
from conv2attn.convert.engines import AUTO, ENGINES
from conv2attn.convert.heads import regime_cache
from tests.device import PRETEND, synchronisations

ENGINE_NAMES = [AUTO, *(name for name in ENGINES if name != "sdpa")]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(regime_cache, "_ASSERTING", {"cuda", "pretend"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()


def traced(layer: SelfAttention2d, x: Tensor) -> Callable[[], Tensor]:
    """Traces a layer with tensors that have no values, and returns what its graph computes of the real ones."""
    mode = FakeTensorMode()
    real: dict[int, Tensor] = {}

    def without_values(tensor: Tensor) -> Tensor:
        shape, dtype, device = tensor.shape, tensor.dtype, tensor.device
        with mode:
            empty = torch.empty(shape, dtype=dtype, device=device)
        if isinstance(tensor, nn.Parameter):
            empty = nn.Parameter(empty, tensor.requires_grad)
        real[id(empty)] = tensor
        return empty

    def on_real_tensors(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return lambda *arguments: graph(*(real[id(argument)] for argument in arguments))

    shadow, empty = copy.deepcopy(layer), without_values(x)
    for name, parameter in layer.named_parameters():
        setattr(shadow, name, without_values(parameter))
    compiled = torch.compile(shadow, backend=on_real_tensors, fullgraph=True, dynamic=False)
    return lambda: compiled(empty)


def example(alpha: float | None, engine: str) -> tuple[SelfAttention2d, Tensor]:
    conv = nn.Conv2d(3, 4, (3, 2), padding=1, device=PRETEND)
    return attention_from_conv(conv, alpha=alpha, engine=engine), torch.rand(2, 3, 21, 18).to(PRETEND)


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_the_graph_computes_the_layer_and_waits_for_nothing(alpha: float | None, engine: str) -> None:
    layer, x = example(alpha, engine)
    run = traced(layer, x)
    run()
    with synchronisations(PRETEND) as found:
        output = run()
    assert found == []
    assert output.device == PRETEND
    bound = 2 * certify(layer, input_range=(0, 1)).rounding_attention
    assert (output.double() - layer(x).double()).abs().max().item() <= bound


@pytest.mark.parametrize("asserting", [{"pretend"}, set()])
@pytest.mark.parametrize("name", ["alpha", "centers"])
def test_the_graph_raises_where_positions_changed(
    name: str, asserting: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regime_cache, "_ASSERTING", asserting)
    layer, x = example(2.0, AUTO)
    run = traced(layer, x)
    run()
    layer.get_parameter(name).data[3] += 1
    with pytest.raises(RuntimeError, match="changed after the layer was traced"):
        run()


def test_the_graph_of_a_layer_in_training_gives_its_positions_gradients() -> None:
    layer, x = example(2.0, AUTO)
    layer.requires_grad_()
    traced(layer, x)().square().mean().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in layer.parameters())
