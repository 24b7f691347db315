"""A layer as ConViT's gated positional self-attention (GPSA, d'Ascoli et al. 2021, eq. 7 to 9), for images of one size.

A head of GPSA compares the offset delta = k - q of a key with three learned numbers, and a gate chooses between the
softmax of these scores and that of content:

    A_h = (1 - sigmoid(lambda_h)) softmax(Q_h K_h^T) + sigmoid(lambda_h) softmax(v_h . r_delta),   normalised
    output = proj(concat_h A_h V_h x)

which is Theorem 1's attention where the gate is open, sigmoid(lambda) = 1. Then

    pos_proj:  v_h = alpha_h (2 Delta_h2, 2 Delta_h1, -1)       (ConViT's r_delta is (columns, rows, |delta|^2))
    v:         x -> x                                           of every head, W_val = I
    proj:      head h -> W_Delta_h x, added up over the heads, and the bias

GPSA lacks two features of a convolution, which ``GPSAConvolution`` adds. A head reads dim / heads channels, so
tokens are as many times wider as there are heads, with zeros behind the pixel's channels. Its keys are its tokens, so
the tokens are the pixels of the padded image, and outputs are taken where queries are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import as_size
from ..attention.layer import SelfAttention
from ..engines.literal import all_queries
from ..errors import ConversionError, GeometryError
from ..heads.encoding import key_numbers, key_positions, relative_encoding, relative_positions
from ..size import Size
from ..spec import ConvSpec
from .projections import OfOneSize, check_positions_alone, check_projections, dense_kernel, layer_of

OPEN = 128.0  # an open gate: its sigmoid is exactly 1 in single and in double precision


class GatedPositionalAttention(nn.Module):
    """GPSA as published, of tokens with ``dim`` channels, which the number of heads divides.

    Its tensors have the names that ConViT's and timm's class ``GPSA`` gives them.
    """

    def __init__(
        self, dim: int, num_heads: int, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        self.dim, self.num_heads = dim, num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qk = nn.Linear(dim, 2 * dim, bias=False, dtype=dtype, device=device)
        self.v = nn.Linear(dim, dim, bias=False, dtype=dtype, device=device)
        self.proj = nn.Linear(dim, dim, dtype=dtype, device=device)
        self.pos_proj = nn.Linear(3, num_heads, dtype=dtype, device=device)
        self.gating_param = nn.Parameter(torch.ones(num_heads, dtype=dtype, device=device))

    def forward(self, x: Tensor) -> Tensor:
        """Computes the layer on the pixels of a square image, [batch, pixels, dim] -> [batch, pixels, dim]."""
        read = self.attention_probabilities(x) @ self._by_head(self.v(x))
        output: Tensor = self.proj(read.transpose(1, 2).flatten(2))
        return output

    def attention_probabilities(self, x: Tensor) -> Tensor:
        """Weight of each pixel for each head and query, [batch, num_heads, pixels, pixels]."""
        queries, keys = (self._by_head(part) for part in self.qk(x).chunk(2, dim=-1))
        content = (queries @ keys.transpose(-1, -2) * self.scale).softmax(-1)
        side = math.isqrt(x.shape[1])
        pixels = key_positions(Size(side, side), like=self.pos_proj.weight)
        encoding = relative_encoding(relative_positions(pixels, pixels)).flip(-1)  # (columns, rows, |delta|^2)
        positions = self.pos_proj(encoding).permute(2, 0, 1).softmax(-1)
        gate = self.gating_param.sigmoid().view(-1, 1, 1)
        mixed = (1 - gate) * content + gate * positions
        normalised: Tensor = mixed / mixed.sum(-1, keepdim=True)
        return normalised

    def _by_head(self, tokens: Tensor) -> Tensor:
        """[batch, pixels, dim] -> [batch, num_heads, pixels, dim / num_heads]."""
        return torch.unflatten(tokens, -1, (self.num_heads, -1)).transpose(1, 2)


class GPSAConvolution(OfOneSize):
    """GPSA over the pixels of a padded square image of one size.

    Attributes:
        attention: The ``GatedPositionalAttention``; timm's ``GPSA(dim, num_heads)`` of the same tensors may take its
            place.
        places: Numbers of the tokens whose outputs are the layer's, [queries].

    Raises:
        GeometryError: The padded image is not square.
        EngineError: The projections would take more than 2 GB.
    """

    places: Tensor

    def __init__(self, spec: ConvSpec, size: Size, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        super().__init__(spec, size)
        padded = spec.padded_size(size)
        if spec.axes != 2 or padded[0] != padded[1]:
            raise GeometryError(f"GPSA is for square images; the layer's keys are {padded} pixels")
        dim = spec.num_heads * max(spec.in_channels, -(-spec.out_channels // spec.num_heads))
        check_projections("GPSA", spec, 4 * dim * dim, dtype)
        self.attention: nn.Module = GatedPositionalAttention(dim, spec.num_heads, dtype=dtype, device=device)
        queries = all_queries(spec, size, like=torch.empty((), device=device))
        self.register_buffer("places", key_numbers(queries, padded))

    def _attended(self, x: Tensor) -> Tensor:
        attended: Tensor = self.attention(self.tokens(x))
        return attended[:, self.places]

    def tokens(self, x: Tensor) -> Tensor:
        """The pixels of the padded image with zeros behind their channels: [batch, keys, dim]."""
        self._check(x)
        pixels = self.spec.pad(x).flatten(2).transpose(1, 2)
        return F.pad(pixels, (0, _linear(self.attention, "proj").in_features - self.spec.in_channels))


@torch.no_grad()
def gpsa_from_attention(layer: SelfAttention, *, size: Sequence[int]) -> GPSAConvolution:
    """A layer as GPSA.

    Args:
        layer: A layer of positions only, over images.
        size: Size of its images, without padding; with padding they must be square.

    Raises:
        ConversionError: The layer has content terms, learned tables or one or three axes, or is of less than single
            precision.
        GeometryError: The padded images are not square.
        EngineError: The projections would take more than 2 GB.
    """
    check_positions_alone(layer, "GPSA")
    spec, weight = layer.spec, layer.weight
    if spec.axes != 2:
        raise ConversionError(f"GPSA is for images; the layer has {spec.axes} axes")
    made = GPSAConvolution(spec, as_size(size, 2), dtype=weight.dtype, device=weight.device)
    attention = made.attention
    for parameter in attention.parameters():
        parameter.zero_()
    heads, channels = spec.num_heads, spec.in_channels
    attention.get_parameter("gating_param").fill_(OPEN)
    alpha, centers = layer.alpha.detach(), layer.centers.detach()
    scores = torch.stack([2 * centers[:, 1], 2 * centers[:, 0], -torch.ones_like(alpha)], dim=-1)
    _linear(attention, "pos_proj").weight.copy_(alpha.unsqueeze(-1) * scores)
    _linear(attention, "v").weight.unflatten(0, (heads, -1))[:, :channels, :channels] = torch.eye(channels).to(weight)
    project = _linear(attention, "proj")
    project.weight.unflatten(1, (heads, -1))[: spec.out_channels, :, :channels] = dense_kernel(layer)
    if layer.bias is not None:
        project.bias[: spec.out_channels] = layer.bias
    return made.train(layer.training)


@torch.no_grad()
def attention_from_gpsa(module: GPSAConvolution) -> SelfAttention:
    """The way back: the layer whose kernel, centres and alpha a ``GPSAConvolution`` holds, bit for bit.

    Raises:
        ConversionError: Its tensors are not those of a layer of positions only, as after training.
    """
    spec, attention = module.spec, module.attention
    scores = _linear(attention, "pos_proj").weight
    alpha = -scores[:, 2]
    project = _linear(attention, "proj")
    blocks = project.weight.unflatten(1, (spec.num_heads, -1))
    centers = scores[:, :2].flip(-1) / (2 * alpha).unsqueeze(-1)

    return layer_of(blocks, project.bias, alpha, centers, module, gpsa_from_attention)


def _linear(module: nn.Module, name: str) -> nn.Linear:
    linear = getattr(module, name)
    assert isinstance(linear, nn.Linear)
    return linear
