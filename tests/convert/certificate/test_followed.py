"""What the certificate of a network does not follow has no bound, by name; what it follows stays within its bound.

Every case computes something else than its classes' ``forward`` with its parameters says, or looks as if it did.
"""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from conv2attn.convert import NetworkCertificate, SelfAttention, SelfAttention2d, certify_network, convert_model

SIZE = (6, 5)


class Network(nn.Module):
    """Two convolutions, with a function between."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.relu) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 2, 1)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 2, rows, columns] to [batch, 2, rows, columns]."""
        y: Tensor = self.last(self.act(self.between(self.first(x))))
        return y


Change = Callable[[Any], None]


def pair(change: Change = lambda _: None, between: Callable[[Tensor], Tensor] = torch.relu) -> tuple[Any, Any]:
    """A CNN and its attention, both changed in the same way."""
    cnn = Network(between).eval()
    model = convert_model(cnn, alpha=3.0).model
    change(cnn)
    change(model)
    return cnn, model


def observed(cnn: nn.Module, model: nn.Module, *, count: int = 5) -> float:
    """The largest difference on random images."""
    x = torch.rand(count, 2, *SIZE) * 2 - 1
    with torch.no_grad():
        return float((model(x).double() - cnn(x).double()).abs().max())


def certified(model: nn.Module) -> NetworkCertificate:
    return certify_network(model, input_range=(-1, 1), size=SIZE)


def forward_pre_hook(model: Any) -> None:
    model.register_forward_pre_hook(lambda module, inputs: (100 * inputs[0],))


def forward_pre_hook_with_kwargs(model: Any) -> None:
    model.register_forward_pre_hook(lambda module, args, kwargs: ((100 * args[0],), kwargs), with_kwargs=True)


def forward_hook(model: Any) -> None:
    model.register_forward_hook(lambda module, inputs, output: 100 * output)


def forward_hook_that_always_runs(model: Any) -> None:
    model.register_forward_hook(lambda module, inputs, output: 100 * output, always_call=True)


def inner_hook(model: Any) -> None:
    model.act.register_forward_hook(lambda module, inputs, output: 100 * output)


def hook_on_attention(model: Any) -> None:
    model.first.register_forward_hook(lambda module, inputs, output: 100 * output)


def own_forward(model: Any) -> None:
    inner = type(model).forward
    model.forward = lambda x: 100 * inner(model, x)


def own_bound_forward(model: Any) -> None:
    inner = type(model).forward
    model.forward = types.MethodType(lambda self, x: 100 * inner(self, x), model)


def own_forward_of_attention(model: Any) -> None:
    inner = type(model.first).forward
    model.first.forward = lambda x: 100 * inner(model.first, x)


class Loud(Network):
    """A network that is called in its own way."""

    def __call__(self, x: Tensor) -> Tensor:
        """Calls the network."""
        y: Tensor = 100 * super().__call__(x)
        return y


def own_call(model: Any) -> None:
    model.__class__ = Loud


def own_call_impl(model: Any) -> None:
    model._call_impl = lambda x: 100 * Network.forward(model, x)


def compiled(model: Any) -> None:
    model.compile(backend="eager")


class Bigger(nn.Module):
    """A parametrisation."""

    def forward(self, weight: Tensor) -> Tensor:
        """Multiplies a weight."""
        return 100 * weight


def parametrised_attention(model: Any) -> None:
    parametrize.register_parametrization(model.first, "weight", Bigger(), unsafe=True)


def old_weight_norm(model: Any) -> None:
    with pytest.warns(FutureWarning):
        torch.nn.utils.weight_norm(model.last)


class LoudTensor(Tensor):
    """A tensor that computes something else."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Multiplies every convolution's result."""
        result = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        return 100 * result if getattr(func, "__name__", "") == "conv2d" else result


def tensor_subclass(model: Any) -> None:
    model.last.weight = nn.Parameter(model.last.weight.detach().as_subclass(LoudTensor))


