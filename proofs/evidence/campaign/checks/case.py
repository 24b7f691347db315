"""Data that the checks of one layer share, so that nothing is made twice.

A layer that several checks use also remembers its tables from one to the next, as a layer of a network does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from .....convert import SelfAttention, attention_from_conv, certify
from .....convert.engines import ENGINES
from .....convert.spec import Convolution
from ...random_layers import RandomLayer, channel_limits
from .comparison import Comparer, Comparison
from .inputs import adversarial_inputs, convolution, images

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
        return convolution(self.layer, self.device)

    @cached_property
    def images(self) -> Tensor:
        """Its inputs with normal numbers, [batch, in_channels, *size]."""
        return images(self.layer, self.device)

    @cached_property
    def attentions(self) -> tuple[SelfAttention, SelfAttention]:
        """One-hot and soft attention of ``conv``. A check may change its engine, and puts it back."""
        return attention_of(self.conv), attention_of(self.conv, self.layer.alpha)

    @cached_property
    def outputs(self) -> tuple[Outputs, ...]:
        """Outputs of both, on normal and adversarial inputs."""
        made = []
        for attention in self.attentions:
            with torch.enable_grad():  # the worst case is found by a gradient
                inputs = {NORMAL: self.images} | adversarial_inputs(self.layer, self.conv, attention)
            made.append(Outputs(inputs, self.conv, attention, self.engines))
        return tuple(made)


class Outputs:
    """Outputs of a convolution and of its attention, for several inputs by name, all computed in one batch.

    Args:
        inputs: The inputs.
        conv: The convolution.
        attention: The attention.
        engines: Engines to compute it in, each where it does not refuse.
    """

    def __init__(
        self, inputs: Mapping[str, Tensor], conv: Convolution, attention: SelfAttention, engines: Sequence[str]
    ) -> None:
        together, parts = torch.cat(list(inputs.values())), [len(x) for x in inputs.values()]

        def by_name(output: Tensor) -> dict[str, Tensor]:
            return dict(zip(inputs, output.split(parts), strict=True))

        self.inputs, self.attention = inputs, attention
        self.expected = by_name(conv(together))
        self.computed = {one.engine: by_name(one(together)) for one in in_engines(attention, engines)}

    def certified(self, check: str, names: Sequence[str]) -> Iterator[Comparison]:
        """Holds every engine against the convolution, with a certificate for the range of each channel of an input."""
        limits = {name: channel_limits(self.inputs[name]) for name in names}
        bounds = {name: channel_bounds(self.attention, limits[name]) for name in names}
        compare = Comparer(check, kind_of(self.attention))
        for engine, outputs in self.computed.items():
            for name, bound in bounds.items():
                yield compare.within(f"{name}, {engine}", outputs[name], self.expected[name], bound)


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
            if ENGINES[name].refusal(attention) is None:
                attention.engine = name
                yield attention
    finally:
        attention.engine = own
