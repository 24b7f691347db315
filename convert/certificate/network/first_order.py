"""The CNN on one image, its gradients, and what each of its operations can differ by: ``images.py`` says what for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_map

from ...attention.checked import checked_layer
from ...attention.layer import SelfAttention
from ...errors import ConversionError
from .attention import bound_layer, convolve
from .certificate import call_of
from .program import Program, name_of
from .rules import RULES
from .rules import bound as bound_call
from .rules.interval import Arithmetic, Interval, Known, UnboundedError
from .rules.roundings import ROUNDINGS

_KINKS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(("relu", "leaky_relu", "prelu"), (0.0,)),
    "relu6": (0.0, 6.0),
    **dict.fromkeys(("hardswish", "hardsigmoid"), (-3.0, 3.0)),
}


@dataclass(frozen=True)
class _Value(Known):
    """A tensor as the CNN computes it."""

    tensor: Tensor


class FirstOrder:
    """The CNN on an image, with gradients, and what each operation can differ by.

    Args:
        program: The network's.
        image: [1, channels, *size].
        block: As for ``Arithmetic``.

    Attributes:
        outputs: What it computes.

    Raises:
        ConversionError: An operation has no rule.
    """

    def __init__(self, program: Program, image: Tensor, block: int | None) -> None:
        self._program, self._image, self._block = program, image.cpu().to(_precise(image.dtype)), block
        self._sources: dict[fx.Node, tuple[Tensor, Tensor]] = {}
        self._at_kinks: dict[fx.Node, Tensor] = {}
        with torch.enable_grad():
            start = _Value(self._image.requires_grad_())
            found, problems = program.walk(start, bound=self._operation, layer=self._layer)
        if problems:
            listed = "; ".join(f"{problem.name}: {problem.reason}" for problem in problems)
            raise ConversionError(f"nothing can be estimated for the network: {listed}")
        self.outputs = [value.tensor for value in found if isinstance(value, _Value)]

    def estimate(self, output: Tensor) -> float:
        """sum_l |J_l| rho_l of a number."""
        values, losses = zip(*self._sources.values(), strict=True)
        slopes = torch.autograd.grad(output, values, retain_graph=True, allow_unused=True)
        parts = (
            float((slope.abs().double().cpu() * loss).sum())
            for slope, loss in zip(slopes, losses, strict=True)
            if slope is not None
        )
        return math.fsum(parts)

    @torch.no_grad()
    def near_kinks(self) -> tuple[float, int, int]:
        """The largest difference at activations with kinks, units so near to one, and all units."""
        generator, largest, near, units = torch.Generator("cpu").manual_seed(0), 0.0, 0, 0

        def perturbed(node: fx.Node, computed: Any) -> Any:
            if node not in self._sources:
                return computed
            loss = self._sources[node][1]
            signs = torch.randint(0, 2, loss.shape, generator=generator, dtype=torch.float64, device="cpu") * 2 - 1
            several = isinstance(computed, list)
            first = (computed[0] if several else computed).tensor
            moved = _Value(first + (signs * loss).to(first))
            return [moved, *computed[1:]] if several else moved

        def operation(node: fx.Node, args: Any, kwargs: Any) -> Any:
            nonlocal largest, near, units
            if node in self._at_kinks:
                before, after = self._at_kinks[node], args[0].tensor
                delta = float((after - before).abs().max())
                places = _kinks(node)
                distance = torch.stack([(before - place).abs() for place in places]).amin(0)
                largest, units = max(largest, delta), units + before.numel()
                near += int((distance <= delta).sum())
            return perturbed(node, self._computed(node, args, kwargs))

        def layer(name: str, module: SelfAttention, x: Any, node: fx.Node) -> Any:
            return perturbed(node, _Value(_convolution(module, x.tensor, node)))

        self._program.walk(_Value(self._image), bound=operation, layer=layer)
        return largest, near, units

    def _operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        found, name = self._computed(node, args, kwargs), name_of(node)
        if name not in RULES:
            raise UnboundedError(f"no bound is known for {name}")
        if _kinks(node):
            self._at_kinks[node] = args[0].tensor.detach()
        if name in ROUNDINGS:
            with torch.no_grad():
                points = tree_map(
                    lambda one: Interval.point(one.tensor) if isinstance(one, _Value) else one, (args, kwargs)
                )
                bounds = bound_call(call_of(node, *points, repeatable=False, block=self._block))
            self._note(node, found, bounds)
        return found

    def _note(self, node: fx.Node, found: Any, bounds: Any) -> None:
        value, loss = (found[0], bounds[0]) if isinstance(bounds, list) else (found, bounds)
        if bool(loss.error.any()):
            self._sources[node] = value.tensor, loss.error

    def _layer(self, name: str, module: SelfAttention, x: Any, node: fx.Node) -> Any:
        found = _Value(_convolution(module, x.tensor, node))
        arithmetic = Arithmetic(module.weight.dtype, repeatable=False, block=self._block)
        with torch.no_grad():
            bounds, _ = bound_layer(name, module, Interval.point(x.tensor), node.meta["val"].shape, arithmetic)
        self._sources[node] = found.tensor, bounds.error
        return found

    def _computed(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        if name_of(node) in ("_to_copy", "to"):
            return args[0]
        dtype = self._image.dtype

        def plain(value: Any) -> Any:
            if isinstance(value, _Value):
                return value.tensor
            return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

        target: Callable[..., Any] = node.target  # type: ignore[assignment]
        args, kwargs = tree_map(plain, (args, kwargs))
        if node.target._schema.is_mutable:  # type: ignore[union-attr]
            args = (args[0].clone(), *args[1:])  # gradients read what is written over
        found = target(*args, **kwargs)
        return _Value(found) if isinstance(found, Tensor) else [_Value(one) for one in found]


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _convolution(layer: SelfAttention, x: Tensor, node: fx.Node) -> Tensor:
    """What the layer's convolution gives."""
    given = checked_layer(layer)
    bias = None if given.bias is None else given.bias.detach().to(x)
    return convolve(given.spec, x, given.kernel.detach().to(x), node.meta["val"].shape, bias)


def _kinks(node: fx.Node) -> tuple[float, ...]:
    """Where an activation is not smooth; nowhere for other operations."""
    name = name_of(node)
    if name in ("hardtanh", "clamp", "clamp_min", "clamp_max"):
        return tuple(float(limit) for limit in node.args[1:] if isinstance(limit, int | float))
    return _KINKS.get(name, ())
