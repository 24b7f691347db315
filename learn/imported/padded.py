"""Heads over the image's pixels as a ``SelfAttention2d``, whose keys have a border of zeros around them.

Away from borders the two are the same function up to what attention reaches beyond them. At borders they differ, and
must: where a head's target is off the image, a softmax over the pixels goes to the nearest ones, while a convolution
reads zero there. So every engine, bound and proof of ``SelfAttention2d`` takes a key at every target, and it has no
mode without padding; ``HeadAttention`` is the layer for that. What is known of ``SelfAttention2d`` (its certificate,
freezing, the way to ``nn.Conv2d``, pictures) is known of other people's heads through this file.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...convert.attention.layer import SelfAttention2d
from ...convert.errors import NotAConvolutionError
from ...convert.spec import ConvSpec
from ..heads.attention import HeadAttention
from ..heads.gaussian import IsotropicGaussian, Quadratic


@torch.no_grad()
def with_padded_keys(layer: HeadAttention) -> SelfAttention2d:
    """The layer with the same heads whose keys reach as far beyond the image as its heads do.

    Heads are the taps of the smallest square kernel of odd side that has as many, dilated until it reaches every
    centre; taps too many have a weight of zero. With the centres at the taps and a large alpha it is a convolution, and
    ``conv_from_attention`` gives it.

    Args:
        layer: A layer with isotropic quadratic scores and without content.

    Raises:
        NotAConvolutionError: It has content, or a head has another score, or one that does not fall with the distance.
    """
    alpha, centers = _alpha_and_centers(layer)
    farthest = math.ceil(centers.abs().max().item())
    side = math.isqrt((layer.num_heads if farthest == 0 else max(layer.num_heads, 2)) - 1) + 1
    side += 1 - side % 2
    dilation = max(1, -(-farthest // max(side // 2, 1)))
    spec = ConvSpec(
        *(layer.in_channels, layer.out_channels, (side, side)),
        dilation=(dilation, dilation),
        padding=(dilation * (side // 2),) * 2,
    )
    made = SelfAttention2d(spec, alpha=alpha.max().item(), device=layer.weight.device, dtype=layer.weight.dtype)
    numbers = {tuple(map(float, offset)): number for number, offset in enumerate(spec.tap_offsets)}
    found = [numbers.pop(tuple(center), None) for center in centers.tolist()]  # the tap that a head looks at, if any
    others = iter(numbers.values())
    taps = [next(others) if tap is None else tap for tap in found]
    made.get_parameter("bias").copy_(layer.bias)
    made.weight.zero_()
    made.weight.flatten(2)[:, :, taps] = layer.weight.transpose(1, 2)
    alphas, places = made.alpha.clone(), made.centers.clone()
    alphas[taps], places[taps] = alpha.detach().to(alphas), centers.detach().to(places)
    made.set_positions(alpha=alphas, centers=places)
    return made.train(layer.training)


def _alpha_and_centers(layer: HeadAttention) -> tuple[Tensor, Tensor]:
    """Locality strengths [num_heads] and centres [num_heads, 2] of heads that have them."""
    positions = layer.positions
    if layer.content is not None:
        raise NotAConvolutionError("it looks at the image to decide where to look")
    if isinstance(positions, IsotropicGaussian):
        return positions.alpha, positions.centers
    if not isinstance(positions, Quadratic) or positions.cross is not None:
        raise NotAConvolutionError("its scores are not -alpha |delta - Delta|^2: SelfAttention2d has no others")
    squares = positions.squares
    if not bool((squares[:, 0] == squares[:, 1]).all() & (squares < 0).all()):
        raise NotAConvolutionError(
            "a head's scores do not fall with the distance from a pixel, alike in all directions"
        )
    return -squares[:, 0], positions.linear / (-2 * squares)