REFUSED: dict[str, tuple[Change, str]] = {
    "a forward pre-hook of the root": (forward_pre_hook, "it has hooks"),
    "a forward pre-hook with keyword arguments": (forward_pre_hook_with_kwargs, "it has hooks"),
    "a forward hook of the root": (forward_hook, "it has hooks"),
    "a forward hook that always runs": (forward_hook_that_always_runs, "it has hooks"),
    "a hook of an inner module": (inner_hook, "it has hooks"),
    "a hook of an attention layer": (hook_on_attention, "it has hooks"),
    "an instance's own forward": (own_forward, "its own forward"),
    "an instance's own bound forward": (own_bound_forward, "its own forward"),
    "an attention layer's own forward": (own_forward_of_attention, "its own forward"),
    "a root __call__ override": (own_call, "Loud is called in another way"),
    "an instance's own _call_impl": (own_call_impl, "its own _call_impl"),
    "module.compile()": (compiled, "it is compiled"),
    "a parametrised attention layer": (parametrised_attention, "its parameters are computed"),
    "weight_norm of the old kind": (old_weight_norm, "it has hooks"),
    "a parameter that is a tensor subclass": (tensor_subclass, "its weight is a "),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_stands_between_classes_and_calls_has_no_bound_by_name(case: str) -> None:
    change, reason = REFUSED[case]
    model = convert_model(Network().eval()).model
    assert certified(model).bound is not None
    change(model)
    certificate = certified(model)
    assert certificate.bound is None
    assert reason in certificate.unbounded[0].reason


def test_torch_compile_gives_a_network_without_a_bound() -> None:
    model = torch.compile(convert_model(Network().eval()).model, backend="eager")
    certificate = certified(model)  # type: ignore[arg-type]
    assert certificate.bound is None
    assert "its own forward" in certificate.unbounded[0].reason


class LoudFunctions(TorchFunctionMode):
    """Computes something else."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Multiplies what relu gives."""
        result = func(*args, **(kwargs or {}))
        return 100 * result if getattr(func, "__name__", "") == "relu" else result


class LoudOperations(TorchDispatchMode):
    """Computes something else."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Multiplies what relu gives."""
        result = func(*args, **(kwargs or {}))
        return 100 * result if func is torch.ops.aten.relu.default else result


def autocast() -> AbstractContextManager[None]:
    return torch.autocast("cpu", dtype=torch.bfloat16)


MODES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "autocast": (autocast, "autocast"),
    "a function mode": (LoudFunctions, "the mode LoudFunctions"),
    "a dispatch mode": (LoudOperations, "the mode LoudOperations"),
}


@pytest.mark.parametrize("case", MODES)
def test_a_mode_that_is_on_leaves_no_bound(case: str) -> None:
    mode, reason = MODES[case]
    model = convert_model(Network().eval()).model
    with mode():
        certificate = certified(model)
    assert certificate.bound is None
    assert reason in certificate.unbounded[0].reason
    assert certified(model).bound is not None


def test_the_first_of_two_modes_that_the_network_switches_on_is_named() -> None:
    class Both(Network):
        def forward(self, x: Tensor) -> Tensor:
            with LoudOperations(), Logging():  # type: ignore[no-untyped-call]
                return super().forward(x)

    certificate = certified(convert_model(Both().eval()).model)
    (problem,) = certificate.unbounded
    assert problem.reason.endswith("it switches the mode LoudOperations on")


class Logging(TorchDispatchMode):
    """Computes what is asked for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls a function."""
        return func(*args, **(kwargs or {}))


def switching(mode: Callable[[], AbstractContextManager[Any]]) -> nn.Module:
    """A network that switches a mode on."""

    class Switching(Network):
        def forward(self, x: Tensor) -> Tensor:
            with mode():
                return super().forward(x)

    return Switching().eval()


@pytest.mark.parametrize("case", MODES)
def test_a_mode_that_the_network_switches_on_around_a_layer_leaves_no_bound(case: str) -> None:
    mode, reason = MODES[case]
    certificate = certified(convert_model(switching(mode)).model)
    assert certificate.bound is None
    assert reason in certificate.unbounded[0].reason


