"""A converted network goes through torch.func, torch.fx and others, or is refused by name."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, stack_module_state, vmap
from torch.fx.experimental.proxy_tensor import make_fx

from conv2attn.convert import ConversionError, SelfAttention2d, attention_from_conv, certify, convert_model

LAYERS = [(None, engine) for engine in ("auto", "literal", "sdpa")] + [
    (1.0, engine) for engine in ("separable", "factored")
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        yield


def make(
    alpha: float | None, engine: str = "auto", *, dtype: torch.dtype = torch.float32, trained: bool = False
) -> SelfAttention2d:
    conv = nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=1, groups=2, dtype=dtype)
    layer = attention_from_conv(conv, alpha=alpha, engine=engine)
    if trained:
        layer.train_positions()
    return layer


def network(alpha: float | None = None, engine: str = "auto") -> nn.Module:
    cnn = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, (3, 2), stride=2, padding=1))
    return convert_model(cnn.eval(), alpha=alpha, engine=engine).model


def output_of(layer: SelfAttention2d, name: str, x: Tensor) -> Callable[[Tensor], Tensor]:
    """The layer's output as a function of one parameter."""
    return lambda value: functional_call(layer, {name: value}, (x,))


def rounding(layer: SelfAttention2d, x: Tensor) -> float:
    """How far two engines' results for an input can be apart."""
    reach = x.abs().max().item()
    return 2 * certify(layer, input_range=(-reach, reach)).rounding_attention


@pytest.mark.parametrize(("alpha", "engine"), LAYERS)
def test_vmap_over_inputs_computes_each_of_them(alpha: float | None, engine: str) -> None:
    layer, x = make(alpha, engine), torch.randn(3, 2, 2, 6, 7)
    expected = torch.stack([layer(part) for part in x])
    assert (vmap(layer)(x) - expected).abs().max() <= rounding(layer, x)


@pytest.mark.parametrize(("alpha", "engine"), LAYERS)
def test_an_ensemble_computes_each_of_its_members(alpha: float | None, engine: str) -> None:
    members, x = [make(alpha, engine) for _ in range(3)], torch.randn(2, 2, 6, 7)
    parameters, buffers = stack_module_state(list[nn.Module](members))
    skeleton = copy.deepcopy(members[0]).to("meta")
    outputs = vmap(lambda p, b: functional_call(skeleton, (p, b), (x,)))(parameters, buffers)
    for member, output in zip(members, outputs, strict=True):
        assert (output - member(x)).abs().max() <= rounding(member, x)


@pytest.mark.parametrize("name", ["log_alpha", "centers"])
@pytest.mark.parametrize("engine", ["literal", "separable"])
def test_vmap_over_different_positions_computes_each_of_them(name: str, engine: str) -> None:
    layer, x = make(1.0, engine, dtype=torch.float64, trained=True), torch.randn(1, 2, 20, 7).double()
    position = layer.get_parameter(name).detach()
    positions = torch.stack([position, 0.5 * position + 0.75])
    outputs = vmap(output_of(layer, name, x))(positions)
    for value, output in zip(positions, outputs, strict=True):
        other = copy.deepcopy(layer)
        other.engine = "literal"
        other.get_parameter(name).data.copy_(value)
        assert (output - other(x)).abs().max() <= 1e-12 * (1 + other(x).abs().max())


@pytest.mark.parametrize(("alpha", "engine"), LAYERS)
def test_forward_and_backward_jacobians_agree(alpha: float | None, engine: str) -> None:
    layer = make(alpha, "auto" if engine == "sdpa" else engine, dtype=torch.float64)
    x = torch.randn(1, 2, 5, 4, dtype=torch.float64)
    backward: Tensor = jacrev(layer)(x)
    assert (jacfwd(layer)(x) - backward).abs().max() <= 1e-12 * backward.abs().max()
    assert torch.equal(backward, torch.autograd.functional.jacobian(layer, x))


@pytest.mark.parametrize("name", ["weight", "bias", "log_alpha", "centers"])
@pytest.mark.parametrize("engine", ["literal", "separable"])
def test_forward_and_backward_derivatives_of_every_parameter_agree(name: str, engine: str) -> None:
    layer, x = make(1.0, engine, dtype=torch.float64, trained=True), torch.randn(2, 2, 5, 4).double()

    output = output_of(layer, name, x)

    def loss(value: Tensor) -> Tensor:
        return output(value).square().sum()

    value = layer.get_parameter(name).detach()
    backward = grad(loss)(value)
    assert backward.abs().max() > 0
    assert (jacfwd(loss)(value) - backward).abs().max() <= 1e-12 * backward.abs().max()
    assert (grad(lambda v: grad(lambda s: loss(s * v))(torch.ones((), dtype=v.dtype)))(value)).abs().max() > 0


