"""The part of a layer that engines and certificates read, so that they need not know the layer itself."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..autocast import rounded
from ..spec import ConvSpec
from .axis_scores import AxisScores
from .content import ContentTerms
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
    def trains_positions(self) -> bool:
        """Whether alpha and centers are parameters."""

    @property
    def content(self) -> ContentTerms | None:
        """Content terms of the scores."""

    @property
    def axis_scores(self) -> AxisScores | None:
        """Learned positional scores in place of the quadratic ones."""

    @property
    def memory_limit(self) -> int:
        """Bytes that an engine may hold beside the input, the output and the parameters."""

    @property
    def regime(self) -> Regime:
        """The positions as numbers, and what they allow."""


class LayerValues(NamedTuple):
    """An ``AttentionLayer`` as it is during one forward call.

    Attributes:
        spec: As ``AttentionLayer.spec``, and likewise the others.
        trained: alpha and centers where they are parameters; None where they rest.
    """

    spec: ConvSpec
    weight: Tensor
    bias: Tensor | None
    regime: Regime
    memory_limit: int
    trained: tuple[Tensor, Tensor] | None = None
    content: ContentTerms | None = None
    axis_scores: AxisScores | None = None

    @classmethod
    def of(cls, layer: AttentionLayer) -> LayerValues:
        """The values of a layer as they are now, with its positions read."""
        if isinstance(layer, LayerValues):
            return layer
        trained = (layer.alpha, layer.centers) if layer.trains_positions else None
        parts = trained, layer.content, layer.axis_scores
        return cls(layer.spec, layer.weight, layer.bias, layer.regime, layer.memory_limit, *parts)

    @property
    def alpha(self) -> Tensor:
        """As ``AttentionLayer.alpha``."""
        return self.trained[0] if self.trained else constant(self.regime.alpha, self.regime.dtype, self.weight.device)

    @property
    def centers(self) -> Tensor:
        """As ``AttentionLayer.centers``."""
        return self.trained[1] if self.trained else constant(self.regime.centers, self.regime.dtype, self.weight.device)

    @property
    def trains_positions(self) -> bool:
        """As ``AttentionLayer.trains_positions``."""
        return self.trained is not None

    @property
    def kernel(self) -> Tensor:
        """As ``AttentionLayer.kernel``."""
        return self.spec.kernel(self.weight)

    def rounded(self, dtype: torch.dtype) -> LayerValues:
        """The layer as autocast makes it: weight and bias rounded to a dtype, positions as they are."""
        bias = None if self.bias is None else rounded(self.bias, dtype)
        return self._replace(weight=rounded(self.weight, dtype), bias=bias)


def constant(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers of Python as a tensor on a device, which the CPU does not wait for."""
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype).pin_memory().to(device, non_blocking=True)


def scores_cancel(layer: AttentionLayer) -> bool:
    """Whether scores r . v would lose one-hot attention (``Regime.cancels``); learned tables are no such products."""
    return layer.axis_scores is None and layer.regime.cancels
