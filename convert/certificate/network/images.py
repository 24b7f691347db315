r"""Certificates for given images: bounds on the difference between two programs of the same network.

The two are the attention, in whichever engine, and the CNN; or the same network on another machine: sums in any order,
on any hardware with IEEE arithmetic. Two numbers for an image:

``bound`` is rigorous: intervals around the image's own values and differences, entry by entry, carried through the
network (``certificate.py``). It grows with every layer by the sum of its absolute weights.

``estimate`` is to first order. Let rho_l be what an operation's result can differ by on equal inputs, and J_l the
gradient of an output, or of a margin, with respect to that result. Where no unit passes a kink, differences are

    y - y'  =  sum_l J_l r_l  +  O(rho^2),     |r_l| <= rho_l,     so     |y - y'|  <~  sum_l |J_l| rho_l

For a layer of attention, rho is its certificate at the actual values: rounding of both sides, relative to |W| * |a|,
and the softmax tail. ``delta`` is the largest difference that inputs of activations with kinks had when every rho was
added with random signs, and ``near_kinks`` counts the units that are no further from a kink than the largest such
difference of their activation. Only ``bound`` is certified.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ...arguments import Size, as_integer
from ...bounds.rounding import OUTWARD
from ...errors import ConversionError, Problem
from ..layer import told
from .certificate import NO_LAYER, Bounds, converted, program_of
from .first_order import FirstOrder
from .interval import Interval
from .program import Program

MARGINS = 10


@dataclass(frozen=True)
class Margin:
    """Margin of the largest output over another one.

    Attributes:
        other: Index of the other output.
        value: The difference of the two.
        bound: No two programs' differ by more, or None.
        estimate: The same to first order.
    """

    other: int
    value: float
    bound: float | None
    estimate: float


@dataclass(frozen=True)
class ImageCertificate:
    """Bounds on the difference between outputs for one image.

    Attributes:
        top: Index of the largest output.
        outputs: The largest absolute value of an output.
        bound: Bound on the difference of every output, or None.
        estimate: First-order value for the largest output.
        margins: To the next largest outputs.
        delta: Largest difference seen at an activation with a kink, of random signs.
        near_kinks: Units that are so near to a kink that differences may pass it.
        units: Units of activations with kinks.
    """

    top: int
    outputs: float
    bound: float | None
    estimate: float
    margins: tuple[Margin, ...]
    delta: float
    near_kinks: int
    units: int

    @property
    def is_certified(self) -> bool:
        """Whether every program is proven to find the same largest output, of those that margins are given for."""
        return all(margin.bound is not None and margin.value > margin.bound for margin in self.margins)

    @property
    def is_stable(self) -> bool:
        """The same to first order."""
        return all(margin.value > margin.estimate for margin in self.margins)


@dataclass(frozen=True)
class ImagesCertificate:
    """Bounds on the difference between outputs for given images.

    Attributes:
        images: One for each.
        unbounded: Operations that no bound is known for, on any of them.
    """

    images: tuple[ImageCertificate, ...]
    unbounded: tuple[Problem, ...]

    @property
    def bound(self) -> float | None:
        """The largest bound of an output or a margin, or None where one is missing."""
        bounds = [bound for image in self.images for bound in (image.bound, *(one.bound for one in image.margins))]
        return None if None in bounds else max((bound for bound in bounds if bound is not None), default=0.0)

    @property
    def estimate(self) -> float:
        """The largest first-order value of an output or a margin."""
        return max(
            (max([image.estimate, *(margin.estimate for margin in image.margins)]) for image in self.images),
            default=0.0,
        )

    @property
    def in_words(self) -> str:
        """Both numbers for people, each by its name."""
        count, outputs = len(self.images), max((image.outputs for image in self.images), default=None)
        stable = sum(image.is_stable for image in self.images)
        certified = sum(image.is_certified for image in self.images)
        return (
            f"On {count} image{'s' * (count != 1)}, whatever the order of the sums: first-order estimate "
            f"{self.estimate:.2g}, largest output stable on {stable}; proven bound {told(self.bound, outputs)}, "
            f"largest output certified on {certified}."
        )

    def to_json(self) -> dict[str, Any]:
        """The certificate as plain data; a number that is not finite becomes null."""
        data = asdict(self) | {"bound": self.bound, "estimate": self.estimate, "in_words": self.in_words}
        found: dict[str, Any] = tree_map(
            lambda one: one if not isinstance(one, float) or math.isfinite(one) else None, data
        )
        return found


def certify_images(model: nn.Module, images: Tensor, *, margins: int = MARGINS) -> ImagesCertificate:
    """Bounds and estimates the difference between two programs of a network on given images.

    Args:
        model: A network with attention layers, in eval mode, that takes one batch of images.
        images: [count, channels, *size].
        margins: Number of next largest outputs for which margins are given.

    Raises:
        ConversionError: The network has no attention layer or runs none, torch cannot export it, an image is not
            finite, or an operation has no rule.
    """
    model, first = converted(model)
    count = as_integer(margins, "margins", least=0)
    axes = len(first.kernel_size)
    if not isinstance(images, Tensor) or images.ndim != axes + 2 or images.shape[1] != first.in_channels:
        raise ConversionError(f"images must be a tensor [count, {first.in_channels}, *size] with {axes} axes")
    if not bool(images.isfinite().all()):
        raise ConversionError("images must be finite; one holds NaN or an infinite value")
    program = program_of(model, first, Size(*images.shape[2:]))
    found, problems = [], list[Problem]()
    for image in images.to(first.weight.dtype).split(1):
        certificate, unbounded = _certified(program, image, count)
        found.append(certificate)
        problems += unbounded
    return ImagesCertificate(tuple(found), tuple(dict.fromkeys(problems)))


def _certified(program: Program, image: Tensor, margins: int) -> tuple[ImageCertificate, list[Problem]]:
    bounds = Bounds(program, repeatable=False)
    outputs = bounds.values_for(Interval.point(image))
    if not bounds.layers and not bounds.problems:
        raise ConversionError(f"nothing is certified: {NO_LAYER}")
    errors = None if bounds.problems else torch.cat([output.error.flatten() for output in outputs])
    run = FirstOrder(program, image)
    values = torch.cat([output.flatten() for output in run.outputs])
    order = values.detach().argsort(descending=True)[: margins + 1].tolist()
    top, others = order[0], order[1:]
    found = []
    for other in others:
        bound = None if errors is None else float(errors[top] + errors[other]) * OUTWARD
        margin = values[top] - values[other]
        found.append(Margin(other, float(margin.detach()), bound, run.estimate(margin)))
    delta, near, units = run.near_kinks()
    certificate = ImageCertificate(
        top,
        float(values.detach().abs().max()),
        None if errors is None else float(errors.max()),
        run.estimate(values[top]),
        tuple(found),
        delta,
        near,
        units,
    )
    return certificate, bounds.problems
