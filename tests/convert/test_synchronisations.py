"""A GPU is not waited for where it need not be, and what is kept of a layer's positions is never wrong in silence.

``torch.cuda.set_sync_debug_mode`` and the pretend device count as waiting: reading numbers, results whose shape depends
on numbers, and copies between the device and the CPU in either direction.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv, convert_model
from conv2attn.convert.attention.layer import set_engine
from conv2attn.convert.engines import AUTO, ENGINES
from conv2attn.convert.heads import regime_cache
from tests.device import DEVICES, synchronisations

SMALL = (6, 5)
ENGINE_NAMES = [AUTO, *(name for name in ENGINES if name != "sdpa")]  # which refuses every device but the CPU
TRAINING_ENGINES = [AUTO, "literal", "separable"]  # the factored one refuses positions that are trained
SIZE, OTHER_SIZE = (23, 18), (18, 25)  # more than 16 queries along an axis, so that tables are taken in blocks


@pytest.fixture(autouse=True)
def _the_pretend_device_asserts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regime_cache, "_ASSERTING", {"cuda", "pretend"})


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def network(alpha: float | None, engine: str, device: str) -> nn.Sequential:
    cnn = nn.Sequential(
        nn.Conv2d(3, 4, (3, 2), padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2, groups=2)
    )
    model = convert_model(cnn.to(device), alpha=alpha).model
    assert isinstance(model, nn.Sequential)
    set_engine(model, engine)
    return model


def image(device: str, size: tuple[int, int] = SIZE) -> Tensor:
    return torch.randn(2, 3, *size).to(device)


def attentions(model: nn.Module) -> Iterator[SelfAttention2d]:
    return (module for module in model.modules() if isinstance(module, SelfAttention2d))


@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("alpha", [None, 2.0])
@pytest.mark.parametrize("gradients", [False, True])
def test_after_the_first_of_its_size_a_forward_call_waits_for_nothing(
    gradients: bool, alpha: float | None, engine: str, device: str
) -> None:
    model, small, large = network(alpha, engine, device).eval(), image(device), image(device, OTHER_SIZE)
    with torch.set_grad_enabled(gradients):
        model(small)
        model(large)
        with synchronisations(device) as found:
            model(small)
            model(large)
    assert found == []


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}])
@pytest.mark.parametrize("engine", ENGINE_NAMES)
@pytest.mark.parametrize("alpha", [None, 2.0])
def test_a_training_step_with_fixed_positions_waits_for_nothing(
    alpha: float | None, engine: str, options: dict[str, bool], device: str
) -> None:
    model, x = network(alpha, engine, device), image(device)
    step = training_step(model, x, torch.optim.SGD(model.parameters(), lr=0.01, **options))
    step()
    with synchronisations(device) as found:
        step()
        step()
    assert found == []


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}])
@pytest.mark.parametrize("engine", TRAINING_ENGINES)
def test_a_training_step_with_positions_waits_for_nothing(engine: str, options: dict[str, bool], device: str) -> None:
    model, x = network(2.0, engine, device).requires_grad_(), image(device)
    step = training_step(model, x, torch.optim.SGD(model.parameters(), lr=0.001, **options))
    step()
    before = [layer.alpha.tolist() for layer in attentions(model)]
    with synchronisations(device) as found:
        step()
        step()
    assert found == []
    assert all(layer.alpha.tolist() != alpha for layer, alpha in zip(attentions(model), before, strict=True))


def test_learned_scores_are_not_read(device: str) -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 4, 3, padding=1, device=device)), image(device)
    layer.set_axis_scores(torch.randn(9, 51), torch.randn(9, 51))
    layer(x)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients), synchronisations(device) as found:
            layer(x)
        assert found == []


@pytest.mark.parametrize("gated", [False, True])
def test_content_is_not_read(gated: bool, device: str) -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 4, 3, device=device), alpha=1.0), image(device, (6, 5))
    layer.add_content(2, gated=gated)
    layer(x)
    with synchronisations(device) as found:
        layer(x)
    assert found == []


def training_step(model: nn.Module, x: Tensor, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def in_place(layer: SelfAttention2d, alpha: Tensor) -> None:
    with torch.no_grad():
        layer.alpha.copy_(alpha)


def through_an_alias(layer: SelfAttention2d, alpha: Tensor) -> None:
    layer.alpha.detach().copy_(alpha)


def through_data(layer: SelfAttention2d, alpha: Tensor) -> None:
    layer.alpha.data.copy_(alpha)


def new_data(layer: SelfAttention2d, alpha: Tensor) -> None:
    layer.alpha.data = alpha.clone()


def new_parameter(layer: SelfAttention2d, alpha: Tensor) -> None:
    layer.alpha = nn.Parameter(alpha.clone(), requires_grad=False)


def state_dict(layer: SelfAttention2d, alpha: Tensor) -> None:
    layer.load_state_dict(layer.state_dict() | {"alpha": alpha})


def assigned_state_dict(layer: SelfAttention2d, alpha: Tensor) -> None:
    layer.load_state_dict(layer.state_dict() | {"alpha": alpha}, assign=True)


def swapped(layer: SelfAttention2d, alpha: Tensor) -> None:
    torch.utils.swap_tensors(layer.alpha, nn.Parameter(alpha.clone(), requires_grad=False))


def with_a_preserved_version(layer: SelfAttention2d, alpha: Tensor) -> None:
    preserved = torch.autograd.grad_mode._unsafe_preserve_version_counter(layer.alpha)
    with preserved, torch.no_grad():  # as FSDP gathers parameters
        layer.alpha.copy_(alpha)


def by_a_fused_optimizer(layer: SelfAttention2d, alpha: Tensor) -> None:
    layer.alpha.grad = layer.alpha.detach() - alpha
    torch.optim.SGD([layer.alpha], lr=1.0, fused=True).step()


def by_a_foreach_optimizer(layer: SelfAttention2d, alpha: Tensor) -> None:
    layer.alpha.grad = layer.alpha.detach() - alpha
    torch.optim.SGD([layer.alpha], lr=1.0, foreach=True).step()


COUNTED = [in_place, through_an_alias, new_data, new_parameter, state_dict, assigned_state_dict, swapped]
UNCOUNTED = [through_data, with_a_preserved_version, by_a_fused_optimizer, by_a_foreach_optimizer]
Write = Callable[[SelfAttention2d, Tensor], None]
CHANGES = [(None, 1.0), (1.0, None), (1.0, 2.0)]


def before_and_after(change: tuple[float | None, float | None], device: str) -> tuple[SelfAttention2d, SelfAttention2d]:
    """A layer that was used, and one with the positions that it gets."""
    conv = nn.Conv2d(3, 2, 3, padding=1).to(device)
    layer, wanted = (attention_from_conv(conv, alpha=alpha) for alpha in change)
    layer(image(device))
    return layer, wanted


@pytest.mark.parametrize("write", COUNTED)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["cpu", *DEVICES])
def test_positions_that_were_written_are_the_ones_that_count(
    where: str, change: tuple[float | None, float | None], write: Write
) -> None:
    (layer, wanted), x = before_and_after(change, where), image(where)
    write(layer, wanted.alpha.detach().clone())
    assert torch.equal(layer(x), wanted(x))
    assert layer.regime == wanted.regime


@pytest.mark.parametrize("write", UNCOUNTED)
@pytest.mark.parametrize("change", CHANGES)
def test_positions_that_changed_unseen_make_the_device_raise(
    change: tuple[float | None, float | None], write: Write
) -> None:
    (layer, wanted), x = before_and_after(change, "pretend"), image("pretend")
    write(layer, wanted.alpha.detach().clone())
    with pytest.raises(RuntimeError, match="does not count"), synchronisations("pretend") as found:
        layer(x)
    assert found == []
    torch.autograd.graph.increment_version([layer.alpha])  # what the message advises
    assert torch.equal(layer(x), wanted(x))


@pytest.mark.parametrize("write", UNCOUNTED)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["cpu", "pretend"])
def test_a_device_that_cannot_raise_is_asked_at_each_call(
    where: str, change: tuple[float | None, float | None], write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regime_cache, "_ASSERTING", {"cuda"})
    (layer, wanted), x = before_and_after(change, where), image(where)
    write(layer, wanted.alpha.detach().clone())
    assert torch.equal(layer(x), wanted(x))


def test_centers_that_changed_unseen_make_the_device_raise() -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 2, 3, device="pretend")), image("pretend")
    layer(x)
    layer.centers.data[4, 1] += 1
    with pytest.raises(RuntimeError, match="does not count"):
        layer(x)


def test_positions_of_a_functional_call_are_the_ones_that_count(device: str) -> None:
    conv, x = nn.Conv2d(3, 2, 3, padding=1, device=device), image(device)
    layer, wanted = attention_from_conv(conv), attention_from_conv(conv, alpha=1.0)
    for _ in range(2):
        assert torch.equal(layer(x), conv(x))
        found = torch.func.functional_call(layer, {"alpha": wanted.alpha.detach()}, (x,))
        assert torch.equal(found, wanted(x))


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}])
@pytest.mark.parametrize("modes", [False, True])
def test_evaluation_between_steps_uses_the_positions_of_the_last_step(
    modes: bool, options: dict[str, bool], device: str
) -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 2, 3, padding=1), alpha=2.0), image(device, SMALL)
    layer.to(device).requires_grad_()
    step = training_step(layer, x, torch.optim.SGD(layer.parameters(), lr=0.01, **options))
    for _ in range(3):
        layer.train(modes)
        step()
        layer.train(False)
        with torch.no_grad():
            assert torch.equal(layer(x), copy.deepcopy(layer)(x))
    layer.requires_grad_(False)
    layer(x)
    with synchronisations(device) as found:
        layer(x)
    assert found == []


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}])
def test_positions_that_are_frozen_after_training_are_the_ones_of_the_last_step(
    options: dict[str, bool], device: str
) -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 2, 3, padding=1), alpha=2.0), image(device, SMALL)
    layer.to(device).requires_grad_()
    for _ in range(2):
        layer.requires_grad_()
        training_step(layer, x, torch.optim.SGD(layer.parameters(), lr=0.01, **options))()
        layer.requires_grad_(False)
        assert torch.equal(layer(x), copy.deepcopy(layer)(x))
        with synchronisations(device) as found:
            layer(x)
        assert found == []


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}])
def test_a_look_between_a_forward_call_and_its_step_hides_no_step(options: dict[str, bool], device: str) -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 2, 3, padding=1), alpha=2.0), image(device, SMALL)
    layer.to(device).requires_grad_()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, **options)
    for _ in range(2):
        loss = layer(x).square().mean()
        with torch.no_grad():
            layer(x)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            assert torch.equal(layer(x), copy.deepcopy(layer)(x))


def test_alpha_that_training_made_infinite_is_refused_and_one_made_negative_is_not() -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 2, 3), alpha=2.0).to("pretend").requires_grad_(), image("pretend")
    layer(x)
    with torch.no_grad():
        layer.alpha[3] = -1.0
    layer(x)
    with torch.no_grad():
        layer.alpha[3] = torch.inf
    with pytest.raises(RuntimeError, match="alpha must be positive"):
        layer(x)


def test_a_cuda_assertion_has_room_for_the_messages() -> None:
    assert max(len(regime_cache._CHANGED), len(regime_cache._NOT_POSITIVE)) < 256
