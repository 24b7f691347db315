"""Attention of others that is known by its parts: ConViT's gated positional one, and the Gaussian one of the authors.

ConViT's (GPSA), as timm, its authors and others hold it; ``convert/export/gpsa.py`` has the equations:

    pos_proj      Linear(3, heads):  score(delta) = (w_0, w_1, w_2) . (delta_2, delta_1, |delta|^2), and a constant
    gating_param  [heads]:           sigmoid of it is the share of the positions' softmax in the attention
    v, proj       Linear(dim, dim):  W_h = proj[:, h] v[h], through dim / heads channels

Only a layer whose gates are open, sigmoid = 1, looks by position alone. The Gaussian one, isotropic or not, of
epfml/attention-cnn (draft, eq. 12 to 16), whose images are [batch, first axis, second axis, dim]:

    attention_centers  [heads, 2]                  mu
    attention_spreads  [heads] or [heads, 2, 2]    S, with the precision P = S S^T, or s^2 along both axes
    value              Linear(heads * dim, dim)    W_h side by side

    score(delta) = -1/2 (delta - mu)^T P (delta - mu)  =  -1/2 delta^T P delta + (P mu)^T delta  + a constant
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...convert.errors import ConversionError
from ...convert.export.gpsa import OPEN
from ...convert.heads.regime import EXACT_ALPHA
from ..heads.attention import HeadAttention
from ..heads.gaussian import Quadratic

_SIDE = 5  # pixels of the image that a module is tried on


def is_gpsa(module: nn.Module) -> bool:
    """Whether a module has the parts of GPSA."""
    parts = [getattr(module, name, None) for name in ("pos_proj", "v", "proj")]
    gate = getattr(module, "gating_param", None)
    return all(isinstance(part, nn.Linear) for part in parts) and isinstance(gate, Tensor)


def read_gpsa(module: Any, *, positions_alone: bool) -> HeadAttention:
    """The layer of its positions; with ``positions_alone`` also where gates let content in: another function.

    Raises:
        ConversionError: Gates let content in, or parts have other shapes.
    """
    position, v, proj, gate = module.pos_proj, module.v, module.proj, module.gating_param.detach()
    heads = gate.numel()
    if position.weight.shape != (heads, 3) or v.out_features != proj.in_features or v.out_features % heads:
        shapes = [list(part.weight.shape) for part in (position, v, proj)]
        raise ConversionError(f"its pos_proj, v and proj do not fit {heads} heads over an image: {shapes}")
    shut = (1 - gate.sigmoid().flatten()).max().item()
    if not (positions_alone or shut == 0):
        raise ConversionError(
            f"its gates let content have up to {shut:.3g} of a head's attention, so the image decides where it looks; "
            "positions_alone=True takes its positions without it"
        )
    weight = position.weight.detach()
    squares = weight[:, 2:].expand(-1, 2)
    values = v.weight.detach().double().unflatten(0, (heads, -1))  # [heads, dim / heads, dim]
    project = proj.weight.detach().double().unflatten(1, (heads, -1))  # [dim, heads, dim / heads]
    mixed = torch.einsum("ohd,hdi->ohi", project, values)
    bias = torch.zeros_like(proj.weight[:, 0]).double() if proj.bias is None else proj.bias.detach().double()
    if v.bias is not None:  # probabilities add up to 1
        bias = bias + proj.weight.detach().double() @ v.bias.detach().double()
    return HeadAttention.of(Quadratic(squares, weight[:, :2].flip(-1)), mixed.to(weight), bias.to(weight))


@torch.no_grad()
def plant_gpsa(module: Any, random: torch.Generator) -> Tensor:
    """Makes its parameters whole numbers and its heads look at one pixel each; returns tokens to try it on."""
    position = module.pos_proj
    for parameter in module.parameters():
        parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=random))
    module.gating_param.fill_(OPEN)
    centers = torch.randint(-2, 3, (len(position.weight), 2), generator=random)
    scores = torch.cat([2 * centers, -torch.ones_like(centers[:, :1])], dim=-1)
    position.weight.copy_(EXACT_ALPHA[position.weight.dtype] * scores)
    known = getattr(module, "rel_indices", None)  # some implementations keep it for images of one size
    side = math.isqrt(known.shape[1]) if isinstance(known, Tensor) and known.ndim == 4 and known.shape[1] > 1 else _SIDE
    return torch.randint(-1, 2, (2, side * side, module.v.in_features), generator=random).to(position.weight)


_SHARP = 32.0  # S of a head that looks at one pixel: alpha = S^2 / 2 = 512


def is_gaussian(module: nn.Module) -> bool:
    """Whether a module has the parts of the authors' Gaussian attention."""
    tensors = [getattr(module, name, None) for name in ("attention_centers", "attention_spreads")]
    return all(isinstance(tensor, Tensor) for tensor in tensors) and isinstance(
        getattr(module, "value", None), nn.Linear
    )


def read_gaussian(module: Any) -> HeadAttention:
    """The layer of its Gaussians, with the very numbers of ``value``.

    Raises:
        ConversionError: Its attention is a blurred convolution of 7 x 7, or parts have other shapes.
    """
    if getattr(module, "attention_gaussian_blur_trick", False):
        raise ConversionError("it blurs with 7 x 7 kernels (attention_gaussian_blur_trick), which is another function")
    centers, spreads = module.attention_centers.detach(), module.attention_spreads.detach()
    value, heads = module.value, len(centers)
    shapes = [list(tensor.shape) for tensor in (centers, spreads, value.weight)]
    if shapes[0] != [heads, 2] or shapes[1] not in ([heads], [heads, 2, 2]) or value.weight.shape[1] % heads:
        raise ConversionError(f"its centres, spreads and value do not fit {heads} heads over an image: {shapes}")
    if spreads.ndim == 1:
        precision = spreads.square().unsqueeze(-1).expand(-1, 2)
        positions = Quadratic(-precision / 2, precision * centers)
    else:
        whole = spreads @ spreads.transpose(-1, -2)
        pulled = (whole @ centers.unsqueeze(-1)).squeeze(-1)
        positions = Quadratic(-whole.diagonal(dim1=-2, dim2=-1) / 2, pulled, -whole[:, 0, 1])
    weight = value.weight.detach().unflatten(1, (heads, -1))
    return HeadAttention.of(positions, weight, None if value.bias is None else value.bias.detach())


@torch.no_grad()
def plant_gaussian(module: Any, random: torch.Generator) -> Tensor:
    """Makes its parameters whole numbers and its heads look at one pixel each; returns an image to try it on."""
    centers, spreads = module.attention_centers, module.attention_spreads
    for parameter in module.parameters():
        parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=random))
    centers.copy_(torch.randint(-2, 3, centers.shape, generator=random))
    shape = torch.ones_like(spreads) if spreads.ndim == 1 else torch.tensor([[1.0, 0.0], [1.0, 1.0]]).to(spreads)
    spreads.copy_(_SHARP * shape.expand_as(spreads))
    channels = module.value.in_features // len(centers)
    return torch.randint(-1, 2, (2, 4, 6, channels), generator=random).to(centers)
