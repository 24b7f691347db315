"""A convolution as self-attention over the patches of an image, as a vision transformer has them.

A patch of P x P pixels is one token with P^2 C channels (``nn.PixelUnshuffle``). Along an axis, output u of output
patch I reads by tap m the pixel

    P I + s u + d m - b  =  P (I + J) + v,     J = floor((s u + d m - b) / P),  0 <= v < P,

with b pixels of padding before the axis: channel v of the patch J places further. So the convolution is one with
stride 1 over patches, and Theorem 1 makes attention of it, with a head for each J. They reach from

    floor(-b / P)   to   floor((P - s + d (K - 1) - b) / P),

which for a "same" convolution of odd K are 2 ceil((K - 1) / 2P) + 1 places. The output patches have P / s pixels a side
(``nn.PixelShuffle``). ``proofs/claims/theorem/patches.py`` proves it.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from ..arguments import as_integer
from ..errors import Problem, UnsupportedLayerError
from ..padded import PADDED, spec_of
from ..spec import Convolution, ConvSpec
from .layer import SelfAttention2d


def patch_attention(conv: Convolution, *, patch: int, alpha: float | None, engine: str) -> nn.Sequential:
    """The attention over patches that computes a convolution known to be supported; ``attention_from_conv`` has it.

    Raises:
        UnsupportedLayerError: It is no convolution over such patches.
    """
    patch = as_integer(patch, "patch", least=1)
    reason = _unsuited(conv, patch)
    if reason is not None:
        raise UnsupportedLayerError(f"the layer cannot be converted to patches: {reason}", [Problem("", reason)])
    spec = spec_of(conv)
    kernel, pads = patch_kernel(spec, conv.weight.detach(), patch)
    tokens = (patch // spec.stride[0]) ** 2
    bias = None if conv.bias is None else nn.Parameter(conv.bias.detach().repeat_interleave(tokens))
    over_patches = ConvSpec(
        in_channels=spec.in_channels * patch**2,
        out_channels=spec.out_channels * tokens,
        kernel_size=(kernel.shape[2], kernel.shape[3]),
        padding=tuple(pads),
        padding_mode=spec.padding_mode,
        groups=spec.groups,
        bias=spec.bias,
    )
    layer = SelfAttention2d(over_patches, weight=nn.Parameter(kernel), bias=bias, alpha=alpha, engine=engine)
    made = nn.Sequential(nn.PixelUnshuffle(patch), layer, nn.PixelShuffle(patch // spec.stride[0]))
    return made.train(conv.training)


def patch_kernel(spec: ConvSpec, weight: Tensor, patch: int) -> tuple[Tensor, list[tuple[int, int]]]:
    """The kernel over patches, and the patches before and after a query's own that it reads along each axis.

    Args:
        spec: The geometry, with one stride that divides ``patch``.
        weight: [out_channels, in_channels / groups, *kernel_size].
        patch: Pixels P of a patch along each axis.

    Returns:
        [out_channels (P / s)^2, in_channels / groups P^2, *K'], in the order of ``nn.PixelShuffle``'s channels.
    """
    outputs = patch // spec.stride[0]
    pads = [_reach(spec, axis, patch) for axis in range(2)]
    lengths = [(before + after + 1) * patch for before, after in pads]
    rows, columns = (_reads(spec, axis, patch) + pads[axis][0] * patch for axis in range(2))  # from the first patch on
    spread = weight.new_zeros(*weight.shape[:2], outputs, outputs, *lengths)
    for row, column in itertools.product(range(outputs), repeat=2):
        spread[:, :, row, column][:, :, rows[row][:, None], columns[column]] = weight
    split = spread.unflatten(5, (-1, patch)).unflatten(4, (-1, patch))  # o, c, u, u', J, v, J', v'
    kernel = split.permute(0, 2, 3, 1, 5, 7, 4, 6).flatten(3, 5).flatten(0, 2)
    return kernel.contiguous(), pads


def _reads(spec: ConvSpec, axis: int, patch: int) -> Tensor:
    """s u + d m - b: where tap m of output u reads, in pixels from the patch's first: [P / s, K]."""
    outputs = spec.stride[axis] * torch.arange(patch // spec.stride[axis])
    taps = spec.dilation[axis] * torch.arange(spec.kernel_size[axis])
    return outputs[:, None] + taps - spec.pads[axis][0]


def _reach(spec: ConvSpec, axis: int, patch: int) -> tuple[int, int]:
    """How many patches the kernel reaches back and forth."""
    reads = _reads(spec, axis, patch)
    return -(int(reads.min()) // patch), int(reads.max()) // patch


def _unsuited(conv: Convolution, patch: int) -> str | None:
    """Why a convolution is none over patches of this size, or None if it is one."""
    if type(conv) not in (nn.Conv2d, PADDED[2, False]):
        return f"only nn.Conv2d has patches; got {type(conv).__name__}"
    spec = spec_of(conv)
    if spec.is_dynamic or spec.padding_mode not in ("zeros", "circular"):
        return f"padding {spec.padding!r} with {spec.padding_mode} does not consist of whole patches"
    stride = spec.stride[0]
    if spec.stride[1] != stride or patch % stride:
        return f"one stride that divides the patch of {patch} pixels is needed; got {spec.stride}"
    for reach, pads in zip(spec.reach, spec.pads, strict=True):
        if not 0 <= reach - sum(pads) < stride:
            return "its output must have as many pixels as its input, or 1 for every stride pixels; its padding has not"
    return None
