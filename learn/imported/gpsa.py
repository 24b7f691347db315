"""ConViT's gated positional self-attention, as timm, the authors and others hold it.

    pos_proj      Linear(3, heads):  score(delta) = (w_0, w_1, w_2) . (delta_2, delta_1, |delta|^2), and a constant
    gating_param  [heads]:           sigmoid of it is the share of the positions' softmax in the attention
    v, proj       Linear(dim, dim):  W_h = proj[:, h] v[h], through dim / heads channels

(``convert/export/gpsa.py`` has the equations.) Only a layer whose gates are open, sigmoid = 1, looks by position alone.
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
from ..heads.quadratic import Quadratic

_SIDE = 5  # pixels of the image that a module is tried on


def is_gpsa(module: nn.Module) -> bool:
    """Whether a module has the parts of GPSA."""
    parts = [getattr(module, name, None) for name in ("pos_proj", "v", "proj")]
    gate = getattr(module, "gating_param", None)
    return all(isinstance(part, nn.Linear) for part in parts) and isinstance(gate, Tensor)


def read_gpsa(module: Any, *, positions_alone: bool) -> HeadAttention:
    """The layer of its positions.

    Args:
        module: A module with the parts of GPSA.
        positions_alone: Leave its content out where gates let it in; then this is another function than the module's.

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
