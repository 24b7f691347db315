"""The Gaussian attention of the paper's authors (epfml/attention-cnn), isotropic and not.

    attention_centers  [heads, 2]                  mu
    attention_spreads  [heads] or [heads, 2, 2]    S, with the precision P = S S^T, or s^2 along both axes
    value              Linear(heads * dim, dim)    W_h side by side

    score(delta) = -1/2 (delta - mu)^T P (delta - mu)  =  -1/2 delta^T P delta + (P mu)^T delta  + a constant

(draft, eq. 12 to 16). Images are [batch, first axis, second axis, dim], which the layer here calls rows and columns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...convert.errors import ConversionError
from ..heads.attention import HeadAttention
from ..heads.quadratic import Quadratic

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
