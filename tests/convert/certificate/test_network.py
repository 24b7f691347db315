"""What is known of a small network's outputs once it has been followed, and why where nothing is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from conv2attn.convert import attention_from_conv
from conv2attn.convert.certificate.propagation.answers import is_shared
from conv2attn.convert.certificate.propagation.interval import Interval
from conv2attn.convert.certificate.propagation.network import Follower, Memory, UntraceableError, follow
from conv2attn.convert.size import Size

CLOSE = 1e-5  # above what a sum or two in single precision may round


class Small(nn.Module):
    """A network of one linear layer, a buffer and a function."""

    kept: Tensor
    attention: Any

    def __init__(self, function: Callable[[Small, Tensor], Tensor], attention: nn.Module | None = None) -> None:
        super().__init__()
        self.attention = attention
        self.linear, self.function = nn.Linear(3, 3), function
        self.register_buffer("kept", torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        """Applies the function to [batch, channels, rows, columns]."""
        return self.function(self, x)


def followed(
    function: Callable[[Small, Tensor], Tensor], attention: nn.Module | None = None
) -> tuple[Follower, Interval]:
    """The network on an image of 2 rows and 3 columns between -1 and 2, and bounds on its output."""
    follower, (bounds,) = follow(Small(function, attention), Size(2, 3), 1, Interval.of(-1.0, 2.0), count=1, memory={})
    return follower, bounds


def test_a_tensor_that_outlives_the_call_must_not_be_written_to() -> None:
    held, other = torch.zeros(3), torch.zeros(3)

    def write(network: Small, x: Tensor) -> Tensor:
        torch.add(other, 1.0, out=held)
        return x

    with pytest.raises(UntraceableError, match="writes into a tensor that outlives its call"):
        followed(write)


def test_no_gradients_are_enabled_unless_it_is_told() -> None:
    _, bounds = followed(lambda network, x: 100 * x if torch.is_grad_enabled() else x)
    assert (float(bounds.low), float(bounds.high)) == (-1, 2)


def test_a_tensor_that_the_call_makes_may_be_written_to() -> None:
    def write(network: Small, x: Tensor) -> Tensor:
        own = torch.zeros(3)
        own.add_(1.0)
        return x + own

    _, bounds = followed(write)
    assert (float(bounds.low), float(bounds.high)) == pytest.approx((0.0, 3.0), abs=CLOSE)


def through_a_part(c: Tensor, x: Tensor) -> None:
    c[:, :, :1].add_(x[:, :, :1])


def by_index(c: Tensor, x: Tensor) -> None:
    c[...] = x


def by_data(c: Tensor, x: Tensor) -> None:
    c.data = x


def out_of_sight(c: Tensor, x: Tensor) -> None:
    same = torch.broadcast_tensors(c, x)[0]
    with torch._C.DisableTorchFunction():
        same.add_(x)
    same * 1.0


def by_data_out_of_sight(c: Tensor, x: Tensor) -> None:
    with torch._C.DisableTorchFunction():
        x.data.mul_(100)


WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add_": lambda c, x: c.add_(x),
    "copy_": lambda c, x: c.copy_(x),
    "__setitem__": by_index,
    "out": lambda c, x: torch.mul(x, 2.0, out=c),
    "the out of a packed function": lambda c, x: torch.ops.aten.mul.out(x, x, out=c),
    "out of another size": lambda c, x: torch.cat([x, x], out=c.resize_(0)),
    "index_copy_": lambda c, x: c.index_copy_(0, torch.arange(1), x),
    "index_put_": lambda c, x: c.index_put_((torch.arange(1),), x, accumulate=True),
    "a part of it": through_a_part,
    "data": by_data,
    "several": lambda c, x: torch._foreach_add_([c], [x]),
    "by a function": lambda c, x: c.map_(x, max),
    "another name of it": lambda c, x: torch.broadcast_tensors(c, x)[0].add_(x),
}


@pytest.mark.parametrize("way", WRITES)
def test_a_tensor_that_the_call_makes_is_in_doubt_once_values_that_are_followed_are_written_into_it(way: str) -> None:
    """Its own values are known once and for all; what is written into it is not."""

    def write(network: Small, x: Tensor) -> Tensor:
        c = torch.zeros(x.shape, device=x.device)
        WRITES[way](c, x)
        return c

    follower, _ = followed(write)
    assert "it changes a parameter, a buffer or a constant while it runs" in {p.reason for p in follower.doubts}


UNSEEN: dict[str, Callable[[Tensor, Tensor], object]] = {
    "by its data": by_data_out_of_sight,
    "another name out of sight": out_of_sight,
}


@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("way", UNSEEN)
def test_a_network_that_writes_where_no_function_is_seen_is_not_followed(way: str, caught: bool) -> None:
    def write(network: Small, x: Tensor) -> Tensor:
        with contextlib.suppress(Exception) if caught else contextlib.nullcontext():
            UNSEEN[way](torch.zeros(x.shape, device=x.device), x)
        return x

    with pytest.raises(UntraceableError, match=r"^it writes into a tensor where functions of torch are not seen$"):
        followed(write)


def test_a_tensor_that_outlives_the_call_may_be_read() -> None:
    held = torch.full((3,), 2.0)
    _, bounds = followed(lambda network, x: x + (held + held))
    assert (float(bounds.low), float(bounds.high)) == pytest.approx((3.0, 6.0), abs=CLOSE)


def test_an_error_that_the_network_catches_ends_the_layer_that_raised_it() -> None:
    def catch(network: Small, x: Tensor) -> Tensor:
        with contextlib.suppress(RuntimeError):
            network.linear(x[..., :1])
        return torch.cumsum(x, 0)

    follower, bounds = followed(catch)
    assert [(problem.name, problem.reason) for problem in follower.problems] == [
        ("cumsum", "no bound is known for cumsum")
    ]
    assert not bounds.is_bounded


def test_a_buffer_that_the_call_changes_is_not_known_any_more() -> None:
    follower, bounds = followed(lambda network, x: x + network.kept.add_(1.0))
    assert not bounds.is_bounded
    assert [problem.name for problem in follower.doubts] == ["add_"]


def test_a_tensor_of_the_call_that_is_changed_in_place_has_new_bounds() -> None:
    follower, bounds = followed(lambda network, x: (x * 2.0).add_(network.kept))
    assert (float(bounds.low), float(bounds.high)) == pytest.approx((-1.0, 5.0), abs=CLOSE)
    assert not follower.doubts
    assert not follower.problems


def test_what_is_read_under_another_name_of_what_was_changed_is_not_known() -> None:
    def change(network: Small, x: Tensor) -> Tensor:
        y = x * 1.0
        part = y[..., :1]
        y.add_(1.0)
        return part * 1.0

    follower, bounds = followed(change)
    assert not bounds.is_bounded
    assert {problem.reason for problem in follower.problems} == {
        "it reads a tensor whose memory was written to under another name"
    }


@pytest.mark.parametrize("turned", [False, True])
def test_what_may_be_the_memory_of_a_tensor_that_was_changed_is_not_known(turned: bool) -> None:
    """``contiguous`` copies here where the axes are turned, and need not where pixels lie in another order."""

    def change(network: Small, x: Tensor) -> Tensor:
        same = (x.transpose(2, 3) if turned else x).contiguous()
        same.add_(1.0)
        return x * 1.0

    _, bounds = followed(change)
    assert not bounds.is_bounded


def test_what_a_function_without_a_rule_gives_back_may_be_the_memory_of_what_it_reads() -> None:
    def change(network: Small, x: Tensor) -> Tensor:
        torch.cumsum(x, 0).add_(1.0)
        return x * 1.0

    _, bounds = followed(change)
    assert not bounds.is_bounded


def test_a_function_in_place_gives_back_the_tensor_itself() -> None:
    found = []

    def change(network: Small, x: Tensor) -> Tensor:
        y = x * 1.0
        found.append(y.add_(x) is y)
        return y

    followed(change)
    assert found == [True]


def test_a_tensor_that_was_made_out_of_sight_is_not_known() -> None:
    def make(network: Small, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            y = x + 1.0
        return y * 1.0

    follower, bounds = followed(make)
    assert not bounds.is_bounded
    assert follower.problems[0].reason == "it reads a tensor that was made out of sight"


def test_a_function_in_place_that_leaves_no_trace_on_tensors_without_values_makes_them_unknown() -> None:
    def change(network: Small, x: Tensor) -> Tensor:
        y = x * 1.0
        y.apply_(lambda value: 100 * value)
        return y

    _, bounds = followed(change)
    assert not bounds.is_bounded


def test_a_function_in_place_changes_its_first_operand_alone() -> None:
    def change(network: Small, x: Tensor) -> Tensor:
        (x * 1.0).fmod_(x)
        return x

    _, bounds = followed(change)
    assert (float(bounds.low), float(bounds.high)) == (-1, 2)


def test_a_tensor_that_was_changed_out_of_sight_is_not_known() -> None:
    def change(network: Small, x: Tensor) -> Tensor:
        y = x * 1.0
        thread = threading.Thread(target=y.add_, args=(1.0,))
        thread.start()
        thread.join()
        return y * 1.0

    follower, bounds = followed(change)
    assert not bounds.is_bounded
    assert follower.problems[0].reason == "it reads a tensor that was changed out of sight"


def attending(*, batched: bool, output_size: tuple[int, int] | None = None) -> tuple[Follower, Interval, torch.Size]:
    """A transposed layer of two channels, on an image or a batch of one; also the size of what it gives."""
    conv = nn.ConvTranspose2d(1, 2, (3, 2), stride=2, bias=False)
    with torch.no_grad():
        conv.weight.fill_(1.0)[:, 1] = 3.0
    sizes = []

    def attend(network: Small, x: Tensor) -> Tensor:
        layer = network.attention
        y: Tensor = layer(x if batched else x[0], output_size)
        sizes.append(y.shape)
        return y

    follower, bounds = followed(attend, attention_from_conv(conv, alpha=3.0))
    return follower, bounds, sizes[0]


@pytest.mark.parametrize(("output_size", "rows"), [(None, 5), ((6, 6), 6)])
def test_an_attention_layer_takes_batches_and_single_images_of_the_size_that_is_asked_for(
    output_size: tuple[int, int] | None, rows: int
) -> None:
    _, each, size = attending(batched=True, output_size=output_size)
    assert size == (1, 2, rows, 6)
    assert each.high.numel() == 2
    assert each.high[1] > 2 * each.high[0]
    _, merged, size = attending(batched=False, output_size=output_size)
    assert size == (2, rows, 6)
    assert (float(merged.low), float(merged.high)) == (float(each.low.min()), float(each.high.max()))


def test_an_attention_layer_of_a_network_is_listed_with_its_input_and_its_own_certificate() -> None:
    follower, bounds, _ = attending(batched=True)
    (layer,) = follower.layers
    assert (layer.name, layer.low, layer.high, layer.inherited) == ("attention", -1.0, 2.0, 0.0)
    assert 0 < layer.own == layer.total == float(bounds.error.max())


def test_an_attention_layer_is_certified_once_for_the_same_input() -> None:
    layer = attention_from_conv(nn.Conv2d(1, 1, 1))
    memory: Memory = {}
    model = Small(lambda network, x: network.attention(x) + network.attention(x), layer)
    follower, _ = follow(model, Size(2, 3), 1, Interval.of(-1.0, 2.0), count=1, memory=memory)
    assert len(memory) == 1
    assert [bound.name for bound in follower.layers] == ["attention", "attention"]
    model = Small(lambda network, x: network.attention(x * 2.0), layer)
    follow(model, Size(2, 3), 1, Interval.of(-1.0, 2.0), count=1, memory=memory)
    assert len(memory) == 2


def test_an_attention_layer_on_an_input_of_another_dtype_has_no_bound() -> None:
    follower, bounds = followed(
        lambda network, x: network.attention(x.double()), attention_from_conv(nn.Conv2d(1, 1, 1))
    )
    assert not bounds.is_bounded
    problem = follower.problems[-1]
    assert problem.name == "attention"
    assert problem.reason == "its input is of torch.float64, the layer of torch.float32"


def test_each_channel_of_a_batch_keeps_its_own_bounds() -> None:
    conv = nn.Conv2d(2, 1, 1, bias=False)
    with torch.no_grad():
        conv.weight.copy_(torch.tensor([1.0, 0.0]).view(1, 2, 1, 1))
    ends = torch.tensor([2.0, 100.0], dtype=torch.float64)
    model = Small(lambda network, x: network.attention(x), attention_from_conv(conv))
    _, (bounds,) = follow(model, Size(2, 3), 2, Interval(-ends, ends, torch.zeros_like(ends)), count=1, memory={})
    assert (float(bounds.low), float(bounds.high)) == pytest.approx((-2.0, 2.0), abs=CLOSE)


def test_the_channels_of_a_layer_along_one_axis_have_bounds_of_their_own() -> None:
    layer = attention_from_conv(nn.Conv1d(1, 2, 1))
    _, bounds = followed(lambda network, x: network.attention(x.flatten(2)), layer)
    assert bounds.high.numel() == 2


def with_more_weight(layer: Any, x: Tensor) -> Tensor:
    y: Tensor = functional_call(layer, {"weight": 50.0 * layer.weight}, (x,))
    return y


def with_another_bias(layer: Any, x: Tensor) -> Tensor:
    y: Tensor = functional_call(layer, {"bias": layer.bias + 100.0}, (x,))
    return y


def with_content_of_its_own(layer: Any, x: Tensor) -> Tensor:
    y: Tensor = functional_call(layer, {"content.gate": layer.content.gate + 1.0}, (x,))
    return y


def with_a_weight_for_a_while(layer: Any, x: Tensor) -> Tensor:
    own = layer._parameters["weight"]
    layer._parameters["weight"] = 50.0 * own
    y: Tensor = layer(x)
    layer._parameters["weight"] = own
    return y


def without_content_for_a_while(layer: Any, x: Tensor) -> Tensor:
    content, layer.content = layer.content, None
    y: Tensor = layer(x)
    layer.content = content
    return y


REPLACED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "weight": with_more_weight,
    "bias": with_another_bias,
    "content.gate": with_content_of_its_own,
    "_parameters": with_a_weight_for_a_while,
    "content": without_content_for_a_while,
}


@pytest.mark.parametrize("way", REPLACED)
def test_an_attention_layer_whose_parts_are_replaced_for_a_call_is_not_followed(way: str) -> None:
    layer: Any = attention_from_conv(nn.Conv2d(1, 1, 1), alpha=3.0)
    layer.add_content(2, gated=True)
    name = "weight" if way == "_parameters" else way
    with pytest.raises(UntraceableError, match=rf"it replaces attention\.{name} while it runs"):
        followed(lambda network, x: REPLACED[way](network.attention, x), layer)


def number(x: Tensor) -> float:
    return float(x.max())


def array(x: Tensor) -> Any:
    return x.numpy()


def under_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x + 1.0


CAUGHT: dict[str, tuple[Callable[[Any, Tensor], object], type[Exception]]] = {
    "a number": (lambda layer, x: number(x), RuntimeError),
    "a truth": (lambda layer, x: bool(x.max() > 0), RuntimeError),
    "an array": (lambda layer, x: array(x), TypeError),
    "a list": (lambda layer, x: x.tolist(), NotImplementedError),
    "a place": (lambda layer, x: x[x > 0], NotImplementedError),
    "on another device": (lambda layer, x: x.to("cpu"), NotImplementedError),
    "equal": (lambda layer, x: torch.equal(x, x), NotImplementedError),
    "a gradient": (lambda layer, x: x.register_hook(abs), RuntimeError),
    "a question that is refused": (lambda layer, x: x.is_contiguous(), UntraceableError),
    "a mode that is refused": (lambda layer, x: under_autocast(x), UntraceableError),
    "another number of channels": (lambda layer, x: layer(torch.cat([x, x], 1)), Exception),
    "fewer channels": (lambda layer, x: layer(x[:, :0]), Exception),
    "another number of axes": (lambda layer, x: layer(x[None]), Exception),
    "an argument of the layer alone": (lambda layer, x: layer(x, need_weights=True), Exception),
}


@pytest.mark.parametrize("case", CAUGHT)
def test_a_network_that_catches_the_error_of_a_tensor_without_values_is_not_followed(case: str) -> None:
    read, error = CAUGHT[case]

    def catch(network: Small, x: Tensor) -> Tensor:
        with contextlib.suppress(error):
            read(network.attention, x)
            x = x * 100.0
        return x

    with pytest.raises(UntraceableError):
        followed(catch, attention_from_conv(nn.Conv2d(1, 1, 1)))


def test_a_refusal_that_the_network_catches_keeps_its_words() -> None:
    def catch(network: Small, x: Tensor) -> Tensor:
        with contextlib.suppress(UntraceableError):
            x.is_contiguous()
        return x

    with pytest.raises(UntraceableError, match=r"^it asks a tensor for is_contiguous, and only shapes"):
        followed(catch)


def test_an_error_that_comes_with_or_without_gradients_alone_is_not_one_of_tensors_with_values() -> None:
    def without(x: Tensor) -> None:
        if not x.requires_grad:
            raise ValueError

    def with_them(x: Tensor) -> None:
        if x.requires_grad:
            raise ValueError

    def always(x: Tensor) -> None:
        raise ValueError

    x = torch.empty(2, device="meta")
    found = [is_shared(ValueError(), func, (x,), {}, torch.device("cpu")) for func in (without, with_them, always)]
    assert found == [False, False, True]


def test_a_network_that_catches_the_error_of_a_layer_of_another_dtype_is_in_doubt() -> None:
    follower, bounds = followed(
        lambda network, x: (network.attention(x.double()), x)[1], attention_from_conv(nn.Conv2d(1, 1, 1))
    )
    assert bounds.is_bounded
    assert [doubt.name for doubt in follower.doubts] == ["attention"]


@pytest.mark.parametrize("case", ["a shape", "an argument", "a dimension"])
def test_a_network_may_catch_an_error_that_tensors_with_values_would_raise(case: str) -> None:
    wrong: dict[str, tuple[Callable[[Tensor], Tensor], type[Exception]]] = {
        "a shape": (lambda x: x + torch.ones(7), RuntimeError),
        "an argument": (lambda x: torch.nn.functional.relu(x, fast=True), TypeError),  # type: ignore[call-arg]
        "a dimension": (lambda x: x.flatten(9), IndexError),
    }
    call, error = wrong[case]

    def catch(network: Small, x: Tensor) -> Tensor:
        with contextlib.suppress(error):
            return call(x)
        return x

    _, bounds = followed(catch)
    assert (float(bounds.low), float(bounds.high)) == (-1, 2)


QUESTIONS: dict[str, Callable[[Any], object]] = {
    "is_contiguous": lambda x: x.is_contiguous(),
    "stride": lambda x: x.stride(),
    "dim_order": lambda x: x.dim_order(),
    "storage_offset": lambda x: x.storage_offset(),
    "untyped_storage": lambda x: x.untyped_storage(),
    "data_ptr": lambda x: x.data_ptr(),
    "_version": lambda x: x._version,
    "requires_grad": lambda x: x.requires_grad,
    "is_leaf": lambda x: x.is_leaf,
    "grad_fn": lambda x: x.grad_fn,
    "grad": lambda x: x.grad,
    "is_inference": lambda x: x.is_inference(),
    "is_pinned": lambda x: x.is_pinned(),
    "type": lambda x: x.type(),
    "__repr__": repr,
    "__format__": lambda x: f"{x}",
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_network_that_asks_what_shapes_do_not_tell_is_not_followed(name: str) -> None:
    def ask(network: Small, x: Tensor) -> Tensor:
        QUESTIONS[name](x)
        return x

    with pytest.raises(UntraceableError, match=f"it asks a tensor for {name}, and only shapes and dtypes"):
        followed(ask)


def test_a_network_may_ask_what_shapes_and_dtypes_and_its_own_parameters_tell() -> None:
    found: list[object] = []

    def ask(network: Small, x: Tensor) -> Tensor:
        found.extend([x.shape, x.size(0), x.dim(), x.ndim, len(x), x.numel(), x.dtype, x.is_floating_point()])
        weight = network.linear.weight
        found.extend([x.device.type, x.get_device(), weight.requires_grad, weight.is_leaf, network.kept.requires_grad])
        return x

    _, bounds = followed(ask)
    assert bounds.is_bounded
    assert found == [(1, 1, 2, 3), 1, 4, 4, 1, 6, torch.float32, True, "cpu", -1, True, True, False]


class Leaf(nn.Module):
    """A module without modules in it."""

    def forward(self, x: Tensor) -> Tensor:
        """Sums up."""
        return torch.cumsum(x, 0)


def test_a_function_within_a_module_of_ones_own_is_named_itself() -> None:
    follower, _ = followed(lambda network, x: network.attention(x), Leaf())
    assert [problem.name for problem in follower.problems] == ["cumsum"]


def test_parameters_are_parameters_in_the_network_that_is_followed_and_buffers_are_not() -> None:
    found = []

    def look(network: Small, x: Tensor) -> Tensor:
        found.extend([type(network.linear.weight), type(network.kept)])
        return x

    followed(look)
    assert found == [nn.Parameter, Tensor]


class Writing(nn.Module):
    """A module that changes its input, told by its path as one of torch's own is."""

    __module__ = "torch.nn.modules.another"

    def forward(self, x: Tensor) -> Tensor:
        """Writes into it, by a function that gives nothing back."""
        x[0] = 1.0
        return x


