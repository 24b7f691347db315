"""A layer under check, with the data that several checks need, made once; and comparisons, an error beside its bound.

The layer remembers its tables from one check to the next, as a layer of a network does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...convert import SelfAttention, attention_from_conv, certify
from ...convert.engines import ENGINES
from ...convert.spec import Convolution
from .layers import RandomLayer, channel_limits
from .values import adversarial_inputs, drawn_convolution, images

NORMAL = "normal input"
ONE_HOT, SOFT = "one-hot", "soft"
_NO_LIMIT = 2**62  # bytes: a campaign chooses the sizes of its inputs itself


class Case:
    """A random layer, and data that several of its checks need."""

    def __init__(self, layer: RandomLayer, engines: Sequence[str], device: torch.device) -> None:
        self.layer, self.engines, self.device = layer, engines, device

    @cached_property
    def conv(self) -> Convolution:
        """The convolution with normal numbers. No check changes it."""
        return drawn_convolution(self.layer, self.device)

    @cached_property
    def images(self) -> Tensor:
        """Its inputs with normal numbers, [batch, in_channels, *size]."""
        return images(self.layer, self.device)

    @cached_property
    def attentions(self) -> tuple[SelfAttention, SelfAttention]:
        """One-hot and soft attention of ``conv``. A check may change its engine, and puts it back."""
        return attention_of(self.conv), attention_of(self.conv, self.layer.alpha)

    @cached_property
    def certified(self) -> tuple[dict[str, list[Comparison]], ...]:
        """Comparisons of both attentions with ``conv``, by the name of the normal or adversarial input."""
        made = []
        for attention in self.attentions:
            with torch.enable_grad():  # the worst case is found by a gradient
                inputs = {NORMAL: self.images} | adversarial_inputs(self.layer, self.conv, attention)
            made.append(compare_certified(inputs, self.conv, attention, self.engines))
        return tuple(made)


def attention_of(conv: Convolution, alpha: float | None = None) -> SelfAttention:
    """The attention of a convolution, with all the memory it asks for."""
    attention = attention_from_conv(conv, alpha=alpha)
    attention.memory_limit = _NO_LIMIT
    return attention


def channel_bounds(attention: SelfAttention, limits: tuple[Tensor, Tensor]) -> Tensor:
    """The certificate of each output channel, [out_channels]."""
    return torch.tensor(certify(attention, input_range=limits).per_channel, dtype=torch.float64)


def kind_of(attention: SelfAttention) -> str:
    """One-hot or soft."""
    return ONE_HOT if attention.regime.is_exact else SOFT


def in_engines(attention: SelfAttention, engines: Sequence[str]) -> Iterator[SelfAttention]:
    """The same layer in one engine after the other, without those that refuse it, and then in its own again."""
    own = attention.engine
    try:
        for name in engines:
            if ENGINES[name].refusal(attention.values()) is None:
                attention.engine = name
                yield attention
    finally:
        attention.engine = own


@dataclass(frozen=True)
class Comparison:
    """An observed error beside its bound."""

    kind: str  # kind of attention: "one-hot", "soft", or "heads anywhere"
    what: str  # description of the compared tensors
    error: float  # the observed error; NaN where a result is no number
    bound: float  # largest allowed error; 0 where equality must be bitwise
    says_nothing: bool = False  # whether the bound is infinite and may be: a sum can overflow
    check: str = ""  # name of the check that made it, out of ``CHECKS``

    @property
    def holds(self) -> bool:
        """Whether the error is within the bound, which must be finite unless it ``says_nothing``; NaN never is."""
        return self.says_nothing or self.error <= self.bound < math.inf

    @property
    def ratio(self) -> float:
        """The error in units of the bound: at most 1 if it holds."""
        if self.holds:
            return self.error / self.bound if self.error > 0 and not self.says_nothing else 0.0
        return self.error / self.bound if 0 < self.bound < math.inf and not math.isnan(self.error) else math.inf

    def __str__(self) -> str:
        if math.isinf(self.error) and self.bound == 0:
            return f"{self.check}, {self.kind}: {self.what}"
        allowed = "0: it must be equal bit for bit" if self.bound == 0 else f"{self.bound:.3g}"
        return f"{self.check}, {self.kind}: {self.what}: error {self.error:.3g}, allowed {allowed}"


def same(kind: str, what: str, observed: Tensor, expected: Tensor) -> Comparison:
    """Compares two tensors that must be equal."""
    unlike = _unlike(observed, expected)
    if unlike is not None:
        return wrong(kind, f"{what}, {unlike}")
    difference = 0.0
    if not torch.equal(observed, expected):
        difference = float((observed.double() - expected.double()).abs().max()) or math.inf
    return Comparison(kind, what, difference, 0.0)


def within(kind: str, what: str, observed: Tensor, expected: Tensor, bound: Tensor) -> Comparison:
    """Compares two outputs [batch, out_channels, *size] with a bound for each channel, or one for all.

    Returns:
        The comparison of the channel that is nearest to its bound, or farthest above it.
    """
    unlike = _unlike(observed, expected)
    if unlike is not None:
        return wrong(kind, f"{what}, {unlike}")
    errors = (observed.double() - expected.double()).abs().transpose(0, 1).flatten(1).amax(1).tolist()
    allowed = bound.expand(len(errors)).tolist()
    channels = (Comparison(kind, what, *pair) for pair in zip(errors, allowed, strict=True))
    return max(channels, key=lambda comparison: comparison.ratio)


def wrong(kind: str, what: str) -> Comparison:
    """A violation that no number describes."""
    return Comparison(kind, what, math.inf, 0.0)


def compare_certified(
    inputs: Mapping[str, Tensor], conv: Convolution, attention: SelfAttention, engines: Sequence[str]
) -> dict[str, list[Comparison]]:
    """Holds every engine that does not refuse against the convolution, with the certificate of each input's range.

    Args:
        inputs: The inputs by name; all are computed in one batch.
        conv: The convolution.
        attention: The attention.
        engines: Engines to compute it in.

    Returns:
        Comparisons by the name of the input.
    """
    together, parts = torch.cat(list(inputs.values())), [len(x) for x in inputs.values()]
    expected = conv(together).split(parts)
    computed = {one.engine: one(together).split(parts) for one in in_engines(attention, engines)}
    found = {}
    for place, (name, x) in enumerate(inputs.items()):
        bound = channel_bounds(attention, channel_limits(x))
        found[name] = [
            within(kind_of(attention), f"{name}, {engine}", outputs[place], expected[place], bound)
            for engine, outputs in computed.items()
        ]
    return found


def _unlike(observed: Tensor, expected: Tensor) -> str | None:
    """The difference of two tensors in shape or precision, in words; None if there is none."""
    if (observed.shape, observed.dtype) == (expected.shape, expected.dtype):
        return None
    kinds = [f"{tensor.dtype} {list(tensor.shape)}" for tensor in (observed, expected)]
    return f"{kinds[0]} instead of {kinds[1]}"