class Autocasting(Network):
    """A network that switches autocast on without asking torch's functions, around one attention layer alone."""

    def forward(self, x: Tensor) -> Tensor:
        """Applies the first layer in half precision."""
        try:
            torch.set_autocast_enabled("cpu", True)
            return self.first(x)  # type: ignore[no-any-return]
        finally:
            torch.set_autocast_enabled("cpu", False)


def test_autocast_around_nothing_but_a_layer_leaves_no_bound() -> None:
    cnn = Autocasting().eval()
    model = convert_model(cnn, engine="literal").model
    certificate = certified(model)
    assert certificate.bound is None
    assert "switches autocast on" in certificate.unbounded[0].reason


def test_a_function_mode_that_the_network_switches_on_between_layers_is_followed() -> None:
    def under_the_mode(x: Tensor) -> Tensor:
        with LoudFunctions():
            return torch.relu(x)

    cnn, model = pair(between=under_the_mode)
    bound, quiet = certified(model).bound, certified(pair()[1]).bound
    assert bound is not None
    assert quiet is not None
    assert bound > 50 * quiet
    assert observed(cnn, model) <= bound


@pytest.mark.parametrize("register", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_hooks_for_all_modules_leave_no_bound(register: str) -> None:
    model = convert_model(Network().eval()).model
    handle = getattr(torch.nn.modules.module, register)(lambda module, *_: None)
    try:
        certificate = certified(model)
    finally:
        handle.remove()
    assert certificate.bound is None
    assert "for all modules" in certificate.unbounded[0].reason
    assert certified(model).bound is not None


def test_a_replaced_call_of_all_modules_leaves_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    model = convert_model(Network().eval()).model
    call = nn.Module.__call__
    monkeypatch.setattr(nn.Module, "__call__", lambda self, *args: call(self, *args))
    certificate = certified(model)
    assert certificate.bound is None
    assert "is called in another way" in certificate.unbounded[0].reason


def test_the_replaced_forward_of_a_class_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    cnn, model = pair()
    before = certified(model).bound
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: 100 * x)
    after = certified(model).bound
    assert before is not None
    assert after is not None
    assert after > 50 * before
    assert observed(cnn, model) <= after


def test_the_replaced_forward_of_the_attention_layer_leaves_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    model = convert_model(Network().eval()).model
    forward = SelfAttention.forward
    monkeypatch.setattr(SelfAttention, "forward", lambda self, x: 100 * forward(self, x))
    certificate = certified(model)
    assert certificate.bound is None
    assert "code was replaced" in certificate.unbounded[0].reason


class LoudAttention(SelfAttention2d):
    """An attention layer that computes something else."""

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None, **options: Any) -> Any:
        """Multiplies."""
        return 100 * super().forward(input, output_size)


def test_a_subclass_of_the_attention_layer_has_no_bound() -> None:
    model: Any = convert_model(Network().eval()).model
    model.first.__class__ = LoudAttention
    certificate = certified(model)
    assert certificate.bound is None
    assert certificate.unbounded[0].name == "first"
    assert "LoudAttention is a subclass" in certificate.unbounded[0].reason


