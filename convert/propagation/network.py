"""Runs a network on spans instead of numbers.

torch.fx traces a copy of the network on the meta device, where tensors have shapes and no values. Values are read of
the network itself.
"""

from __future__ import annotations

import contextlib
import copy
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate

from conv2attn.convert.attention import SelfAttention2d
from conv2attn.convert.errors import Problem
from conv2attn.convert.propagation.functions import Call, Tracked, bound_function
from conv2attn.convert.propagation.layers import bound_attention, bound_module
from conv2attn.convert.propagation.span import Arithmetic, Span, UnboundedError
from conv2attn.convert.spec import Size


@dataclass(frozen=True)
class LayerBound:
    """One call of an attention layer inside a network.

    Attributes:
        name: Fully qualified name.
        low: No value of its input is smaller, in either network.
        high: No value of its input is larger.
        own: Bound on the difference that the layer makes by itself.
        inherited: Bound on what it makes of the difference in its input.
        total: Bound on the difference of its output.
    """

    name: str
    low: float
    high: float
    own: float
    inherited: float
    total: float


class UntraceableError(Exception):
    """A network that cannot be followed; the text says why."""


class Propagation(fx.Interpreter):
    """Carries spans through a traced network.

    Args:
        traced: A copy of the network on the meta device, traced.
        model: The network.
        images: Bounds on the images.

    Attributes:
        layers: What was found of each attention layer, in the order of their calls.
        problems: The operations that no bound is known for.
    """

    def __init__(self, traced: fx.GraphModule, model: nn.Module, images: Span) -> None:
        super().__init__(traced)
        self.model, self.images, self.arithmetic = model, images, Arithmetic(coarsest_dtype(model))
        self.layers: list[LayerBound] = []
        self.problems: list[Problem] = []
        self._tracked: list[Tracked] = []

    def run_node(self, n: fx.Node) -> Any:
        """One operation; what it changes in place is changed under every name."""
        found = _tracked_in(self.fetch_args_kwargs_from_env(n))
        versions = [tracked.fake._version for tracked in found]
        result = super().run_node(n)
        for tracked, version in zip(found, versions, strict=True):
            if tracked.fake._version != version:
                self._changed(tracked.fake, result.span if isinstance(result, Tracked) else Span.unknown())
        self._tracked += _tracked_in(result)
        return result

    def _changed(self, fake: Tensor, span: Span) -> None:
        """Some or all of the values of a tensor, and of what shares its memory, are now in another span."""
        for tracked in self._tracked:
            if tracked.fake is fake:
                tracked.span = span
            elif tracked.fake.untyped_storage()._cdata == fake.untyped_storage()._cdata:
                tracked.span = tracked.span.merged().joined(span.merged())

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The image, and defaults for what else the network takes."""
        value = super().placeholder(target, args, kwargs)
        return Tracked(value, self.images) if isinstance(value, Tensor) else value

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter or a buffer, the same in both networks."""
        value = super().get_attr(target, args, kwargs)
        if not isinstance(value, Tensor):
            return value
        owner, _, name = str(target).rpartition(".")
        real = getattr(self.model.get_submodule(owner), name).detach()
        return Tracked(value, Span.of(float(real.min()), float(real.max())))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A module that is not looked into."""
        module = self.model.get_submodule(str(target))
        if isinstance(module, SelfAttention2d):
            return self._attention(str(target), module, args[0])
        result = super().call_module(target, _fakes(args), _fakes(kwargs))
        if len(args) != 1 or kwargs or not isinstance(args[0], Tracked) or not isinstance(result, Tensor):
            self.problems.append(
                Problem(str(target), f"no bound is known for {type(module).__name__} called like this")
            )
            return map_aggregate(result, _unknown)
        before = args[0].fake.shape
        return Tracked(
            result,
            self._found(str(target), lambda: bound_module(module, args[0].span, before, result.shape, self.arithmetic)),
        )

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A function."""
        if target is operator.getitem and isinstance(args[0], tuple | list):
            return target(*args)
        result = super().call_function(target, _fakes(args), _fakes(kwargs))
        return self._called(getattr(target, "__name__", str(target)), args, kwargs, result)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A method of a tensor."""
        return self._called(str(target), args, kwargs, super().call_method(target, _fakes(args), _fakes(kwargs)))

    def _called(self, name: str, args: Any, kwargs: Any, result: Any) -> Any:
        def bounded(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            call = Call(name, args, kwargs, value.shape, self.arithmetic)
            return Tracked(value, self._found(name, lambda: bound_function(call)))

        return map_aggregate(result, bounded) if _tracked_in((args, kwargs)) else result

    def _attention(self, name: str, layer: SelfAttention2d, x: Tracked) -> Tracked:
        size = layer.spec.output_size(Size(*x.fake.shape[-2:]))

        def bounded() -> Span:
            output, own, inherited = bound_attention(layer, x.span)
            low, high, total = float(x.span.low.min()), float(x.span.high.max()), float(output.error.max())
            self.layers.append(LayerBound(name, low, high, own.bound, inherited, total))
            return output

        shape = (*x.fake.shape[:-3], layer.spec.out_channels, *size)
        return Tracked(x.fake.new_empty(shape), self._found(name, bounded))

    def _found(self, name: str, bound: Callable[[], Span]) -> Span:
        """The bound; where there is none, the reason is kept, and nothing is known of the result."""
        try:
            return bound()
        except UnboundedError as reason:
            self.problems.append(Problem(name, str(reason)))
            return Span.unknown()


def _tracked_in(values: Any) -> list[Tracked]:
    found: list[Tracked] = []
    map_aggregate(values, lambda value: found.append(value) if isinstance(value, Tracked) else None)
    return found


def _fakes(values: Any) -> Any:
    return map_aggregate(values, lambda value: value.fake if isinstance(value, Tracked) else value)


def _unknown(value: Any) -> Any:
    return Tracked(value, Span.unknown()) if isinstance(value, Tensor) else value


class _Tracer(fx.Tracer):
    """Does not look into attention layers."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one operation."""
        return isinstance(m, SelfAttention2d) or super().is_leaf_module(m, module_qualified_name)


def follow(model: nn.Module, size: Size, channels: int, images: Span) -> tuple[Propagation, list[Span]]:
    """Carries bounds on images through a network.

    Args:
        model: The converted network.
        size: Size of the images.
        channels: Their channels.
        images: Bounds on their values.

    Returns:
        What was found on the way, and bounds on the outputs.

    Raises:
        UntraceableError: The network cannot be traced, or does not run on such images.
    """
    parameter = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.no_grad():  # a network may print, and do anything else
            shadow = _shapes_of(model)
            traced = fx.GraphModule(shadow, _Tracer().trace(shadow))
            propagation = Propagation(traced, model, images)
            outputs = propagation.run(torch.empty(1, channels, *size, dtype=parameter.dtype, device="meta"))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UntraceableError(reason) from error
    return propagation, [tracked.span for tracked in _tracked_in(outputs)]


def _shapes_of(model: nn.Module) -> nn.Module:
    """A copy of a network on the meta device, made without copying a value."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(tensor): _empty(tensor) for tensor in tensors}).to("meta")


def _empty(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta")
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


def coarsest_dtype(model: nn.Module) -> torch.dtype:
    """The precision of the parameters that rounds most."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)
