"""Literal attention with its heads spread over processes: a plan for ``torch.distributed.tensor.parallel``.

    parallelize_module(model, mesh, {"0": HeadParallel(), "layer1.0.conv1": HeadParallel()})

Every process keeps the kernel's slices of its own heads, computes their attention to the whole image, and the processes
add up what their heads read:

    output = bias + sum over processes of sum over their heads h of W_Delta_h A_h X

Images come to every process, and outputs are the same in each. Heads are sharded along the kernel's longest axis, so a
3x3 kernel in two processes has six heads in one and three in the other.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel.style import ParallelStyle

from ..attention.computed import is_computed
from ..attention.layer import SelfAttention
from ..engines import ENGINES
from ..errors import ConversionError
from ..heads.regime import Regime
from ..heads.values import LayerValues


class HeadParallel(ParallelStyle):
    """Spreads the heads of a ``SelfAttention`` over the processes of a mesh with one dimension.

    Its weight becomes a ``DTensor``; bias, alpha and centers stay in every process, and their gradients are whole in
    each. ``parallelize_module`` raises ConversionError for a module that is no such layer, has content terms, learned
    tables or a computed weight, or has fewer taps along its kernel's longest axis than there are processes.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        if not isinstance(module, SelfAttention):
            raise ConversionError(f"HeadParallel needs an attention layer; got {type(module).__name__}")
        if module.content is not None or module.axis_scores is not None or is_computed(module):
            raise ConversionError("only layers with quadratic scores alone and a weight of their own can be spread")
        if device_mesh.ndim != 1:
            raise ConversionError(f"heads are spread over a mesh with one dimension; got {device_mesh.ndim}")
        axis, heads = _share(module, device_mesh)
        wanted = module.weight.requires_grad
        sharded = distribute_tensor(module.weight.detach(), device_mesh, [Shard(2 + axis)])
        module.weight = nn.Parameter(sharded, requires_grad=wanted)
        module.engine = "literal"
        module._attend = partial(_attend, device_mesh, heads)  # type: ignore[method-assign]
        return module


def _share(layer: SelfAttention, mesh: DeviceMesh) -> tuple[int, list[int]]:
    """The axis of the kernel that heads are sharded along, and the numbers of this process's heads."""
    spec, processes = layer.spec, mesh.size()
    axis = max(range(spec.axes), key=lambda number: spec.kernel_size[number])
    parts = torch.arange(spec.kernel_size[axis]).chunk(processes)
    if len(parts) < processes:
        raise ConversionError(
            f"{spec.kernel_size[axis]} taps along the longest axis of {spec} are not enough for {processes} processes"
        )
    taps = parts[mesh.get_local_rank()]
    if spec.transposed:  # whose weight holds the kernel flipped
        taps = spec.kernel_size[axis] - 1 - taps.flip(0)
    heads = torch.arange(spec.num_heads).view(spec.kernel_size).index_select(axis, taps)
    return axis, heads.flatten().tolist()


def _attend(mesh: DeviceMesh, heads: list[int], x: Tensor, values: LayerValues) -> Tensor:
    """The layer's output, from the heads of this and the other processes."""
    weight = values.weight
    if x.dtype != weight.dtype:
        raise ConversionError(f"input must have the layer's dtype {weight.dtype}; got {x.dtype}")
    assert isinstance(weight, DTensor)
    regime, trained = values.regime, values.trained
    if trained is not None:
        alpha, centers = (_with_whole_gradient(tensor, mesh)[heads] for tensor in trained)
        trained = alpha, centers
    alphas, places = (regime.alpha[head] for head in heads), (regime.centers[head] for head in heads)
    own = Regime(tuple(alphas), tuple(places), at_taps=regime.at_taps, dtype=regime.dtype)
    here = values._replace(weight=weight.to_local(), bias=None, regime=own, trained=trained)
    part = ENGINES["literal"].attend(here, _with_whole_gradient(x, mesh))
    whole = DTensor.from_local(part, mesh, [Partial()], run_check=False)
    output: Tensor = whole.redistribute(placements=[Replicate()]).to_local()
    if values.bias is None:
        return output
    return output + values.bias.view(-1, *(1,) * values.spec.axes)


def _with_whole_gradient(tensor: Tensor, mesh: DeviceMesh) -> Tensor:
    """A tensor that is the same everywhere, whose gradient is added up over what processes make of it."""
    replicated = DTensor.from_local(tensor, mesh, [Replicate()], run_check=False)
    local: Tensor = replicated.to_local(grad_placements=[Partial()])
    return local