def test_the_tangent_of_alpha_is_not_lost_outside_of_torch_func() -> None:
    layer, x = make(1.0, dtype=torch.float64, trained=True), torch.randn(1, 2, 5, 4).double()
    value = layer.get_parameter("log_alpha").detach()
    direction = torch.ones_like(value)
    expected = jvp(output_of(layer, "log_alpha", x), (value,), (direction,))[1]
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(value, direction)
        tangent = torch.autograd.forward_ad.unpack_dual(output_of(layer, "log_alpha", x)(dual)).tangent
    assert tangent is not None
    assert torch.equal(tangent, expected)
    assert tangent.abs().max() > 0


@pytest.mark.parametrize("alpha", [None, 1.0])
def test_symbolic_tracing_sees_each_layer_as_one_call(alpha: float | None) -> None:
    model = network(alpha)
    traced = fx.symbolic_trace(model)
    calls = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert calls == ["0", "1", "2"]
    traced.graph.lint()
    for size in ((6, 7), (9, 8)):
        x = torch.randn(2, 2, *size)
        assert torch.equal(traced(x), model(x))


def double_input(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(2 * x for x in inputs)


def double_layers(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
    return 2 * output if isinstance(module, SelfAttention2d) else None


@pytest.mark.parametrize("where", ["before", "everywhere"])
def test_hooks_run_once_in_a_symbolically_traced_network(where: str) -> None:
    model = network()
    layer = model.get_submodule("2")
    if where == "before":
        handle = layer.register_forward_pre_hook(double_input)
    else:
        handle = nn.modules.module.register_module_forward_hook(double_layers)  # type: ignore[arg-type]
    x = torch.randn(2, 2, 6, 7)
    try:
        expected = model(x)
        traced = fx.symbolic_trace(model)
    finally:
        if where == "everywhere":
            handle.remove()
    assert torch.equal(traced(x), expected)


def test_a_layer_traced_by_itself_is_refused_with_a_way_out() -> None:
    layer = make(None)
    with pytest.raises(ConversionError, match=r"wrap it in nn\.Sequential"):
        fx.symbolic_trace(layer)
    x = torch.randn(1, 2, 6, 7)
    assert torch.equal(fx.symbolic_trace(nn.Sequential(layer))(x), layer(x))


@pytest.mark.parametrize(
    "made", [torch.jit.script, lambda model: torch.jit.trace(model, torch.randn(1, 2, 6, 7))], ids=["script", "trace"]
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch means to give TorchScript up
def test_torchscript_is_refused_with_a_way_out(made: Callable[[nn.Module], object]) -> None:
    with pytest.raises(ConversionError, match=r"TorchScript cannot follow a self-attention layer.*torch\.export"):
        made(network())


@pytest.mark.parametrize(
    ("alpha", "engine", "mode"),
    [*((*layer, "symbolic") for layer in LAYERS), (1.0, "factored", "fake")],
)
def test_make_fx_records_the_layer(alpha: float | None, engine: str, mode: Literal["fake", "symbolic"]) -> None:
    layer, x = make(alpha, engine), torch.randn(2, 2, 6, 7)

    def call(parameters: dict[str, Tensor], image: Tensor) -> Tensor:
        output: Tensor = functional_call(layer, parameters, (image,))
        return output

    parameters = dict(layer.named_parameters())
    recorded = make_fx(call, tracing_mode=mode)(parameters, x)
    assert (recorded(parameters, x) - layer(x)).abs().max() <= rounding(layer, x)


@pytest.mark.parametrize(("alpha", "engine"), [(None, "auto"), (1.0, "literal"), (1.0, "separable")])
def test_layers_without_values_compute_shapes(alpha: float | None, engine: str) -> None:
    model, x = network(alpha, engine), torch.randn(2, 2, 36, 37)
    shape = model(x).shape
    meta = copy.deepcopy(model).to("meta")
    assert meta(x.to("meta")).shape == shape
    assert "factored" in meta.get_submodule("0").explain((8, 9))  # type: ignore[operator]
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert model(torch.randn(2, 2, 36, 37)).shape == shape
