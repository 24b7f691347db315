"""The CNN on one image, its gradients, and what each of its operations can differ by: ``images.py`` says what for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

from ...errors import ConversionError
from ...layer.checked import checked_layer
from ...layer.layer import SelfAttention
from .attention import bound_layer, convolve_unpadded
from .call import Call
from .interval import Interval, Known, UnboundedError
from .program import Program, Walk, name_of
from .roundings import ROUNDINGS
from .rules import RULES
from .rules import bound as bound_call

_KINKS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("relu", "leaky_relu", "prelu", "elu"), (0.0,)),
    "relu6": (0.0, 6.0),
    **dict.fromkeys(("hardswish", "hardsigmoid"), (-3.0, 3.0)),
}


@dataclass(frozen=True)
class Value(Known):
    """A tensor as the CNN computes it."""

    tensor: Tensor


class Evaluation(Walk):
    """The CNN on an image, in the image's precision; convolutions take the place of attention layers."""

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation itself."""
        dtype = next(one.tensor.dtype for one in tree_leaves((args, kwargs)) if isinstance(one, Value))
        if name_of(node) in ("_to_copy", "to"):
            return args[0]

        def plain(value: Any) -> Any:
            if isinstance(value, Value):
                return value.tensor
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        target: Any = node.target
        args, kwargs = tree_map(plain, (args, kwargs))
        if target._schema.is_mutable:
            args = (args[0].clone(), *args[1:])  # gradients read what is written over
        found = target(*args, **kwargs)
        return Value(found) if isinstance(found, Tensor) else [Value(one) for one in found]

    def attention(self, name: str, layer: SelfAttention, x: Any, node: fx.Node) -> Any:
        """The convolution."""
        given, image = checked_layer(layer), x.tensor
        bias = None if given.bias is None else given.bias.detach().to(image)
        return Value(
            convolve_unpadded(given.spec, image, given.kernel.detach().to(image), node.meta["val"].shape, bias)
        )


class FirstOrder(Evaluation):
    """The CNN on an image, with gradients, and what each operation can differ by on equal inputs.

    Args:
        program: The network's.
        image: [1, channels, *size].

    Attributes:
        outputs: Its outputs.
        sources: Each result that may differ, and bounds on its differences.
        at_kinks: The inputs of activations that are not smooth.

    Raises:
        ConversionError: An operation has no rule.
    """

    def __init__(self, program: Program, image: Tensor) -> None:
        super().__init__(program)
        self._image = image.cpu().to(torch.promote_types(image.dtype, torch.float32))
        self.sources: dict[fx.Node, tuple[Tensor, Tensor]] = {}
        self.at_kinks: dict[fx.Node, Tensor] = {}
        with torch.enable_grad():
            found = self.values_for(Value(self._image.requires_grad_()))
        if self.problems:
            listed = "; ".join(map(str, self.problems))
            raise ConversionError(f"nothing can be estimated for the network: {listed}")
        self.outputs = [value.tensor for value in found if isinstance(value, Value)]

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation itself, whose rule says how much it can differ."""
        found, name = super().operation(node, args, kwargs), name_of(node)
        if name not in RULES:
            raise UnboundedError(f"no bound is known for {name}")
        if _kinks(node):
            self.at_kinks[node] = args[0].tensor.detach()
        if name in ROUNDINGS:
            with torch.no_grad():
                points = tree_map(lambda one: _point(one) if isinstance(one, Value) else one, (args, kwargs))
                bounds = bound_call(Call.at(node, *points, repeatable=False))
            value, loss = (found[0], bounds[0]) if isinstance(bounds, list) else (found, bounds)
            if not loss.is_equal:
                self.sources[node] = value.tensor, loss.error
        return found

    def attention(self, name: str, layer: SelfAttention, x: Any, node: fx.Node) -> Any:
        """The convolution, which the layer's certificate says how much it can differ from."""
        found = super().attention(name, layer, x, node)
        with torch.no_grad():
            bounds, _ = bound_layer(name, layer, _point(x), node.meta["val"].shape)
        self.sources[node] = found.tensor, bounds.error
        return found

    def estimate(self, output: Tensor) -> float:
        """sum_l |J_l| rho_l of a number."""
        values, losses = zip(*self.sources.values(), strict=True)
        slopes = torch.autograd.grad(output, values, retain_graph=True, allow_unused=True)
        pairs = zip(slopes, losses, strict=True)
        return math.fsum(float((slope.abs().double().cpu() * loss).sum()) for slope, loss in pairs if slope is not None)

    @torch.no_grad()
    def near_kinks(self) -> tuple[float, int, int]:
        """The largest difference at activations with kinks, units so near to one, and all units."""
        moved = _Moved(self)
        moved.values_for(Value(self._image))
        return moved.largest, moved.near, moved.units


class _Moved(Evaluation):
    """The CNN with every result moved by what it can differ by, with random signs; counts as ``near_kinks`` says."""

    def __init__(self, noted: FirstOrder) -> None:
        super().__init__(noted.program)
        self._noted, self._generator = noted, torch.Generator("cpu").manual_seed(0)
        self.largest, self.near, self.units = 0.0, 0, 0

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        if node in self._noted.at_kinks:
            before, after = self._noted.at_kinks[node], args[0].tensor
            delta = float((after - before).abs().max())
            distance = torch.stack([(before - place).abs() for place in _kinks(node)]).amin(0)
            self.largest, self.units = max(self.largest, delta), self.units + before.numel()
            self.near += int((distance <= delta).sum())
        return self._moved(node, super().operation(node, args, kwargs))

    def attention(self, name: str, layer: SelfAttention, x: Any, node: fx.Node) -> Any:
        return self._moved(node, super().attention(name, layer, x, node))

    def _moved(self, node: fx.Node, found: Any) -> Any:
        if node not in self._noted.sources:
            return found
        first, *others = found if isinstance(found, list) else [found]
        loss = self._noted.sources[node][1]
        signs = torch.randint(0, 2, loss.shape, generator=self._generator, dtype=torch.float64, device="cpu") * 2 - 1
        moved = Value(first.tensor + (signs * loss).to(first.tensor))
        return [moved, *others] if isinstance(found, list) else moved


def _point(value: Value) -> Interval:
    return Interval.point(value.tensor)


def _kinks(node: fx.Node) -> tuple[float, ...]:
    """Points where an activation is not smooth; none for other operations."""
    name = name_of(node)
    if name in ("hardtanh", "clamp", "clamp_min", "clamp_max"):
        return tuple(float(limit) for limit in node.args[1:] if isinstance(limit, int | float))
    return _KINKS.get(name, ())
