r"""How far programs of a network can be apart on an image: entry by entry, and in the 2-norm.

Of each tensor three things are known: the CNN's values as double precision gives them, ``error`` for each entry, and
``apart``, one number. The double-precision CNN counts as one of the programs, so no program's entry is further from it
than ``error``, and no program's tensor than ``apart`` in the 2-norm; and the same holds of any two programs.

    |f(a) - f(c)|  <=  L |a - c|,        |fl f(a) - fl f(c)|  <=  L |a - c| + |own(a)|

with the L of ``rules/gains.py`` and what equal inputs can differ by. For a layer of attention, own is its certificate
at the actual values, affine in what it reads, r = |W||x| + |b|; so with Q = || |W| ||, and a that is a - x from x,

    |own(a)|  <=  |own(r)| + own(Q |a - x|)

where the second is the certificate of one pixel that reads so much. Each entry is bounded by its rule, on the box of
all values, by ``apart``, and by |w_o| |a - c| + own for the weights w_o that make it; the 2-norm by that of all bounds
of entries. Batch norm behind a convolution is part of it: its norm is that of the kernel with scaled rows, instead of
the largest scale times the kernel's. The claim ``difference-norms`` (``proofs/claims/certificate/difference_norms.py``)
derives all of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves, tree_map

from ...attention.checked import checked_layer
from ...attention.layer import SelfAttention
from ...bounds.rounding import OUTWARD
from ...bounds.subnormal import magnitudes
from ...spec import ConvSpec
from ..layer import pixel_errors
from .attention import convolve
from .first_order import Evaluation, Value
from .program import Program, name_of
from .rules import bound as bound_call
from .rules.call import Call
from .rules.gains import gains
from .rules.interval import Interval, Known, UnboundedError
from .rules.roundings import ROUNDINGS
from .rules.spectral import convolution_norm, euclidean
from .rules.weighted import batch_norm_factor

_BATCH_NORMS = "batch_norm", "_native_batch_norm_legit_no_training"


@dataclass(frozen=True)
class _Layer:
    """How an attention layer's output came to be: no two are further apart than |kernel| * apart + |own| + more.

    Attributes:
        name: Of its node.
        spec: Its geometry.
        kernel: Its kernel, in double precision.
        apart: Of its padded input.
        own: What it differs by on the values of double precision, [batch, out_channels, *size].
        more: What it differs by beside that elsewhere in the ball, in the 2-norm.
    """

    name: str
    spec: ConvSpec
    kernel: Tensor
    apart: float
    own: Tensor
    more: float


@dataclass(frozen=True)
class _Linear:
    """How a linear layer's output came to be: rows of weights, how far apart what they read is, and their own."""

    weight: Tensor
    apart: float
    own: Tensor

    @property
    def rows(self) -> Tensor:
        """Bound on the difference of each entry."""
        norms: Tensor = torch.linalg.vector_norm(self.weight, dim=1)
        return (norms * self.apart + self.own) * OUTWARD


@dataclass(frozen=True)
class Apart(Known):
    """A tensor of all programs.

    Attributes:
        center: The CNN's, as double precision computes it.
        error: No two entries are further apart.
        apart: No two tensors are further apart, in the 2-norm.
        layer: The layer whose output it is.
    """

    center: Tensor
    error: Tensor
    apart: float
    layer: _Layer | _Linear | None = None

    @classmethod
    def within(cls, center: Tensor, error: Tensor, apart: float, layer: _Layer | _Linear | None = None) -> Apart:
        """Each bound where it is the smaller one."""
        apart = min(apart, euclidean(error))
        return cls(center, error.clamp(max=apart), apart, layer)

    @property
    def interval(self) -> Interval:
        """Bounds on each entry, in all programs."""
        outward = torch.where(self.error > 0, self.error + (self.center.abs() + self.error) * 2.0**-51, 0.0)
        return Interval(self.center - outward, self.center + outward, self.error)

    def margin(self, one: int, other: int) -> float:
        """Bound on the difference of an entry less another, by their places in the flat tensor."""
        errors, bound = self.error.flatten()[[one, other]], math.sqrt(2) * self.apart
        if isinstance(self.layer, _Linear) and len(self.layer.weight) == self.error.numel():
            rows, own = self.layer.weight[one] - self.layer.weight[other], self.layer.own.flatten()[[one, other]]
            bound = min(bound, float(torch.linalg.vector_norm(rows)) * self.layer.apart + float(own.sum()))
        return min(bound, float(errors.sum())) * OUTWARD


