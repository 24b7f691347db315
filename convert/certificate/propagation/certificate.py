"""A bound on how far a whole converted network can be from its CNN, for all images within a range.

Ranges and errors are carried through the network, layer by layer (``propagation/``, claim ``error-propagation`` in
``proofs/claims/certificate/propagation.py``). The bound holds for every image, so it grows with every layer by the sum
of the absolute weights, and for deep networks it is many orders of magnitude above what is seen. ``comparison.py``
measures what happens on given images instead.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...arguments import as_size
from ...attention.checked import checked_model
from ...attention.layer import SelfAttention
from ...engines import AUTO
from ...errors import ConversionError, Problem
from ...size import USUAL_SIZES, Size
from ...spec import Convolution
from ..layer import InputRange, channel_range
from ..wording import told
from .interval import Interval
from .network import LayerBound, UntraceableError, follow
from .program import not_followed
from .tracked import tensors_in


@dataclass(frozen=True)
class NetworkCertificate:
    """How far a converted network can be from its CNN.

    Attributes:
        size: Size of the images.
        bound: Largest difference of any output, or None if no finite bound is known.
        layers: Every call of an attention layer that has a bound, in order.
        unbounded: The operations that no bound is known for, each with the reason; what follows from them alone is
            not listed.
        outputs: The largest absolute value of an output for one image, drawn at random within the range, or None if
            there is no bound; a larger bound is not useful (``wording.py``).
    """

    size: Size
    bound: float | None
    layers: tuple[LayerBound, ...]
    unbounded: tuple[Problem, ...]
    outputs: float | None = None

    @property
    def in_words(self) -> str:
        """The bound for people."""
        return told(self.bound, self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain data; a number that is not finite becomes null."""
        layers = [{key: _finite(value) for key, value in asdict(layer).items()} for layer in self.layers]
        problems = [asdict(problem) for problem in self.unbounded]
        return {
            "size": list(self.size),
            "bound": self.bound,
            "outputs": self.outputs,
            "layers": layers,
            "unbounded": problems,
        }


def certify_network(
    model: nn.Module, *, input_range: InputRange, size: Sequence[int] | None = None
) -> NetworkCertificate:
    """Bounds the difference between a converted network and its CNN.

    Assumed, beside what ``certify`` assumes: both networks compute what stands between their attention layers by the
    same operations, which give the same result for the same numbers; activations err by at most ``ACTIVATION_ULPS``.

    Args:
        model: A network with attention layers, in eval mode, that takes one batch of images.
        input_range: The smallest and the largest value of an image: two numbers, or two for each channel.
        size: Size of the images, rows and columns; None for the usual one of their number of axes (``USUAL_SIZES``).

    Raises:
        ConversionError: The network has no attention layer, or the range is not one.
    """
    model = checked_model(model)
    first = next((module for module in model.modules() if isinstance(module, SelfAttention | Convolution)), None)
    if not any(isinstance(module, SelfAttention) for module in model.modules()) or first is None:
        raise ConversionError("only a network with self-attention layers is certified; convert it first")
    axes = len(first.kernel_size)
    grid = USUAL_SIZES[axes] if size is None else as_size(size, axes)
    low, high = channel_range(input_range, first.in_channels)
    in_the_way = not_followed(model)
    if in_the_way:
        return NetworkCertificate(grid, None, (), in_the_way)
    images = Interval(low, high, torch.zeros_like(low))
    run = functools.partial(follow, model, grid, first.in_channels, images, memory={})
    try:
        found, outputs = run(count=1)
        others = {
            "how many images it gets": run(count=3),
            "gradients being enabled": run(count=1, gradients=True),
            "its layers being attention and not convolutions": run(count=1, convolutions=True),
        }
    except UntraceableError as error:
        reason = f"the network cannot be followed on images of {grid}: {error}"
        return NetworkCertificate(grid, None, (), (Problem("", reason),))
    bound = max((float(output.error.max()) for output in outputs), default=math.inf)
    depends = [what for what, (_, bounds) in others.items() if not _are_same(outputs, bounds)]
    doubts = [doubt for follower in (found, *(other for other, _ in others.values())) for doubt in follower.doubts]
    problems = [*found.problems, *_beside(found.problems, doubts)]
    problems += [Problem("", f"what it computes depends on {what}") for what in depends]
    if depends or doubts:
        bound = math.inf
    reached = _largest_output(model, first, low, high, grid) if math.isfinite(bound) else None
    return NetworkCertificate(grid, _finite(bound), tuple(found.layers), tuple(dict.fromkeys(problems)), reached)


@torch.no_grad()
def _largest_output(
    model: nn.Module, first: SelfAttention | Convolution, low: Tensor, high: Tensor, size: Size
) -> float | None:
    """The largest absolute value of an output for one drawn image, or None if the network does not run on it."""
    generator = torch.Generator("cpu").manual_seed(0)
    drawn = torch.rand(1, len(low), *size, generator=generator, dtype=torch.float64, device="cpu")
    image = low.view(-1, *(1,) * len(size)) + drawn * (high - low).view(-1, *(1,) * len(size))
    engines = {module: module.engine for module in model.modules() if isinstance(module, SelfAttention)}
    try:
        for layer in engines:
            layer.engine = AUTO  # the literal one may take hours
        outputs = tensors_in(model(image.to(first.weight)))
    except (ConversionError, RuntimeError):  # as where the memory is too small
        return None
    finally:
        for layer, engine in engines.items():
            layer.engine = engine
    largest = max((float(output.abs().max()) for output in outputs if output.numel()), default=math.inf)
    return largest if math.isfinite(largest) else None


def _beside(problems: list[Problem], doubts: list[Problem]) -> list[Problem]:
    """The doubts about modules and functions that have a bound otherwise."""
    named = {problem.name for problem in problems}
    return [doubt for doubt in doubts if doubt.name not in named]


def _are_same(a: list[Interval], b: list[Interval]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(getattr(x, name), getattr(y, name))
        for x, y in zip(a, b, strict=True)
        for name in ("low", "high", "error")
    )


def _finite(value: Any) -> Any:
    return value if not isinstance(value, float) or math.isfinite(value) else None
