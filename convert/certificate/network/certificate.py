"""A bound on how far a whole converted network can be from its CNN, for all images within a range.

The claim ``error-propagation`` (``proofs/claims/certificate/propagation.py``) derives how a difference passes through a
layer. The bound holds for every image, so it grows with every layer by the sum of the absolute weights, and for deep
networks it is many orders of magnitude above what is seen. ``images.py`` says more of given images.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from ...arguments import USUAL_SIZES, Size, as_size, check_memory
from ...errors import ConversionError, Problem, listed
from ...layer.checked import checked_model
from ...layer.layer import SelfAttention
from ...spec import Convolution
from ..layer import InputRange, channel_range, format_bound
from .attention import LayerBound, bound_layer
from .call import Call
from .interval import EXACT, Interval
from .linearised import Linearised
from .program import Bounding, Program
from .table import bound as bound_call

NO_LAYER = "no attention layer runs in the network's program"


@dataclass(frozen=True)
class NetworkCertificate:
    """Bound on the difference between a converted network and its CNN.

    Attributes:
        size: Size of the images.
        bound: Largest difference of any output, or None if no finite bound is known.
        layers: Every call of an attention layer that has a bound, in order.
        unbounded: The operations that no bound is known for, each with the reason; what follows from them alone is
            not listed.
        outputs: The largest absolute value of an output for one image, drawn at random within the range, or None if
            there is no bound; a larger bound is not useful (``is_useful``).
    """

    size: Size
    bound: float | None
    layers: tuple[LayerBound, ...]
    unbounded: tuple[Problem, ...]
    outputs: float | None = None

    def __str__(self) -> str:
        """The bound, and what has none."""
        first = f"worst case for any {self.size} image within the range: {self.in_words}"
        return "\n".join([first, *map("  {}".format, self.unbounded)])

    @property
    def in_words(self) -> str:
        """The bound for people."""
        return format_bound(self.bound, self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain data; a number that is not finite becomes null."""
        return {
            "size": list(self.size),
            "bound": self.bound,
            "outputs": self.outputs,
            "layers": [{key: _finite(value) for key, value in asdict(layer).items()} for layer in self.layers],
            "unbounded": [asdict(problem) for problem in self.unbounded],
        }


def certify_network(
    model: nn.Module, *, input_range: InputRange, size: Sequence[int] | None = None
) -> NetworkCertificate:
    """Bounds the difference between a converted network and its CNN.

    The certificate is of the operations of the network's run on one image, and of the same operations
    with convolutions in place of its attention layers. Assumed, beside what ``certify`` assumes: an operation between
    attention layers gives the same result for the same numbers; activations err by at most ``ACTIVATION_ULPS``.

    Args:
        model: A network with attention layers, in eval mode, that takes one batch of images.
        input_range: The smallest and the largest value of an image: two numbers, or two for each channel.
        size: Size of the images, rows and columns; None for the usual one of their number of axes (``USUAL_SIZES``).

    Raises:
        ConversionError: The network has no attention layer, or the range is not one.

    Examples:
        >>> model, _ = c2a.convert_model(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval())
        >>> c2a.certify_network(model, input_range=(0, 1), size=(8, 8)).bound < 1e-4
        True
    """
    model, first = converted(model)
    grid = size_of_images(first, size)
    check_memory(24 * first.in_channels * math.prod(grid), f"the range of an image of {grid}")
    low, high = (
        end.view(1, -1, *[1] * len(grid)).expand(1, -1, *grid) for end in channel_range(input_range, first.in_channels)
    )
    try:
        image = torch.zeros(1, first.in_channels, *grid, dtype=first.weight.dtype, device="cpu")
        program = program_of(model, image)
        if program.reads:
            raise ConversionError(f"its run reads values that depend on the image ({listed(program.reads)})")
    except ConversionError as refusal:
        return NetworkCertificate(grid, None, (), (Problem("", str(refusal)),))
    bounds = Bounds(program)
    outputs = bounds.values_for(Interval(low, high, torch.zeros_like(low)))
    if not bounds.layers and not bounds.problems:
        return NetworkCertificate(grid, None, (), (Problem("", NO_LAYER),))
    bound = _largest([output.error for output in outputs]) if not bounds.problems and outputs else None
    reached = _reached(program, low, high) if bound is not None else None
    return NetworkCertificate(grid, bound, tuple(bounds.layers), tuple(dict.fromkeys(bounds.problems)), reached)