class Differences(Evaluation):
    """The CNN on images, in double precision, and how far programs can be apart.

    Args:
        program: The network's.
        block: As for ``Arithmetic``; in double precision, the hypothesis is one about this computation, too.
    """

    def __init__(self, program: Program, block: int | None) -> None:
        super().__init__(program)
        self._block = block
        self._norms: dict[tuple[str, str], float] = {}

    @torch.no_grad()
    def outputs_for(self, image: Tensor) -> list[Apart]:
        """The outputs that depend on an image, [1, channels, *size]."""
        values, self.problems = image.detach().double().cpu(), []
        found = self.values_for(Apart(values, torch.zeros_like(values), 0.0))
        return [output for output in found if isinstance(output, Apart)]

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's rule for each entry, and its gain."""
        operands = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Apart)]
        call = self._call(node, args, kwargs, lambda one: one.interval)
        found, centers, before = bound_call(call), self._centers(node, args, kwargs), [one.apart for one in operands]
        factors = gains(call, before)
        moved = math.inf if factors is None else sum(map(math.prod, zip(factors, before, strict=True)))
        if isinstance(found, list) and call.name not in ROUNDINGS:  # pieces of what it moves
            pairs = zip(centers, found, strict=True)
            return [None if one is None else Apart.within(each, one.error, moved * OUTWARD) for each, one in pairs]
        is_list, found, centers = isinstance(found, list), *(_first(one) for one in (found, centers))
        own = _first(bound_call(self._call(node, args, kwargs, _certain))).error
        made = _Linear(call["weight"].double(), before[0], own) if call.name == "linear" else None
        if made is not None:
            found = replace(found, error=torch.minimum(found.error, made.rows))
        if call.name in _BATCH_NORMS and isinstance(operands[0].layer, _Layer):
            moved = min(moved, self._passed_on(operands[0].layer, node, batch_norm_factor(call)))
        bounds = Apart.within(centers, found.error, (moved + euclidean(own)) * OUTWARD, made)
        return [bounds, None, None] if is_list else bounds

    def _call(self, node: fx.Node, args: Any, kwargs: Any, bounds: Callable[[Apart], Interval]) -> Call:
        args, kwargs = tree_map(lambda one: bounds(one) if isinstance(one, Apart) else one, (args, kwargs))
        return Call.at(node, args, kwargs, repeatable=False, block=self._block)

    def _centers(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The results of double precision; where the operation does not round, those of its rule."""
        if name_of(node) not in ROUNDINGS:
            exact = bound_call(self._call(node, args, kwargs, lambda one: Interval.point(one.center)))
            if isinstance(exact, list) or torch.equal(exact.low, exact.high):
                return tree_map(lambda one: one.low if isinstance(one, Interval) else one, exact)
        args, kwargs = tree_map(lambda one: Value(one.center) if isinstance(one, Apart) else one, (args, kwargs))
        return tree_map(lambda one: one.tensor, super().operation(node, args, kwargs))

    def attention(self, name: str, layer: SelfAttention, x: Any, node: fx.Node) -> Any:
        """The layer's certificate at these values, and what its convolution makes of differences."""
        values, shape = checked_layer(layer), node.meta["val"].shape
        spec, interval = values.spec, x.interval
        center, error = (one.unsqueeze(0) if one.ndim == spec.axes + 1 else one for one in (x.center, x.error))
        kernel, absolute = values.kernel.detach().double().cpu(), magnitudes(values.kernel)
        bias = torch.zeros(spec.out_channels) if values.bias is None else values.bias.detach().cpu()
        read, inherited = (convolve(spec, one, absolute, shape) * OUTWARD for one in (center.abs(), error))
        padded = x.apart * _repetition(spec, center)
        beyond = padded * self._norm(node, "absolute", absolute.flatten(2).sum(2, keepdim=True), spec.groups)
        flat, grid = read.transpose(0, 1).flatten(1) + bias.double().abs().unsqueeze(1), read.transpose(0, 1).shape
        others = (0, *range(2, center.ndim))
        limits = tuple(end.reshape(center.shape).amin(others) for end in (interval.low, -interval.high))
        pixels = [flat, flat + inherited.transpose(0, 1).flatten(1), flat.new_full((len(flat), 1), beyond)]
        whole, tail, *sides = pixel_errors(
            values, torch.cat(pixels, 1), input_range=(limits[0], -limits[1]), block=self._block
        )
        if not math.isfinite(whole):
            raise UnboundedError("no finite certificate is known for values this large")
        count, rounding = flat.shape[1], sides[0] + sides[1]
        own, elsewhere = ((tail + part).reshape(grid).transpose(0, 1) for part in rounding[:, :-1].split(count, 1))
        made = _Layer(node.name, spec, kernel, padded, own, float(rounding[:, -1].max()))
        rows = torch.linalg.vector_norm(kernel.flatten(1), dim=1).view(-1, *[1] * spec.axes) * padded
        error = (torch.minimum(inherited, rows) + elsewhere) * OUTWARD
        is_scaled = bool(node.users) and all(name_of(user) in _BATCH_NORMS for user in node.users)
        apart = math.inf if is_scaled else self._passed_on(made, node, torch.ones(spec.out_channels))
        result = super().attention(name, layer, Value(x.center), node).tensor
        return Apart.within(result, error.reshape(shape), apart, made)

    def _passed_on(self, layer: _Layer, node: fx.Node, factors: Tensor) -> float:
        """Bound in the 2-norm on a layer's output, each channel of which is multiplied with a factor."""
        rows = factors.double().view(-1, *[1] * layer.spec.axes)
        own = euclidean(layer.own * rows) + float(factors.abs().max()) * layer.more
        if layer.apart == 0:
            return own * OUTWARD
        spec, scaled = layer.spec, layer.kernel * rows.unsqueeze(1)
        norm = self._norm(node, layer.name, scaled, spec.groups, spec.query_stride, max(spec.dilation))
        return (norm * layer.apart + own) * OUTWARD

    def _norm(self, node: fx.Node, what: str, kernel: Tensor, groups: int, *geometry: Any) -> float:
        """A kernel's norm, which is the same on every image."""
        key = node.name, what
        if key not in self._norms:
            options = dict(zip(("stride", "dilation"), geometry, strict=False))
            self._norms[key] = convolution_norm(kernel, groups=groups, **options)
        return self._norms[key]


def _certain(one: Apart) -> Interval:
    """The same values in both programs, wherever they are."""
    return replace(one.interval, error=torch.zeros_like(one.error))


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, list) else found


def _repetition(spec: ConvSpec, x: Tensor) -> float:
    """The norm of what pads the image: a pixel is in as many places as its largest column says."""
    with torch.enable_grad():
        ones = torch.ones(1, 1, *x.shape[2:], dtype=torch.float64, requires_grad=True)
        (columns,) = torch.autograd.grad(spec.pad(ones).sum(), [ones])
    return math.sqrt(float(columns.max())) * OUTWARD
