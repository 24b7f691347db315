"""Attention with content terms, written out pixel by pixel: nothing here is shared with the engines.

    score = (W_qry x_q) . (W_key x_k)  +  (W_qry x_q) . (W^_key r)  +  u . (W_key x_k)  -  alpha |delta - Delta|^2

with delta = k - q and r = (|delta|^2, delta). The pixel under the query is read by a convolution whose kernel is 1 at
its middle tap.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from conv2attn.convert import SelfAttention
from conv2attn.convert.arguments import Size
from conv2attn.proofs.campaign.layers import RandomLayer, random_integers

KEY_DIM = 2
MOST_SCORES = 2**16  # scores of a layer that is written out
_LIMIT = 1  # largest integer in content terms, so that every score is exact


def number_of_scores(layer: RandomLayer) -> int:
    """Heads times queries times keys, of all images."""
    spec, size = layer.spec, layer.size
    return layer.batch * spec.num_heads * math.prod(spec.output_size(size)) * math.prod(spec.padded_size(size))


@torch.no_grad()
def add_content(layer: RandomLayer, attention: SelfAttention) -> None:
    """Gives an attention layer content terms of small integers."""
    generator, content = layer.generator("content"), attention.add_content(KEY_DIM)
    for parameter in content.parameters():
        parameter.copy_(random_integers(parameter.shape, _LIMIT, generator))


def written_out(attention: SelfAttention, x: Tensor) -> Tensor:
    """Computes a layer with content terms for x [batch, in_channels, *size], in its own precision."""
    spec, content = attention.spec, attention.content
    if content is None:
        raise ValueError("the layer has no content terms")
    padded, grid = spec.pad(x), spec.padded_size(Size(*x.shape[2:]))
    under_query = _query_pixels(attention, padded)
    positions = torch.stack(torch.meshgrid(*(torch.arange(n, dtype=x.dtype) for n in grid), indexing="ij"))
    queries = _query_pixels(attention, positions.unsqueeze(0))[0].flatten(1)
    delta = positions.flatten(1).unsqueeze(1) - queries.unsqueeze(2)
    encoding = torch.cat([delta.square().sum(0, keepdim=True), delta])
    output = x.new_zeros(x.shape[0], spec.out_channels, queries.shape[1])
    for head in range(spec.num_heads):
        asked = torch.einsum("dc,bcq->bdq", content.query_weight[head], under_query.flatten(2))
        keys = torch.einsum("dc,bck->bdk", content.key_weight[head], padded.flatten(2))
        places = torch.einsum("dp,pqk->dqk", content.position_weight[head], encoding)
        distance = (delta - attention.centers[head].view(-1, 1, 1)).square().sum(0)
        scores = torch.einsum("bdq,bdk->bqk", asked, keys) + torch.einsum("bdq,dqk->bqk", asked, places)
        scores = scores + torch.einsum("d,bdk->bk", content.key_bias[head], keys).unsqueeze(1)
        by_position = -attention.alpha[head] * distance
        probabilities = (scores + by_position).softmax(2)
        read = torch.einsum("bqk,bck->bcq", probabilities, padded.flatten(2))
        tap = attention.kernel.flatten(2)[:, :, head, None]
        output = output + F.conv1d(read, tap, groups=spec.groups)
    output = torch.unflatten(output, 2, under_query.shape[2:])
    return output if attention.bias is None else output + attention.bias.view(-1, *(1,) * spec.axes)


def _query_pixels(attention: SelfAttention, padded: Tensor) -> Tensor:
    """The pixel under the kernel's middle tap, for every output: [batch, channels, *output size]."""
    spec, channels = attention.spec, padded.shape[1]
    kernel = padded.new_zeros(channels, 1, *spec.kernel_size)
    middle: tuple[slice | int, ...] = (slice(None), 0, *((taps - 1) // 2 for taps in spec.kernel_size))
    kernel[middle] = 1
    convolve = (F.conv1d, F.conv2d, F.conv3d)[spec.axes - 1]
    return convolve(padded, kernel, None, spec.query_stride, 0, spec.dilation, channels)
