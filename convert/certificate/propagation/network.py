"""Runs a network on intervals instead of numbers.

A copy of the network on the meta device, where tensors have shapes and no values, is called as the network is: through
``__call__``, with the code that would run. Every function of torch that it calls on the way is seen
(``TorchFunctionMode``) and bounded; values are read of the network itself. What is not a function of torch cannot touch
a tensor without values. Where the network asks for more than such a tensor knows (``answers.py``), there is no bound,
whether the error ends the run or the network catches it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, resolve_name
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ...attention.construction import conv_with
from ...attention.layer import SelfAttention
from ...errors import Problem
from ...padded import has_class
from ...size import Size
from ...spec import batch_shape
from ..layer import Certificate
from .answers import DEVICES, FACTS, GRADIENTS, is_shared, told
from .call import Call
from .functions import MAY_SHARE, RULES, bound_function
from .interval import Arithmetic, Interval, UnboundedError
from .layers import bound_attention
from .program import Sight, State, changed_part, foreign, own_kinds, state_of
from .tracked import Tracked, constant, found_in, replaced, shares_memory, tensors_in, tracked_in

Memory = dict[tuple[object, ...], tuple[Interval, Certificate, float]]

_PLAIN = (Tensor, bool, int, float, str, type(None), tuple, list, dict)  # of what a result may consist


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


class Follower(TorchFunctionMode):
    """Carries intervals through a network while its copy without values runs.

    Args:
        model: The network.
        shadow: Its copy on the meta device, perhaps with convolutions where its attention layers are.
        twins: For each parameter and buffer of the network, by its identity, the copy's.
        memory: What is known already of attention layers and the bounds on their inputs.

    Attributes:
        layers: What was found of each attention layer, in the order of their calls.
        problems: The operations that no bound is known for.
        doubts: Where the network changes a parameter, a buffer or a constant while it runs, or gives a layer another
            dtype: there is no bound, whatever the outputs' seem to be.
        refusal: Why there is no bound, which the network may have caught, or None.
        sight: To be switched on beside this mode.
    """

    def __init__(self, model: nn.Module, shadow: nn.Module, twins: dict[int, Tensor], memory: Memory) -> None:
        super().__init__()
        originals = [*model.parameters(), *model.buffers()]
        self.layers: list[LayerBound] = []
        self.problems: list[Problem] = []
        self.doubts: list[Problem] = []
        self.refusal: UntraceableError | None = None
        self._memory = memory
        self._originals = {id(tensor) for tensor in originals}
        self._own = {id(twins[id(tensor)]): tensor for tensor in originals}
        self._kept: list[Tensor] = []  # so that no other tensor gets their identity
        self._made: set[int] = set()
        self._placed = next(model.parameters()).detach()  # on the network's device
        self._tracked: dict[int, Tracked] = {}
        self._modules: list[tuple[str, nn.Module]] = []
        self._states: dict[int, State] = {}
        self.sight = Sight(self._refuse_write)
        for tensor in originals:
            self._track(constant(tensor, twins[id(tensor)]))
        for name, module in shadow.named_modules():
            module.register_forward_pre_hook(functools.partial(self._enter, name))
            module.register_forward_hook(self._leave, always_call=True)
            layer = model.get_submodule(name)
            if isinstance(layer, SelfAttention):
                module.forward = functools.partial(self._attention, name, layer, module)
                self._states[id(module)] = state_of(module)

    def give(self, fake: Tensor, interval: Interval) -> Tensor:
        """Makes a tensor without values known, with bounds on the values."""
        return self._track(Tracked(fake, interval)).fake

    def result(self, outputs: Any) -> list[Interval]:
        """Bounds on the tensors that the network returned.

        Raises:
            UntraceableError: It caught an error that stands for no bound, or returned something that may hold tensors
                out of sight.
        """
        if self.refusal is not None:
            raise self.refusal
        odd: list[str] = []
        replaced(outputs, object, lambda value: odd.append(type(value).__name__) if _is_odd(value) else None)
        if odd:
            raise UntraceableError(f"it returns a {odd[0]}, which may hold any tensors")
        return [self._known(tensor).interval for tensor in tensors_in(outputs)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One call of a function of torch."""
        kwargs = kwargs or {}
        with self.sight.closed():
            try:
                self._check_operands(types, args, kwargs)
                return self._called(func, args, kwargs)
            except Exception as error:
                if isinstance(error, UntraceableError) or not is_shared(error, func, args, kwargs, self._placed.device):
                    self._refuse(error)
                raise

    def _refuse(self, error: Exception) -> None:
        """Remembers an error that leaves no bound, even if the network catches it."""
        found = error if isinstance(error, UntraceableError) else UntraceableError(told(error))
        self.refusal = self.refusal or found

    def _refuse_write(self) -> NoReturn:
        error = UntraceableError("it writes into a tensor where functions of torch are not seen")
        self._refuse(error)
        raise error

    def _called(self, func: Any, args: Any, kwargs: Any) -> Any:
        self._check_surroundings()
        name = _name(func)
        tensors = tensors_in((args, kwargs))
        if any(id(tensor) in self._originals for tensor in tensors):
            raise UntraceableError(f"{name} is called on the network's own tensors, which something else holds")
        if name in DEVICES:
            return func(self._placed)
        if name in GRADIENTS and id(tensors[0]) in self._own:
            return func(self._own[id(tensors[0])])
        if not any(tensor.is_meta for tensor in tensors):
            return self._computed(func, args, kwargs, tensors)
        return self._followed(func, name, *replaced((args, kwargs), Tensor, self._known))

    def _check_operands(self, types: Any, args: Any, kwargs: Any) -> None:
        own = own_kinds(types)
        if own:
            raise UntraceableError(f"it computes with a {own[0]}, whose operations are its own")
        if found_in((args, kwargs), torch.Generator):
            raise UntraceableError("it draws random numbers")

    def _check_surroundings(self) -> None:
        if torch._C._is_any_autocast_enabled():
            raise UntraceableError("it switches autocast on")
        stack = [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()]
        modes = foreign([mode for mode in stack if mode not in (self, self.sight)])
        if modes:
            raise UntraceableError(f"it switches the mode {type(modes[0]).__name__} on")

    def _computed(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        """A function of constants, which has a value."""
        versions = [tensor._version for tensor in tensors]
        result = func(*args, **kwargs)
        for tensor, version in zip(tensors, versions, strict=True):
            if tensor._version != version and id(tensor) not in self._made:
                raise UntraceableError("it writes into a tensor that outlives its call")
        self._kept += tensors_in(result)
        self._made |= {id(tensor) for tensor in tensors_in(result)}
        return result

    def _followed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """A function of tensors without values, and bounds on what it gives back."""
        operands = tracked_in((args, kwargs))
        result = func(*_fakes(args), **_fakes(kwargs))
        unseen = _writes(func)
        written = [one for one in operands if unseen or one.has_changed or _may_be_written(name, one, args)]
        outputs = tensors_in(result)
        if not outputs and not written:
            if name not in FACTS:
                raise UntraceableError(f"it asks a tensor for {name}, and only shapes and dtypes are followed")
            return result
        self._report_lost(name, operands)
        kept = [tracked.fake for tracked in written if tracked.outlives]  # a counter, or what is worse
        intervals = {
            id(fake): Interval.unknown()
            if any(fake is one for one in kept)
            else self._bounded(name, args, kwargs, fake)
            for fake in outputs
        }
        for tracked in written:
            self._changed(self._place(name)[0], tracked, intervals.get(id(tracked.fake), Interval.unknown()))
        if written and not outputs:
            self.problems.append(Problem(self._place(name)[0], f"no bound is known for {name}"))
        return replaced(result, Tensor, lambda fake: self._output(name, fake, intervals[id(fake)], operands, written))

    def _output(
        self, name: str, fake: Tensor, interval: Interval, operands: list[Tracked], written: list[Tracked]
    ) -> Tensor:
        """A result under its own name, beside the operands that may share its memory."""
        if any(fake is tracked.fake for tracked in written):
            return fake
        if any(fake is tracked.fake for tracked in operands):
            fake = torch.ops.aten.alias(fake)
        found = self._track(Tracked(fake, interval))
        doubtful = name in MAY_SHARE or name not in RULES
        for tracked in operands:
            if doubtful or shares_memory(fake, [tracked.fake]):
                found.joins(tracked)
        return fake

    def _bounded(self, name: str, args: Any, kwargs: Any, fake: Tensor) -> Interval:
        place, label = self._place(name)
        arithmetic = Arithmetic(fake.dtype)
        return self._found(place, lambda: bound_function(Call(name, args, kwargs, fake.shape, arithmetic), label))

    def _found(self, place: str, bound: Callable[[], Interval]) -> Interval:
        """Computes a bound; if there is none, records the reason and returns the unbounded interval."""
        try:
            with torch.no_grad():
                return bound()
        except UnboundedError as reason:
            self.problems.append(Problem(place, str(reason)))
            return Interval.unknown()

    def _attention(self, name: str, layer: SelfAttention, shadow: nn.Module, *args: Any, **kwargs: Any) -> Tensor:
        """An attention layer's ``forward``, whose errors no network may catch: they are not the convolution's."""
        try:
            with torch._C.DisableTorchFunction(), self.sight.closed():
                self._check_surroundings()
                changed = changed_part(self._states[id(shadow)], state_of(shadow))
                if changed is not None:
                    raise UntraceableError(f"it replaces {name}.{changed} while it runs")
                return self._output_of(name, layer, *args, **kwargs)
        except Exception as error:
            self._refuse(error)
            raise

    def _output_of(
        self, name: str, layer: SelfAttention, x: Tensor, output_size: Sequence[int] | None = None
    ) -> Tensor:
        tracked, spec = self._known(x), layer.spec
        if x.ndim - spec.axes not in (1, 2) or x.shape[-spec.axes - 1] != spec.in_channels:
            raise UntraceableError(f"the input of {name} must be {batch_shape(spec)}; got {list(x.shape)}")
        before = x.shape[-spec.axes :]
        chosen = spec if output_size is None else spec.with_output_size(before, output_size)
        fake = x.new_empty((*x.shape[: -spec.axes - 1], spec.out_channels, *chosen.output_size(Size(*before))))
        self._report_lost(name, [tracked])
        return self.give(fake, self._found(name, lambda: self._attended(name, layer, tracked)))

    def _attended(self, name: str, layer: SelfAttention, tracked: Tracked) -> Interval:
        if tracked.fake.dtype != layer.weight.dtype:
            reason = f"its input is of {tracked.fake.dtype}, the layer of {layer.weight.dtype}"
            self.doubts.append(Problem(name, reason))  # the layer raises an error, which the network may catch
            raise UnboundedError(reason)
        is_batch = tracked.fake.ndim == layer.spec.axes + 2
        x = tracked.interval if is_batch else tracked.interval.merged()
        key = (name, *(tuple(bound.tolist()) for bound in (x.low, x.high, x.error)))
        if key not in self._memory:
            self._memory[key] = bound_attention(layer, x)
        output, own, inherited = self._memory[key]
        low, high, total = float(x.low.min()), float(x.high.max()), float(output.error.max())
        self.layers.append(LayerBound(name, low, high, own.bound, inherited, total))
        return output if is_batch else output.merged()

    def _known(self, tensor: Tensor) -> Tracked:
        """The record of a tensor; a tensor that was made or changed unseen is unbounded."""
        if not tensor.is_meta:
            return self._track(constant(tensor))
        found = self._tracked.get(id(tensor))
        if found is None:
            found = self._track(
                Tracked(tensor, Interval.unknown(), lost="it reads a tensor that was made out of sight")
            )
        elif found.has_changed:
            self._changed("", found, Interval.unknown())
            found.lose("it reads a tensor that was changed out of sight")
        return found

    def _changed(self, place: str, tracked: Tracked, interval: Interval) -> None:
        """Notes a write into a tensor."""
        if tracked.changed(interval):
            self.doubts.append(Problem(place, "it changes a parameter, a buffer or a constant while it runs"))

    def _track(self, tracked: Tracked) -> Tracked:
        self._tracked[id(tracked.fake)] = tracked
        return tracked

    def _report_lost(self, name: str, operands: list[Tracked]) -> None:
        for tracked in operands:
            if tracked.lost is not None:
                self.problems.append(Problem(self._place(name)[0], tracked.lost))

    def _place(self, name: str) -> tuple[str, str]:
        """What a problem is at: a module of torch's by its name, or the function; and what the function is called."""
        path, module = self._modules[-1] if self._modules else ("", None)
        if module is not None and type(module).__module__.startswith("torch.nn.") and not list(module.children()):
            return path, type(module).__name__
        return name, name

    def _enter(self, name: str, module: nn.Module, inputs: Any) -> None:
        self._modules.append((name, module))

    def _leave(self, module: nn.Module, inputs: Any, output: Any) -> None:
        self._modules.pop()


def follow(
    model: nn.Module,
    size: Size,
    channels: int,
    images: Interval,
    *,
    count: int,
    memory: Memory,
    gradients: bool = False,
    convolutions: bool = False,
) -> tuple[Follower, list[Interval]]:
    """Carries bounds on images through a network.

    Args:
        model: The converted network, of which nothing but its classes' code runs (``program.not_followed``).
        size: Size of the images.
        channels: Their channels.
        images: Bounds on their values.
        count: How many images there are.
        memory: What is known already; more is added to it.
        gradients: Whether they are enabled; no tensor requires any.
        convolutions: Whether convolutions stand where the attention layers are, as in the CNN.

    Returns:
        What was found on the way, and bounds on the outputs.

    Raises:
        UntraceableError: The network does not run without values, or on such images.
    """
    dtype = next(parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    try:
        with contextlib.redirect_stdout(sys.stderr), torch.set_grad_enabled(gradients):  # it may print, too
            shadow, twins = _shapes_of(model, convolutions=convolutions)
            follower = Follower(model, shadow, twins, memory)
            x = follower.give(torch.empty(count, channels, *size, dtype=dtype, device="meta"), images)
            with _unchanged(shadow), follower, follower.sight:
                outputs = shadow(x)
            return follower, follower.result(outputs)
    except UntraceableError:
        raise
    except Exception as error:
        raise UntraceableError(told(error)) from error


def _shapes_of(model: nn.Module, *, convolutions: bool) -> tuple[nn.Module, dict[int, Tensor]]:
    """A copy of a network on the meta device, made without copying a value, and its tensors by the originals'.

    It has no backward hooks, which do nothing before the gradients are computed. A layer with a padding that no class
    of convolutions has stays attention.
    """
    tensors = [*model.parameters(), *model.buffers()]
    twins = {id(tensor): _empty(tensor) for tensor in tensors}
    layers = [module for module in model.modules() if convolutions and isinstance(module, SelfAttention)]
    convs = {id(layer): copy.deepcopy(conv_with(layer), dict(twins)) for layer in layers if has_class(layer.spec)}
    shadow = copy.deepcopy(model, twins | convs)
    for module in shadow.modules():
        module._backward_hooks.clear()
        module._backward_pre_hooks.clear()
    return shadow, twins


def _empty(tensor: Tensor) -> Tensor:
    empty = torch.empty_like(tensor, device="meta", memory_format=torch.contiguous_format)
    return nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty


@contextmanager
def _unchanged(shadow: nn.Module) -> Iterator[None]:
    """Makes sure that the next call would do the same.

    Raises:
        UntraceableError: The call changed the state of a module or of torch's random numbers.
    """
    before, chance = state_of(shadow), torch.get_rng_state()
    try:
        yield
        drew = not torch.equal(torch.get_rng_state(), chance)
    finally:
        torch.set_rng_state(chance)
    if drew:
        raise UntraceableError("it draws random numbers")
    after = state_of(shadow)
    changed = changed_part(before, after)
    if changed is not None:
        raise UntraceableError(f"it changes its own {changed} while it runs")
    if len(after) > len(before):
        raise UntraceableError("it keeps something from one call to the next")


def _name(func: Any) -> str:
    """The last part of a name of torch's; all of another, which may be a user's own and which no rule is for."""
    name: str | None = resolve_name(func)
    if name is None:
        return ".".join(filter(None, (getattr(func, "__module__", None), getattr(func, "__qualname__", str(func)))))
    if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return name
    return name.removesuffix(".__get__").rpartition(".")[2]


def _may_be_written(name: str, tracked: Tracked, args: Any) -> bool:
    """Whether a function that no rule is for may write into a tensor unseen, as ``apply_`` does."""
    return name.endswith("_") and not name.endswith("__") and name not in RULES and (not args or tracked is args[0])


def _writes(func: Any) -> bool:
    """Whether an operator says that it writes into an operand, which one without values need not show."""
    packet = func.overloadpacket if isinstance(func, torch._ops.OpOverload) else func
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return False
    return any(getattr(packet, overload)._schema.is_mutable for overload in packet.overloads())


def _is_odd(value: object) -> bool:
    return not isinstance(value, _PLAIN)


def _fakes(values: Any) -> Any:
    return replaced(values, Tracked, lambda tracked: tracked.fake)