def converted(model: nn.Module) -> tuple[nn.Module, SelfAttention | Convolution]:
    """A network that has an attention layer, and its first layer, which its images' channels are mostly those of.

    Raises:
        ConversionError: It has none.
    """
    model = checked_model(model)
    first = next((module for module in model.modules() if isinstance(module, SelfAttention | Convolution)), None)
    if first is None or not any(isinstance(module, SelfAttention) for module in model.modules()):
        raise ConversionError("only a network with self-attention layers is certified; convert it first")
    return model, first


def size_of_images(first: SelfAttention | Convolution, size: Sequence[int] | None) -> Size:
    """The size of the images that a network is certified for."""
    axes = len(first.kernel_size)
    return USUAL_SIZES[axes] if size is None else as_size(size, axes)


def program_of(model: nn.Module, image: Tensor) -> Program:
    """The network's program for an image, [1, channels, *size], in its precision.

    Raises:
        ConversionError: torch cannot record it, it changes its own tensors, or these have no values.
    """
    if any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers())):
        raise ConversionError("the network's tensors have no values, as on the meta device")
    program = Program(_on_cpu(model), image.detach().cpu())
    if program.changes:
        raise ConversionError(f"the network changes {', '.join(program.changes)} while it runs")
    return program


def _on_cpu(model: nn.Module) -> nn.Module:
    """The network, or a copy of it whose tensors are on the CPU."""
    tensors = [*model.parameters(), *model.buffers()]
    if all(tensor.device.type == "cpu" for tensor in tensors):
        return model
    moved: dict[int, Any] = {id(tensor): tensor.detach().cpu() for tensor in tensors}
    moved |= {id(tensor): nn.Parameter(moved[id(tensor)], requires_grad=False) for tensor in model.parameters()}
    return copy.deepcopy(model, moved)


class Bounds(Bounding):
    """Bounds on values and differences, carried through a program.

    Args:
        program: The network's.

    Attributes:
        layers: Every call of an attention layer that has a bound, in order.
    """

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.layers: list[LayerBound] = []

    @torch.no_grad()
    def values_for(self, images: Interval) -> list[Interval]:
        """Bounds on the outputs that depend on the images and have some; the others are among the problems."""
        found = [output for output in super().values_for(images) if not isinstance(output, Tensor)]
        known = [output for output in found if isinstance(output, Interval)]
        if len(known) < len(found) and not self.problems:
            self.problems.append(Problem("", "an output is no tensor that a bound is known for"))
        return known

    def bounded(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's rule."""
        return bound_call(Call.at(node, args, kwargs))

    def constant(self, values: Tensor) -> Interval:
        """The same numbers in both programs."""
        return Interval.point(values)

    def attention(self, name: str, layer: SelfAttention, x: Interval, node: fx.Node) -> Interval:
        """The layer's rule."""
        found, figures = bound_layer(name, layer, x, node.meta["val"].shape)
        self.layers.append(figures)
        return found


def _reached(program: Program, low: Tensor, high: Tensor) -> float | None:
    """The largest absolute value of an output for one drawn image, or None if it is not a number."""
    generator = torch.Generator("cpu").manual_seed(0)
    drawn = torch.rand(low.shape, generator=generator, dtype=torch.float64, device="cpu")
    with torch.device("cpu"):  # whatever torch's default is
        run = Linearised(program, low + drawn * (high - low), EXACT)
    largest = _largest([output.center.abs() for output in run.outputs])
    return largest if math.isfinite(largest) and not run.problems else None


def _largest(values: Sequence[Tensor]) -> float:
    return max((float(value.max()) for value in values if value.numel()), default=0.0)


def _finite(value: Any) -> Any:
    return value if not isinstance(value, float) or math.isfinite(value) else None
