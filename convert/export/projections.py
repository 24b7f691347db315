"""Common base of positional layers written as other libraries' attention: dense kernels, and the way back."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..attention.checked import checked_layer
from ..attention.layer import LAYERS, SelfAttention
from ..autocast import autocast_dtype
from ..errors import ConversionError, EngineError, GeometryError
from ..heads.regime import EXACT_ALPHA
from ..size import Size
from ..spec import ConvSpec

_LARGEST = 2**31  # bytes of the projections


def check_positions_alone(layer: SelfAttention, tool: str) -> None:
    """Refuses a layer that fixed quadratic positions in the layer's own precision do not describe."""
    checked_layer(layer)
    if layer.content is not None or layer.axis_scores is not None:
        raise ConversionError(
            f"{tool} supports quadratic positions only; the layer has content terms or learned tables"
        )
    if layer.weight.dtype != layer.regime.dtype:
        raise ConversionError(f"{tool} would round positions to {layer.weight.dtype}; take a float32 layer")


def check_projections(tool: str, spec: ConvSpec, numbers: int, dtype: torch.dtype) -> None:
    """Refuses projections of so many numbers that they take more than 2 GB."""
    if (needed := numbers * dtype.itemsize) > _LARGEST:
        raise EngineError(
            f"the projections of {tool} with {spec.num_heads} heads would take {needed / 2**30:.0f} GB; at most 2 GB "
            "are made"
        )


class OfOneSize(nn.Module):
    """Another library's attention in the place of a layer, over the pixels of padded images of one size."""

    attention: nn.Module

    def __init__(self, spec: ConvSpec, size: Size) -> None:
        super().__init__()
        self.spec, self.size = spec, size

    def forward(self, x: Tensor) -> Tensor:
        """Computes the layer: [batch, in_channels, *size] -> [batch, out_channels, *output size].

        Raises:
            GeometryError: The images have another size.
            ConversionError: Autocast is on, which would round scores, so that heads look at other pixels.
        """
        self._check(x)
        outputs = self._attended(x)[..., : self.spec.out_channels].transpose(1, 2)
        return torch.unflatten(outputs, 2, tuple(self.spec.output_size(self.size)))

    def _attended(self, x: Tensor) -> Tensor:
        """Attention output at the queries, [batch, queries, dim]."""
        raise NotImplementedError

    def _check(self, x: Tensor) -> None:
        if (dtype := autocast_dtype(x.device)) is not None:
            raise ConversionError(f"autocast would round scores of positions to {dtype}: run it outside of autocast")
        if tuple(x.shape[1:]) != (self.spec.in_channels, *self.size):
            raise GeometryError(f"input must be [batch, {self.spec.in_channels}, {self.size}]; got {list(x.shape)}")


def layer_of(
    blocks: Tensor,
    bias: Tensor,
    alpha: Tensor,
    centers: Tensor,
    made: OfOneSize,
    again: Callable[..., OfOneSize],
) -> SelfAttention:
    """The way back: the layer whose kernel, centres and alpha another library's attention holds, bit for bit.

    It is made of each head's output projection, [dim, num_heads, head_dim], the bias, [dim], and alpha and centre of
    each head; ``again`` makes such attention of a layer and a size.

    Raises:
        ConversionError: The attention is not that of a layer of positions only, as after training.
    """
    spec = made.spec
    layer = LAYERS[spec.axes](
        spec,
        weight=nn.Parameter(_weight_of(spec, blocks[: spec.out_channels, :, : spec.in_channels])),
        bias=nn.Parameter(bias[: spec.out_channels].clone()) if spec.bias else None,
    )
    is_exact = bool((alpha == EXACT_ALPHA[layer.regime.dtype]).all())
    layer.set_positions(alpha=None if is_exact else alpha, centers=centers)
    state, expected = made.attention.state_dict(), again(layer, size=made.size).attention.state_dict()
    changed = [name for name, value in expected.items() if name not in state or not torch.equal(value, state[name])]
    if changed:
        raise ConversionError(f"it is no longer a layer of positions only: {', '.join(changed)} were changed")
    return layer.train(made.training)


def dense_kernel(layer: SelfAttention) -> Tensor:
    """W_Delta of every head with the zeros between groups, [out_channels, num_heads, in_channels]."""
    spec = layer.spec
    blocks = layer.kernel.flatten(2).transpose(1, 2).unflatten(0, (spec.groups, -1))
    dense = blocks.new_zeros(*blocks.shape[:3], spec.groups, blocks.shape[3])
    for group in range(spec.groups):
        dense[group, :, :, group] = blocks[group]
    return torch.flatten(dense.flatten(3), 0, 1)


def _weight_of(spec: ConvSpec, dense: Tensor) -> Tensor:
    """The weight as the convolution's class holds it, from what ``dense_kernel`` gives."""
    apart = dense.unflatten(2, (spec.groups, -1)).unflatten(0, (spec.groups, -1))
    blocks = torch.stack([apart[group, :, :, group] for group in range(spec.groups)])
    kernel = torch.unflatten(blocks.flatten(0, 1).transpose(1, 2), 2, spec.kernel_size)
    if not spec.transposed:
        return kernel.contiguous()
    swapped = torch.unflatten(kernel, 0, (spec.groups, -1)).transpose(1, 2).flatten(0, 1)
    return torch.flip(swapped, tuple(range(2, swapped.ndim))).contiguous()