def test_a_function_within_a_module_of_torch_is_named_by_the_path_of_the_module() -> None:
    follower, _ = followed(lambda network, x: network.attention(x * 1.0), Writing())
    problem = follower.problems[0]
    assert (problem.name, problem.reason) == ("attention", "no bound is known for __setitem__")


def test_a_function_of_ones_own_is_not_taken_for_torch_s_by_its_name() -> None:
    library = torch.library.Library("conv2attn_test", "DEF")
    library.define("relu(Tensor x) -> Tensor")
    library.impl("relu", lambda x: 100 * x, "CompositeExplicitAutograd")
    packet = torch.ops.conv2attn_test.relu
    for function in (packet, packet.default):
        follower, bounds = followed(lambda network, x, function=function: function(x))  # type: ignore[misc]
        assert not bounds.is_bounded
        assert follower.problems[0].reason.startswith("no bound is known for conv2attn_test.relu")


def test_a_function_of_another_library_is_not_taken_for_torch_s_by_its_name() -> None:
    def relu(x: Tensor) -> Tensor:
        if torch.overrides.has_torch_function_unary(x):
            result: Tensor = torch.overrides.handle_torch_function(relu, (x,), x)
            return result
        return 100 * x

    relu.__qualname__ = "relu"
    follower, bounds = followed(lambda network, x: relu(x))
    assert not bounds.is_bounded
    assert follower.problems[0].name.endswith(".relu")
