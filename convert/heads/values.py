"""What engines and certificates read of a layer, so that they need not know the layer itself."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..autocast import rounded
from ..spec import ConvSpec
from .axis_scores import AxisScores
from .content import ContentTerms
from .gate import opening
from .regime import Regime


class AttentionLayer(Protocol):
    """A self-attention layer; ``SelfAttention`` describes the members."""

    @property
    def spec(self) -> ConvSpec:
        """Geometry."""

    @property
    def weight(self) -> Tensor:
        """Value projections, in the convolution's own layout (``ConvSpec.weight_shape``)."""

    @property
    def kernel(self) -> Tensor:
        """Value projections, [out_channels, in_channels / groups, *kernel_size] (``ConvSpec.kernel``)."""

    @property
    def bias(self) -> Tensor | None:
        """Output bias, [out_channels]."""

    @property
    def alpha(self) -> Tensor:
        """Locality strengths, [num_heads]."""

    @property
    def centers(self) -> Tensor:
        """Centres, [num_heads, axes]."""

    @property
    def content(self) -> ContentTerms | None:
        """Content terms of the scores."""

    @property
    def axis_scores(self) -> AxisScores | None:
        """Learned positional scores in place of the quadratic ones."""

    @property
    def memory_limit(self) -> int:
        """Bytes that the literal engine may hold."""

    @property
    def regime(self) -> Regime:
        """What the values of alpha and centers allow."""


class LayerValues(NamedTuple):
    """An ``AttentionLayer`` as it is during one forward call, its regime read once and its gate opened once."""

    spec: ConvSpec
    weight: Tensor
    bias: Tensor | None
    alpha: Tensor
    centers: Tensor
    content: ContentTerms | None
    axis_scores: AxisScores | None
    memory_limit: int
    regime: Regime
    opened: Tensor | None

    @classmethod
    def of(cls, layer: AttentionLayer) -> LayerValues:
        """The values of a layer as they are now."""
        if isinstance(layer, LayerValues):
            return layer
        read = {name: getattr(layer, name) for name in cls._fields if name != "opened"}
        return cls(**read, opened=opened_gate(layer.content))

    @property
    def kernel(self) -> Tensor:
        """As ``AttentionLayer.kernel``."""
        return self.spec.kernel(self.weight)

    def rounded(self, dtype: torch.dtype) -> LayerValues:
        """The layer as autocast makes it: weight and bias rounded to a dtype, positions as they are."""
        bias = None if self.bias is None else rounded(self.bias, dtype)
        return self._replace(weight=rounded(self.weight, dtype), bias=bias)


def opened_gate(content: ContentTerms | None) -> Tensor | None:
    """g of the gate that content terms are behind, [num_heads]; None if there is no gate."""
    return None if content is None or content.gate is None else opening(content.gate)


def scores_cancel(layer: AttentionLayer) -> bool:
    """Whether scores r . v would lose one-hot attention (``Regime.cancels``); learned tables are no such products."""
    return layer.axis_scores is None and layer.regime.cancels


def without_closed_gate(layer: AttentionLayer) -> AttentionLayer:
    """The layer without content terms, where their gate is closed: they change no output then."""
    content = layer.content
    if content is None or content.gate is None or not content.is_off():
        return layer
    return LayerValues.of(layer)._replace(content=None)
