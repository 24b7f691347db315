"""Every engine goes through torch.compile and torch.export with dynamic batch and size, and trains compiled."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.func import functional_call, jacfwd, stack_module_state, vmap

from conv2attn.convert import SelfAttention2d, attention_from_conv, certify

LAYERS = [
    (None, "literal"),
    (None, "sdpa"),
    (None, "separable"),
    (1.0, "literal"),
    (1.0, "separable"),
    (1.0, "factored"),
]
SHAPES = [(2, 2, 6, 7), (3, 2, 11, 8), (4, 2, 9, 20)]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()


def make(alpha: float | None, engine: str = "auto") -> SelfAttention2d:
    conv = nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=1, dilation=(1, 2), groups=2)
    return attention_from_conv(conv, alpha=alpha, engine=engine)


def images() -> list[Tensor]:
    return [torch.randn(shape).clamp(-1, 1) for shape in SHAPES]


def rounding(layer: SelfAttention2d) -> float:
    """How far two engines' results for an image can be apart."""
    return 2 * certify(layer, input_range=(-1, 1)).rounding_attention


@pytest.mark.parametrize(("alpha", "engine"), LAYERS)
def test_every_engine_compiles_into_one_graph(alpha: float | None, engine: str) -> None:
    compiles(make(alpha, engine), dynamic=None)


@pytest.mark.parametrize("dynamic", [True, False])
def test_sizes_may_be_symbols_or_numbers(dynamic: bool) -> None:
    compiles(make(1.0), dynamic=dynamic)


def compiles(layer: SelfAttention2d, *, dynamic: bool | None) -> None:
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for x in images():
        assert (compiled(x) - layer(x)).abs().max() <= rounding(layer)


@pytest.mark.parametrize(
    ("alpha", "engine", "strict"), [*((*layer, False) for layer in LAYERS), (None, "literal", True)]
)
def test_every_engine_exports_with_dynamic_batch_and_size(alpha: float | None, engine: str, strict: bool) -> None:
    layer = make(alpha, engine)
    sizes = {0: Dim("batch", min=2), 2: Dim("rows", min=4), 3: Dim("columns", min=4)}
    program = torch.export.export(layer, (images()[0],), dynamic_shapes=(sizes,), strict=strict)
    for exported in (program, program.run_decompositions()):
        module = exported.module()
        for x in images():
            assert (module(x) - layer(x)).abs().max() <= rounding(layer)


@pytest.mark.parametrize(("alpha", "engine"), LAYERS)
def test_a_compiled_step_has_the_gradients_of_the_plain_one(alpha: float | None, engine: str) -> None:
    layer = make(alpha, engine).double()
    if alpha is not None and engine != "factored":
        layer.train_positions()
    wanted = [parameter for parameter in layer.parameters() if parameter.requires_grad]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for x in images():
        plain = torch.autograd.grad(layer(x.double()).square().sum(), wanted)
        traced = torch.autograd.grad(compiled(x.double()).square().sum(), wanted)
        for a, b in zip(plain, traced, strict=True):
            assert (a - b).abs().max() <= 1e-12 * a.abs().max()


@pytest.mark.parametrize("transposed", [False, True])
def test_inductor_compiles_a_training_step_for_symbolic_sizes(
    transposed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Inductor (torch 2.13) may take from its cache the code of this graph for other sizes, which has other strides.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    layer = attention_from_conv(nn.ConvTranspose2d(2, 4, 3, stride=2), alpha=1.0) if transposed else make(1.0)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for x in images():
        output = compiled(x)
        assert (output - layer(x)).abs().max() <= rounding(layer)
        (gradient,) = torch.autograd.grad(output.sum(), [layer.weight])
        assert gradient.isfinite().all()


def test_derivatives_of_positions_are_compiled() -> None:
    layer, x = make(1.0).double(), images()[0].double()
    layer.train_positions()

    def loss(alpha: Tensor) -> Tensor:
        output: Tensor = functional_call(layer, {"log_alpha": alpha}, (x,))
        return output.square().sum()

    alpha = layer.get_parameter("log_alpha").detach()
    expected = jacfwd(loss)(alpha)
    assert expected.abs().max() > 0
    compiled = torch.compile(jacfwd(loss), backend="aot_eager")(alpha)
    assert (compiled - expected).abs().max() <= 1e-12 * expected.abs().max()


def test_an_ensemble_is_compiled() -> None:
    members, x = [make(None) for _ in range(2)], images()[0]
    parameters, _ = stack_module_state(list[nn.Module](members))

    def ensemble(values: dict[str, Tensor]) -> Tensor:
        outputs: Tensor = vmap(lambda each: functional_call(members[0], each, (x,)))(values)
        return outputs

    outputs = torch.compile(ensemble, backend="aot_eager")(parameters)
    for member, output in zip(members, outputs, strict=True):
        assert (output - member(x)).abs().max() <= rounding(member)
