"""A layer as PyTorch's own ``nn.MultiheadAttention``, with fixed absolute quadratic positions, for images of one size.

A query token is its position, (1, q) with zeros behind it; a key token is (|k|^2, k); a value token is the pixel. Then

    q_proj:    (1, q)      ->  alpha_h (-1, 2 (q + Delta_h)) sqrt(d)     of head h, in its first n + 1 dimensions
    k_proj:    (|k|^2, k)  ->  (|k|^2, k)                                of every head
    v_proj:    x           ->  x                                         of every head
    out_proj:  head h      ->  W_Delta_h x, added up over the heads, and the bias

(``proofs/claims/theorem/absolute.py``; W_val = I is one of the splits of W_Delta that the theorem allows). The
dimension d of a head is the smallest power of 4 that holds a pixel and a position: PyTorch divides by sqrt(d), which is
then exact. So with alpha a power of two no score is rounded, and the kernel is in ``out_proj`` bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..arguments import Size, as_size
from ..context import autocast_dtype
from ..engines.literal import all_queries
from ..errors import ConversionError, EngineError, GeometryError
from ..heads.encoding import key_positions
from ..heads.regime import EXACT_ALPHA
from ..layer.checked import checked_layer
from ..layer.layer import LAYERS, SelfAttention
from ..spec import ConvSpec

_LARGEST = 2**31  # bytes of the projections


class MultiheadConvolution(nn.Module):
    """``nn.MultiheadAttention`` over the pixels of a padded image of one size.

    Attributes:
        attention: The ``nn.MultiheadAttention``: embed_dim = heads * d, kdim = axes + 1, vdim = in_channels.
        queries: Its query tokens, [queries, embed_dim].
        keys: Its key tokens, [keys, axes + 1].

    Raises:
        EngineError: The projections would take more than 2 GB.
    """

    attention: nn.MultiheadAttention
    queries: Tensor
    keys: Tensor

    def __init__(self, spec: ConvSpec, size: Size, *, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        super().__init__()
        self.spec, self.size = spec, size
        embed_dim = spec.num_heads * _head_dim(spec)
        needed = embed_dim * (2 * embed_dim + spec.axes + 1 + spec.in_channels) * dtype.itemsize
        if needed > _LARGEST:
            raise EngineError(
                f"the projections of nn.MultiheadAttention with {spec.num_heads} heads would take "
                f"{needed / 2**30:.0f} GB; at most 2 GB are made"
            )
        self.attention = nn.MultiheadAttention(
            *(embed_dim, spec.num_heads),
            kdim=spec.axes + 1,
            vdim=spec.in_channels,
            batch_first=True,
            dtype=dtype,
            device=device,
        )
        like = torch.empty((), dtype=dtype, device=device)
        places, pixels = all_queries(spec, size, like=like), key_positions(spec.padded_size(size), like=like)
        tokens = like.new_zeros(len(places), embed_dim)
        tokens[:, 0], tokens[:, 1 : spec.axes + 1] = 1, places
        self.register_buffer("queries", tokens)
        self.register_buffer("keys", torch.cat([pixels.square().sum(-1, keepdim=True), pixels], -1))

    def forward(self, x: Tensor) -> Tensor:
        """Computes the layer: [batch, in_channels, *size] -> [batch, out_channels, *output size].

        Raises:
            GeometryError: The images have another size.
            ConversionError: Autocast is on, which would round scores, so that heads look at other pixels.
        """
        outputs = self._attend(x, need_weights=False)[0][..., : self.spec.out_channels].transpose(1, 2)
        return torch.unflatten(outputs, 2, tuple(self.spec.output_size(self.size)))

    def attention_probabilities(self, x: Tensor) -> Tensor:
        """Weight of each key for each head and query, [batch, heads, queries, keys]; it depends on positions alone."""
        return self._attend(x, need_weights=True)[1]

    def _attend(self, x: Tensor, *, need_weights: bool) -> tuple[Tensor, Tensor]:
        if (dtype := autocast_dtype(x.device)) is not None:
            raise ConversionError(f"autocast would round scores of positions to {dtype}: run it outside of autocast")
        if tuple(x.shape[1:]) != (self.spec.in_channels, *self.size):
            raise GeometryError(f"input must be [batch, {self.spec.in_channels}, {self.size}]; got {list(x.shape)}")
        values = self.spec.pad(x).flatten(2).transpose(1, 2)
        queries, keys = (tokens.expand(len(x), -1, -1) for tokens in (self.queries, self.keys))
        attended = self.attention(queries, keys, values, need_weights=need_weights, average_attn_weights=False)
        return attended[0], attended[1]


@torch.inference_mode(False)
@torch.no_grad()
def multihead_from_attention(layer: SelfAttention, *, size: Sequence[int]) -> MultiheadConvolution:
    """A layer as ``nn.MultiheadAttention``.

    Args:
        layer: A layer of positions only.
        size: Size of its images, without padding.

    Raises:
        ConversionError: The layer has content terms or learned tables, or is of less than single precision.
        EngineError: The projections would take more than 2 GB.
    """
    checked_layer(layer)
    if layer.content is not None or layer.axis_scores is not None:
        raise ConversionError(
            "nn.MultiheadAttention supports quadratic positions only; the layer has content terms or learned tables"
        )
    if layer.weight.dtype != layer.regime.dtype:
        raise ConversionError(
            f"nn.MultiheadAttention would round positions to {layer.weight.dtype}; take a float32 layer"
        )
    spec, weight = layer.spec, layer.weight
    made = MultiheadConvolution(spec, as_size(size, spec.axes), dtype=weight.dtype, device=weight.device)
    attention, head_dim, axes = made.attention, _head_dim(spec), spec.axes
    for parameter in attention.parameters():
        parameter.zero_()
    query = attention.q_proj_weight.view(spec.num_heads, head_dim, -1)
    alpha = layer.alpha * math.isqrt(head_dim)
    query[:, 0, 0] = -alpha
    for axis in range(axes):
        query[:, axis + 1, 0], query[:, axis + 1, axis + 1] = 2 * alpha * layer.centers[:, axis], 2 * alpha
    attention.k_proj_weight.view(spec.num_heads, head_dim, -1)[:, : axes + 1] = torch.eye(axes + 1, device="cpu")
    attention.v_proj_weight.view(spec.num_heads, head_dim, -1)[:, : spec.in_channels] = torch.eye(
        spec.in_channels, device="cpu"
    )
    out = attention.out_proj.weight.view(-1, spec.num_heads, head_dim)
    out[: spec.out_channels, :, : spec.in_channels] = _dense_kernel(layer)
    if layer.bias is not None:
        attention.out_proj.bias[: spec.out_channels] = layer.bias
    return made.train(layer.training)


@torch.inference_mode(False)
@torch.no_grad()
def attention_from_multihead(module: MultiheadConvolution) -> SelfAttention:
    """The way back: the layer whose kernel, centres and alpha a ``MultiheadConvolution`` holds, bit for bit.

    Raises:
        ConversionError: Its projections are not those of a layer of positions only, as after training.
    """
    spec, attention, head_dim = module.spec, module.attention, _head_dim(module.spec)
    query = attention.q_proj_weight.view(spec.num_heads, head_dim, -1)
    alpha = -query[:, 0, 0] / math.isqrt(head_dim)
    centers = query[:, 1 : spec.axes + 1, 0] / (2 * alpha * math.isqrt(head_dim)).unsqueeze(-1)
    blocks = attention.out_proj.weight.view(-1, spec.num_heads, head_dim)
    layer = LAYERS[spec.axes](
        spec,
        weight=nn.Parameter(_weight_of(spec, blocks[: spec.out_channels, :, : spec.in_channels])),
        bias=nn.Parameter(attention.out_proj.bias[: spec.out_channels].clone()) if spec.bias else None,
    )
    is_exact = bool((alpha == EXACT_ALPHA[layer.regime.dtype]).all())
    layer.set_positions(alpha=None if is_exact else alpha, centers=centers)
    state = attention.state_dict()
    expected = multihead_from_attention(layer, size=module.size).attention.state_dict()
    changed = [name for name, value in expected.items() if name not in state or not torch.equal(value, state[name])]
    if changed:
        raise ConversionError(f"it is no longer a layer of positions only: {', '.join(changed)} were changed")
    return layer.train(module.training)


def _head_dim(spec: ConvSpec) -> int:
    """The smallest power of 4 that holds a pixel and a position; one dimension of all heads holds an output."""
    wanted = max(spec.in_channels, spec.axes + 1, -(-spec.out_channels // spec.num_heads))
    dimension = 1
    while dimension < wanted:
        dimension *= 4
    return dimension


def _dense_kernel(layer: SelfAttention) -> Tensor:
    """W_Delta of every head with the zeros between groups, [out_channels, num_heads, in_channels]."""
    spec = layer.spec
    blocks = layer.kernel.flatten(2).transpose(1, 2).unflatten(0, (spec.groups, -1))
    dense = blocks.new_zeros(*blocks.shape[:3], spec.groups, blocks.shape[3])
    for group in range(spec.groups):
        dense[group, :, :, group] = blocks[group]
    return torch.flatten(dense.flatten(3), 0, 1)


def _weight_of(spec: ConvSpec, dense: Tensor) -> Tensor:
    """The weight as the convolution's class holds it, from what ``_dense_kernel`` gives."""
    apart = dense.unflatten(2, (spec.groups, -1)).unflatten(0, (spec.groups, -1))
    blocks = torch.stack([apart[group, :, :, group] for group in range(spec.groups)])
    kernel = torch.unflatten(blocks.flatten(0, 1).transpose(1, 2), 2, spec.kernel_size)
    if not spec.transposed:
        return kernel.contiguous()
    swapped = torch.unflatten(kernel, 0, (spec.groups, -1)).transpose(1, 2).flatten(0, 1)
    return torch.flip(swapped, tuple(range(2, swapped.ndim))).contiguous()
