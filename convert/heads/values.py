"""The part of a layer that engines and certificates read, so that they need not know the layer itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..context import is_traced, rounded
from ..spec import ConvSpec
from .content import AxisScores, ContentTerms
from .regime import Regime

OUT, POSITION = "spare_out", "spare_position"
SPARE_KEYS = ("spare_query", "spare_query_bias", "spare_key", "spare_value", OUT, POSITION)
"""Parameters of spare heads; the last one only where their scores have positions."""
OWN_NAMES = ("log_alpha", "centers", "content", "axis_scores", *SPARE_KEYS)
"""Names of parameters and modules that an attention layer may have and its convolution has not."""


class LayerValues(NamedTuple):
    """A self-attention layer as it is during one call; ``SelfAttention`` makes it once a call.

    Attributes:
        spec: Geometry of this call.
        weight: Value projections, in the convolution's own layout (``ConvSpec.weight_shape``).
        bias: Output bias, [out_channels], or None.
        regime: The positions as numbers, and what they allow.
        memory_limit: Bytes that an engine may hold beside the input, the output and the parameters.
        trained: alpha and centers where they are parameters; None where they rest.
        content: Content terms of the scores, or None.
        axis_scores: Learned positional scores in place of the quadratic ones, or None.
    """

    spec: ConvSpec
    weight: Tensor
    bias: Tensor | None
    regime: Regime
    memory_limit: int
    trained: tuple[Tensor, Tensor] | None = None
    content: ContentTerms | None = None
    axis_scores: AxisScores | None = None

    @property
    def alpha(self) -> Tensor:
        """Sharpnesses, [num_heads]."""
        return self.trained[0] if self.trained else constant(self.regime.alpha, self.regime.dtype, self.weight.device)

    @property
    def centers(self) -> Tensor:
        """Centres, [num_heads, axes]."""
        return self.trained[1] if self.trained else constant(self.regime.centers, self.regime.dtype, self.weight.device)

    @property
    def trains_positions(self) -> bool:
        """Whether alpha and centers are parameters."""
        return self.trained is not None

    @property
    def kernel(self) -> Tensor:
        """Value projections, [out_channels, in_channels / groups, *kernel_size] (``ConvSpec.kernel``)."""
        return self.spec.kernel(self.weight)

    def rounded(self, dtype: torch.dtype) -> LayerValues:
        """The layer as autocast makes it: weight and bias rounded to a dtype, positions as they are."""
        bias = None if self.bias is None else rounded(self.bias, dtype)
        return self._replace(weight=rounded(self.weight, dtype), bias=bias)


def constant(values: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Numbers of Python as a tensor on a device, which the CPU does not wait for."""
    if device.type != "cuda" or is_traced():  # a trace knows no pinned memory, and its constants are copied once
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype, device="cpu").pin_memory().to(device, non_blocking=True)


def scores_cancel(layer: LayerValues) -> bool:
    """Whether scores r . v would lose one-hot attention (``Regime.cancels``); learned tables are no such products."""
    return layer.axis_scores is None and layer.regime.cancels
