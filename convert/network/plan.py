"""Cost of a conversion, and the layers of it that an input runs.

The cost, known before anything is converted: each layer's input size and the memory of literal attention.

Not every layer runs. A converted layer stands where the convolution had its name, and where whatever the model's
modules hold had it (``held.py``). Code that reaches the convolution another way does not meet it: a global name calls
the convolution that is left there; ``F.conv2d(x, self.conv.weight)`` uses the weight alone. Such a layer ran, or its
weight was used, before the conversion; and it does not run now, or a convolution computes with its very parameter
outside of it. A layer that nothing needs on an input, such as an auxiliary head in training only, merely does not run.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..arguments import USUAL_SIZES, Size
from ..errors import Problem
from ..layer.layer import SelfAttention
from ..spec import Convolution, ConvSpec
from ..subclasses.readers import geometry
from .modules import modules_of


@dataclass(frozen=True)
class LayerPlan:
    """One convolution that would be converted.

    Attributes:
        name: Its name.
        spec: Its geometry.
        parameters_before: Numbers in the convolution.
        parameters_after: Numbers in the attention layer.
        note: A remark on its weights for the user, or None.
        original: Its name in the source file, or None if it is the same.
        input_size: Size of the layer's input, or None if the network does not run on the planned input.
        literal_bytes: Memory of all attention probabilities of one image in float32, or None likewise.
    """

    name: str
    spec: ConvSpec
    parameters_before: int
    parameters_after: int
    note: str | None
    original: str | None
    input_size: Size | None
    literal_bytes: int | None

    def to_json(self) -> dict[str, Any]:
        """The layer's plan as plain data."""
        size = None if self.input_size is None else list(self.input_size)
        return vars(self) | {"spec": self.spec.to_json(), "heads": self.spec.num_heads, "input_size": size}


def plan_layers(
    model: nn.Module,
    names: list[str],
    *,
    size: Size | None = None,
    notes: Mapping[str, str] | None = None,
    originals: Mapping[str, str] | None = None,
) -> list[LayerPlan]:
    """Plans the named convolutions for images of one size (``usual_size`` by default), computing only shapes.

    Remarks on layers (``notes``) and their names in the source file (``originals``) are kept by name.
    """
    sizes = layer_input_sizes(model, names, size=size or usual_size(model))
    plans = []
    for name in names:
        conv = model.get_submodule(name)
        if not isinstance(conv, Convolution):
            continue
        spec, before = geometry(conv), sum(parameter.numel() for parameter in conv.parameters())
        input_size, heads, literal = sizes.get(name), spec.num_heads, None
        if input_size is not None:  # float32 of all heads, queries and keys
            literal = 4 * heads * math.prod(spec.output_size(input_size)) * math.prod(spec.padded_size(input_size))
        after, note, original = before + (spec.axes + 1) * heads, (notes or {}).get(name), (originals or {}).get(name)
        plans.append(LayerPlan(name, spec, before, after, note, original, input_size, literal))
    return plans


def usual_size(model: nn.Module) -> Size:
    """The size of the images that a network like this usually takes, by the axes of its first convolution."""
    first = next((module for module in model.modules() if isinstance(module, Convolution)), None)
    return USUAL_SIZES[2 if first is None else len(first.kernel_size)]


def layer_input_sizes(model: nn.Module, names: list[str], *, size: Size) -> dict[str, Size]:
    """Input size of each named layer when the model runs on one image; layers it does not reach are missing.

    A copy of the model runs on the meta device, where tensors have shapes and no values. The image has the
    channels of the model's first convolution.
    """
    channels = next((module.in_channels for module in model.modules() if isinstance(module, Convolution)), 3)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    sizes: dict[str, Size] = {}
    # a network may hold what cannot be copied, want other inputs, or read values
    with torch.no_grad(), contextlib.suppress(Exception):
        shadow = copy.deepcopy(model).to("meta").eval()
        for name in names:
            shadow.get_submodule(name).register_forward_hook(partial(_record, sizes, name))
        shadow(torch.empty(1, channels, *size, device="meta", dtype=dtype))
    return sizes


def _record(sizes: dict[str, Size], name: str, module: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
    if isinstance(module, Convolution):
        spec = geometry(module)
        size = Size(*inputs[0].shape[-spec.axes :])
        spec.output_size(size)  # ends the run where only the meta device has an output
        sizes[name] = size


IDLE = "did not run on this input"
PASSED_BY = f"{IDLE} (held by an object of its own? its weight used by a function? trace=True converts calls)"
_CONVOLUTIONS = frozenset(getattr(torch, f"conv{kind}{axes}d") for kind in ("", "_transpose") for axes in (1, 2, 3))


class Runs:
    """Runs of a network's attention layers, or of others that are watched.

    Attributes:
        ran: Names of the layers that ran, the first of each.
        passed_by: Names of the layers whose weight a convolution used outside of the layer.
    """

    def __init__(self) -> None:
        self.ran: set[str] = set()
        self.passed_by: set[str] = set()

    def idle(self, model: nn.Module, before: Runs | None = None) -> tuple[Problem, ...]:
        """The layers that did not run, each with the reason, in the model's order.

        Args:
            model: The network.
            before: Runs of the layers that these replaced, if they are known.
        """
        passed_by = self.passed_by if before is None else self.passed_by | before.ran | before.passed_by
        return tuple(
            Problem(names[0], PASSED_BY if names[0] in passed_by else IDLE)
            for names in modules_of(model, SelfAttention)
            if names[0] not in self.ran
        )


class _Watch(TorchFunctionMode):
    """Notes convolutions that use the weight of a layer while no layer computes."""

    def __init__(self, runs: Runs, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._runs, self.inside = runs, 0
        self._names = {id(each._parameters.get("weight")): (name, each) for name, each in layers.items()}
        self._names.pop(id(None), None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the function."""
        if func in _CONVOLUTIONS and not self.inside:
            weight = args[1] if len(args) > 1 else (kwargs or {}).get("weight")
            if id(weight) in self._names:
                name, layer = self._names[id(weight)]
                (self._runs.ran if _is_calling(layer) else self._runs.passed_by).add(name)
        return func(*args, **(kwargs or {}))


def _is_calling(layer: nn.Module) -> bool:
    """Whether a method of a layer is under way, as of one that was called past its hooks."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "forward" and frame.f_locals.get("self") is layer:
            return True
        frame = frame.f_back
    return False


@contextmanager
def watching_runs(model: nn.Module, layers: Mapping[str, nn.Module] | None = None) -> Iterator[Runs]:
    """Notes which layers run within the context, in eager mode.

    Args:
        model: The network.
        layers: The layers to watch, by name; by default its attention layers.
    """
    if layers is None:
        layers = {names[0]: layer for names, layer in modules_of(model, SelfAttention).items()}
    runs = Runs()
    watch = _Watch(runs, layers)

    def begin(name: str, layer: nn.Module, module: nn.Module, _: Any) -> None:
        if module is layer:  # a convolution that is left has the very hooks of its layer
            runs.ran.add(name)
            watch.inside += 1

    def end(layer: nn.Module, module: nn.Module, *_: Any) -> None:
        watch.inside -= module is layer

    with ExitStack() as stack:
        for name, layer in layers.items():
            stack.callback(layer.register_forward_pre_hook(partial(begin, name, layer)).remove)
            stack.callback(layer.register_forward_hook(partial(end, layer)).remove)
        stack.enter_context(watch)
        yield runs
