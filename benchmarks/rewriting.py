"""Honest rewritings of a network: other operations that compute the same function, module by module.

Each takes a copy of the network and says how many of its modules it changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Rewriting = Callable[[nn.Module], int]
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Written(nn.Module):
    """A module's function in other words; its tensors stay where they are."""

    def __init__(self, own: nn.Module, run: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.own, self._run = own, run

    def __getattr__(self, name: str) -> Any:
        """An attribute of the module, as others read its weights."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("own"), name)

    def forward(self, x: Tensor) -> Tensor:
        """What the module gives."""
        return self._run(self.own, x)


def _swapped(network: nn.Module, kinds: tuple[type[nn.Module], ...], run: Callable[[Any, Tensor], Tensor]) -> int:
    count = 0
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in kinds and not isinstance(parent, Written) and _is_plain(child):
                setattr(parent, name, Written(child, run))
                count += 1
    return count


def _is_plain(module: nn.Module) -> bool:
    """Whether a module is only called: nobody reads its weights, as merged attention does of its projections."""
    return not getattr(module, "_forward_hooks", None)


def _layer_norm(own: nn.LayerNorm, x: Tensor) -> Tensor:
    axes = tuple(range(-len(own.normalized_shape), 0))
    mean = x.mean(axes, keepdim=True)
    spread = (x - mean).square().mean(axes, keepdim=True)
    found = (x - mean) / (spread + own.eps).sqrt()
    found = found if own.weight is None else found * own.weight
    return found if own.bias is None else found + own.bias


def _group_norm(own: nn.GroupNorm, x: Tensor) -> Tensor:
    grouped = x.unflatten(1, (own.num_groups, -1)).flatten(2)
    spread, mean = torch.var_mean(grouped, -1, correction=0, keepdim=True)
    found = ((grouped - mean) * (spread + own.eps).rsqrt()).view(x.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    return found if own.weight is None else found * own.weight.view(shape) + own.bias.view(shape)


def _batch_norm(own: nn.BatchNorm2d, x: Tensor) -> Tensor:
    shape = (1, -1, *[1] * (x.ndim - 2))
    assert own.running_mean is not None
    assert own.running_var is not None
    factor = own.weight * (own.running_var + own.eps).rsqrt()
    return x * factor.view(shape) + (own.bias - own.running_mean * factor).view(shape)


def written_norms(network: nn.Module) -> int:
    """Normalisations as means, squares and roots."""
    kinds = (one for one in network.modules() if type(one) in _BATCH_NORMS)
    with_statistics = all(one.running_mean is not None and one.weight is not None for one in kinds)  # type: ignore[union-attr]
    found = _swapped(network, (nn.LayerNorm,), _layer_norm) + _swapped(network, (nn.GroupNorm,), _group_norm)
    return found + (_swapped(network, _BATCH_NORMS, _batch_norm) if with_statistics else 0)


def _patches(own: nn.Conv2d, x: Tensor) -> Tensor:
    padded = F.pad(x, own._reversed_padding_repeated_twice) if own.padding != "valid" else x
    columns = F.unfold(padded, own.kernel_size, own.dilation, 0, own.stride)  # [batch, channels taps, places]
    sizes = [
        (size - step * (kernel - 1) - 1) // stride + 1
        for size, kernel, step, stride in zip(padded.shape[2:], own.kernel_size, own.dilation, own.stride, strict=True)
    ]
    groups = columns.unflatten(1, (own.groups, -1))
    weight = own.weight.flatten(1).unflatten(0, (own.groups, -1))
    found = (weight @ groups).flatten(1, 2).unflatten(2, sizes)
    return found if own.bias is None else found + own.bias.view(1, -1, 1, 1)


def products_of_patches(network: nn.Module) -> int:
    """Convolutions as matrix products of patches."""
    zeros = all(one.padding_mode == "zeros" for one in network.modules() if isinstance(one, nn.Conv2d))
    return _swapped(network, (nn.Conv2d,), _patches) if zeros else 0


def _gelu(own: nn.GELU, x: Tensor) -> Tensor:
    if own.approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def _hard_swish(own: nn.Module, x: Tensor) -> Tensor:
    return x * (x + 3).clamp(0, 6) / 6


def written_activations(network: nn.Module) -> int:
    """Activations in other operations."""
    ways: tuple[tuple[type[nn.Module], Callable[[Any, Tensor], Tensor]], ...] = (
        (nn.GELU, _gelu),
        (nn.SiLU, lambda own, x: x / (1 + torch.exp(-x))),
        (nn.ReLU, lambda own, x: torch.where(x > 0, x, 0.0)),
        (nn.ReLU6, lambda own, x: x.clamp(min=0).clamp(max=6)),
        (nn.Hardswish, _hard_swish),
        (nn.Sigmoid, lambda own, x: 0.5 * (1 + torch.tanh(x / 2))),
        (nn.Softmax, lambda own, x: (x - x.amax(own.dim, keepdim=True) - 0).exp() / _sum(own.dim, x)),
    )
    return sum(_swapped(network, (kind,), run) for kind, run in ways)


def _sum(dim: int, x: Tensor) -> Tensor:
    return (x - x.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True)


def _neighbours(network: nn.Module) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Normalisations and the only linear layer behind each, as blocks of transformers have them."""
    for block in network.modules():
        for norm, first in (("norm1", "attn.qkv"), ("norm2", "mlp.fc1"), ("layernorm_after", "intermediate.dense")):
            try:
                pair = block.get_submodule(norm), block.get_submodule(first)
            except AttributeError:
                continue
            if isinstance(pair[0], nn.LayerNorm) and isinstance(pair[1], nn.Linear) and pair[0].weight is not None:
                yield pair


@torch.no_grad()
def moved_scales(network: nn.Module) -> int:
    """Factors between 0.3 and 3 that go from a normalisation or a product into the next layer's weights."""
    generator, count = torch.Generator().manual_seed(2), 0
    for norm, linear in _neighbours(network):
        scale = torch.empty_like(norm.weight).uniform_(0.3, 3, generator=generator)  # type: ignore[arg-type]
        for one in (norm.weight, norm.bias):
            if isinstance(one, Tensor):
                one.mul_(scale)
        linear.weight.div_(scale)  # type: ignore[operator]
        count += 1
    return count


def other_attention(network: nn.Module) -> int:
    """Attention by products in place of torch's own function, or the other way round."""
    count = 0
    for module in network.modules():
        if isinstance(getattr(module, "fused_attn", None), bool):
            module.fused_attn = not module.fused_attn  # type: ignore[assignment]
            count += 1
    config = next((one.config for one in network.modules() if hasattr(one, "set_attn_implementation")), None)
    if config is not None:
        holder: Any = next(one for one in network.modules() if hasattr(one, "set_attn_implementation"))
        holder.set_attn_implementation("sdpa" if config._attn_implementation == "eager" else "eager")
        count += 1
    return count


REWRITINGS: dict[str, Rewriting] = {
    "norms written out": written_norms,
    "products of patches": products_of_patches,
    "activations written out": written_activations,
    "scales moved": moved_scales,
    "other attention": other_attention,
}