@pytest.mark.parametrize("hook", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_do_not_matter(hook: str) -> None:
    cnn, model = pair()
    getattr(model, hook)(lambda module, *_: None)
    bound = certified(model).bound
    assert bound is not None
    assert observed(cnn, model) <= bound


# What networks do between their layers


def through_a_view(x: Tensor) -> Tensor:
    y = x.view(x.shape[0], -1)
    y.mul_(100)
    return x


def through_a_view_of_a_view(x: Tensor) -> Tensor:
    x.permute(0, 2, 3, 1)[..., :1].add_(100)
    return x


def through_what_may_be_a_copy(x: Tensor) -> Tensor:
    x.contiguous().mul_(100)
    return x


def through_a_reshape(x: Tensor) -> Tensor:
    x.permute(0, 2, 3, 1).reshape(-1).mul_(100)
    return x


def through_data(x: Tensor) -> Tensor:
    x.data = x.data * 100
    return x


def through_the_data(x: Tensor) -> Tensor:
    x.data.mul_(100)
    return x


def by_item(x: Tensor) -> Tensor:
    x[:, 0] = 100.0
    return x


def with_out(x: Tensor) -> Tensor:
    torch.mul(x, 100, out=x)
    return x


def hidden_from_functions(x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        x.mul_(100)
    return x


def hidden_by_data(x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        x.data.mul_(100)
    return x


def _by_data(x: Tensor) -> Tensor:
    x.data.mul_(100)
    return x


def scripted_by_data(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted: Callable[[Tensor], Tensor] = torch.jit.script(_by_data)
    return scripted(x)


def made_out_of_sight(x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return x * 100


def as_integers(x: Tensor) -> Tensor:
    return x.view(torch.int32)


def as_integers_and_back(x: Tensor) -> Tensor:
    return (x.view(torch.int32) ^ 0x40000000).view(torch.float32)


def rounded_to_half(x: Tensor) -> Tensor:
    return x.half().float()


def rounded_to_integers(x: Tensor) -> Tensor:
    return (x * 100).int() / 1.0


def turned_in_place(x: Tensor) -> Tensor:
    return x.transpose_(1, 1) * x.squeeze_()


def with_alpha(x: Tensor) -> Tensor:
    return torch.add(x, x, alpha=100)


def only_of_tensors(x: Tensor) -> Tensor:
    return 100 * x if isinstance(x, Tensor) else x


def not_while_traced(x: Tensor) -> Tensor:
    return x if fx._symbolic_trace.is_fx_tracing() else 100 * x


def on_the_device(x: Tensor) -> Tensor:
    return 100 * x if x.device.type == "cpu" and x.is_cpu and not x.is_meta else x


def by_the_number_of_images(x: Tensor) -> Tensor:
    return x * x.shape[0]


def mixed_with_other_images(x: Tensor) -> Tensor:
    return x - 3 * x.mean(0, keepdim=True)


def with_noise(x: Tensor) -> Tensor:
    return x + torch.randn(1)


@fx.wrap
def relu(x: Tensor) -> Tensor:
    return 100 * x


def with_a_tensor_of_its_own(x: Tensor) -> Tensor:
    return F.conv2d(x, torch.eye(3).view(3, 3, 1, 1).as_subclass(LoudTensor))


def with_noise_of_its_own(x: Tensor) -> Tensor:
    return x * torch.rand(1, generator=torch.Generator().manual_seed(id(x) % 1000))


def _scaled(x: Tensor) -> Tensor:
    x.mul_(100)
    return torch.ones(1)


OPERATORS = torch.library.Library("conv2attn_tests", "DEF")
OPERATORS.define("scale(Tensor(a!) x) -> Tensor")
OPERATORS.impl("scale", _scaled, "CPU")
OPERATORS.impl("scale", lambda x: x.new_empty(1), "Meta")


def by_an_operator(x: Tensor) -> Tensor:
    torch.ops.conv2attn_tests.scale(x)
    return x


def by_an_overload(x: Tensor) -> Tensor:
    torch.ops.conv2attn_tests.scale.default(x)
    return x


class Named:
    """Something with the name of a function of torch's."""

    __name__ = "relu"

    def __call__(self, x: Tensor) -> Tensor:
        """Multiplies."""
        return 100 * x


TINY = torch.tensor([0.1, 100.0, 3.0]).view(1, 3, 1, 1)

FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    through_a_view,
    through_a_view_of_a_view,
    through_what_may_be_a_copy,
    through_a_reshape,
    through_data,
    through_the_data,
    by_item,
    with_out,
    hidden_from_functions,
    hidden_by_data,
    scripted_by_data,
    made_out_of_sight,
    as_integers_and_back,
    rounded_to_half,
    rounded_to_integers,
    turned_in_place,
    with_alpha,
    only_of_tensors,
    not_while_traced,
    on_the_device,
    by_the_number_of_images,
    mixed_with_other_images,
    relu,
    with_a_tensor_of_its_own,
    with_noise_of_its_own,
    by_an_operator,
    by_an_overload,
)
BETWEEN: dict[str, Callable[[Tensor], Tensor]] = {
    **{getattr(function, "__name__", ""): function for function in FUNCTIONS},
    "a callable with a known name": Named(),
    "a constant of each channel": lambda x: x * TINY,
    "a constant made on the way": lambda x: x * torch.arange(0.0, 300, 100).view(1, 3, 1, 1),
    "a number that the dtype does not hold": lambda x: x * 0.1 + 1e-50,
    "a number above the dtype": lambda x: x * 1e39,
    "a quotient by a subnormal number": lambda x: x / 1e-39,
    "padding by a number": lambda x: F.pad(x, (1, 0, 2, 1), value=100.0),
    "padding by reflection": lambda x: F.pad(x, (1, 0, 2, 1), mode="reflect"),
    "a negative image": lambda x: 1 - x,
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("case", BETWEEN)
def test_what_is_done_between_layers_has_no_bound_or_stays_within_it(case: str, layout: torch.memory_format) -> None:
    cnn, model = pair(between=BETWEEN[case])
    certificate = certified(model)
    if certificate.bound is None:
        assert certificate.unbounded
        assert all(problem.reason for problem in certificate.unbounded)
    else:
        x = (torch.rand(5, 2, *SIZE) * 2 - 1).to(memory_format=layout)
        with torch.no_grad():
            assert (model(x) - cnn(x)).abs().max() <= certificate.bound


FOLLOWED = ("only_of_tensors", "not_while_traced", "on_the_device", "relu", "a callable with a known name",
            "a constant of each channel", "a constant made on the way", "padding by a number", "padding by reflection",
            "a number that the dtype does not hold", "a negative image")  # fmt: skip


@pytest.mark.parametrize("case", FOLLOWED)
def test_what_looks_odd_and_is_not_has_a_bound(case: str) -> None:
    _, model = pair(between=BETWEEN[case])
    assert certified(model).bound is not None


NAMED = {
    "through_a_view": "under another name",
    "through_what_may_be_a_copy": "under another name",
    "hidden_from_functions": "where functions of torch are not seen",
    "hidden_by_data": "where functions of torch are not seen",
    "scripted_by_data": "failed in the TorchScript interpreter",
    "made_out_of_sight": "made out of sight",
    "as_integers": "view changes the dtype",
    "with_alpha": "no bound is known for add with alpha",
    "by_item": "no bound is known for __setitem__",
    "by_the_number_of_images": "depends on how many images",
    "with_noise": "it draws random numbers",
    "rounded_to_half": "no bound is known for half",
    "with_a_tensor_of_its_own": "it computes with a LoudTensor",
    "with_noise_of_its_own": "it draws random numbers",
    "by_an_operator": "no bound is known for conv2attn_tests.scale",
    "by_an_overload": "no bound is known for conv2attn_tests.scale.default",
}


@pytest.mark.parametrize("case", NAMED)
def test_what_has_no_bound_says_why(case: str) -> None:
    _, model = pair(between=globals()[case])
    certificate = certified(model)
    assert certificate.bound is None
    assert NAMED[case] in " ".join(problem.reason for problem in certificate.unbounded)


class Remembering(Network):
    """A network whose second call is not its first."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Counts, and multiplies."""
        self.calls += 1
        y: Tensor = super().forward(x) * self.calls
        return y


class Training(Network):
    """A network that changes a parameter."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiplies a weight, and more with every call."""
        with torch.no_grad():
            self.first.weight.mul_(2)
        return super().forward(x)


class ChangingData(Network):
    """A network that changes a parameter's data."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiplies a bias."""
        assert self.last.bias is not None
        self.last.bias.data.mul_(2)
        return super().forward(x)


class Functional(Network):
    """A network that calls a layer with other parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """Multiplies a weight."""
        y: Tensor = functional_call(self.last, {"weight": 100 * self.last.weight}, (self.first(x),))
        return y


class Reaching(Network):
    """A network that uses another's layers, which a copy does not copy."""

    def __init__(self, other: list[nn.Module]) -> None:
        super().__init__()
        self.other = lambda x: other[0](x)

    def forward(self, x: Tensor) -> Tensor:
        """Uses them."""
        y: Tensor = self.last(self.other(x))  # type: ignore[no-untyped-call]
        return y


class Catching(Network):
    """A network that calls a layer with an image that does not fit, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(1000, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Tries."""
        with contextlib.suppress(RuntimeError):
            self.wide(x)
        return torch.cumsum(super().forward(x), 0)


class Holding(Network):
    """A network with a tensor that is neither a parameter nor a buffer, which it changes out of sight."""

    def __init__(self) -> None:
        super().__init__()
        self.held = torch.ones(1)

    def forward(self, x: Tensor) -> Tensor:
        """Doubles it."""
        with torch._C.DisableTorchFunction():
            self.held.mul_(2)
        return super().forward(x)


class Choosing(Network):
    """A network whose counter of calls is always the same number, and anew another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.act.seen = torch.ones(2)

    def forward(self, x: Tensor) -> Tensor:
        """Replaces it."""
        self.act.seen = torch.ones(2)
        return super().forward(x)


class Forgetting(Network):
    """A network that has less after its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.more = 1

    def forward(self, x: Tensor) -> Tensor:
        """Deletes it."""
        del self.more
        return super().forward(x)


class Complaining(Network):
    """A network that raises an error of two lines."""

    def forward(self, x: Tensor) -> Tensor:
        """Raises it."""
        raise ValueError("this way\nor that")


class Outside:
    """Something that holds a tensor out of sight."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


class Hiding(Network):
    """A network whose result holds a tensor out of sight."""

    def forward(self, x: Tensor) -> Any:
        """Hides one of two results."""
        y = super().forward(x)
        return y, Outside(100 * y), {100}


STATEFUL: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "a counter": (Remembering, "from one call to the next"),
    "a parameter": (Training, "changes a parameter, a buffer"),
    "a parameter's data": (ChangingData, "changes a parameter, a buffer"),
    "functional_call": (Functional, "is computed while it runs"),
    "a tensor that is not registered": (Holding, "writes into a tensor where functions of torch are not seen"),
    "a tensor anew": (Choosing, "changes its own act.seen while it runs"),
    "an attribute less": (Forgetting, "changes its own more while it runs"),
    "an error": (Complaining, "it does not run on them: ValueError: this way"),
    "a hidden result": (Hiding, "it returns a Outside"),
}


@pytest.mark.parametrize("case", STATEFUL)
def test_networks_whose_calls_are_not_alike_have_no_bound(case: str) -> None:
    make, reason = STATEFUL[case]
    model = convert_model(make().eval(), filter_fn=lambda _, name: name == "first").model
    certificate = certified(model)
    assert certificate.bound is None
    assert reason in " ".join(problem.reason for problem in certificate.unbounded)
    assert not any("\n" in problem.reason for problem in certificate.unbounded)


def test_what_follows_an_error_that_the_network_catches_is_not_taken_for_the_layer_that_raised_it() -> None:
    certificate = certified(convert_model(Catching().eval()).model)
    assert [(problem.name, problem.reason) for problem in certificate.unbounded] == [
        ("cumsum", "no bound is known for cumsum")
    ]


def test_a_layer_that_reads_what_was_made_out_of_sight_is_named() -> None:
    _, model = pair(between=made_out_of_sight)
    assert certified(model).unbounded[0].name == "act"


def test_a_network_that_reaches_into_its_original_has_no_bound() -> None:
    held: list[nn.Module] = []
    model: Any = convert_model(Reaching(held).eval()).model
    held.append(model.first)
    certificate = certified(model)
    assert certificate.bound is None
    assert "something else holds" in certificate.unbounded[0].reason


def test_following_a_network_leaves_it_as_it_is() -> None:
    model: Any = convert_model(Remembering().eval()).model
    before, chance = {key: value.clone() for key, value in model.state_dict().items()}, torch.get_rng_state()
    certified(model)
    assert model.calls == 0
    assert torch.equal(torch.get_rng_state(), chance)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_traced_network_has_the_bound_of_the_network() -> None:
    _, model = pair()
    tracer = fx.Tracer()
    tracer.is_leaf_module = lambda m, module_qualified_name: isinstance(m, SelfAttention2d)  # type: ignore[method-assign]
    traced = fx.GraphModule(model, tracer.trace(model))
    assert certified(traced).bound == certified(model).bound
