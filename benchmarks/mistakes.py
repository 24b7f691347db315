"""Mistakes that people made in ports and conversions, planted in a copy of a network's modules.

Their kinds are from public threads (a wrong eps, GELU for QuickGELU, SAME padding, gates, heads or channels in another
order, a cast). Each takes the copy, and says which modules it changed; one that is only reached by what reads its
weights is not among them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from rewriting import Written
from torch import Tensor, nn

Mistake = Callable[[nn.Module, random.Random], list[str]]
_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.BatchNorm1d, nn.BatchNorm2d)


def _of(network: nn.Module, *kinds: type[nn.Module]) -> dict[str, Any]:
    """Modules of these kinds, by name."""
    return {name: one for name, one in network.named_modules() if isinstance(one, kinds)}


def _replaced(network: nn.Module, name: str, run: Callable[[Any, Tensor], Tensor]) -> list[str]:
    home, _, last = name.rpartition(".")
    own = network.get_submodule(name)
    setattr(network.get_submodule(home), last, Written(own, run))
    return [name]


def _one(kind: tuple[type[nn.Module], ...], run: Callable[[Any, Tensor], Tensor]) -> Mistake:
    """Another function in place of one module of a kind."""

    def plant(network: nn.Module, chance: random.Random) -> list[str]:
        found = sorted(_of(network, *kind))
        return _replaced(network, chance.choice(found), run) if found else []

    return plant


def _tensor(kind: tuple[type[nn.Module], ...], name: str, change: Callable[[Any, Tensor], Tensor | None]) -> Mistake:
    """Another tensor in one module of a kind; None where it does not fit."""

    def plant(network: nn.Module, chance: random.Random) -> list[str]:
        fit = {}
        for path, one in _of(network, *kind).items():
            value = getattr(one, name, None)
            changed = None if value is None else change(one, value.detach())
            if changed is not None and not torch.equal(changed, value):
                fit[path] = value, changed
        if not fit:
            return []
        chosen = chance.choice(sorted(fit))
        value, changed = fit[chosen]
        value.data.copy_(changed.clone())  # it can be a view
        return [chosen]

    return plant


def _eps_outside(own: nn.LayerNorm, x: Tensor) -> Tensor:
    return _layer_norm(own, x, own.eps, 0, is_outside=True)


def _bessel(own: nn.LayerNorm, x: Tensor) -> Tensor:
    return _layer_norm(own, x, own.eps, 1)


def _layer_norm(own: nn.LayerNorm, x: Tensor, eps: float, correction: int, *, is_outside: bool = False) -> Tensor:
    axes = tuple(range(-len(own.normalized_shape), 0))
    spread, mean = torch.var_mean(x, axes, correction=correction, keepdim=True)
    found = (x - mean) / (spread.sqrt() + eps if is_outside else (spread + eps).sqrt())
    found = found if own.weight is None else found * own.weight
    return found if own.bias is None else found + own.bias


def _first_eps(network: nn.Module, chance: random.Random) -> list[str]:
    found = _of(network, *_NORMS)
    if not found:
        return []
    name = next(iter(found))
    found[name].eps = 1e-3
    return [name]


def _norm_left_out(network: nn.Module, chance: random.Random) -> list[str]:
    found = list(_of(network, nn.LayerNorm))
    return _replaced(network, found[-1], lambda own, x: x) if found else []


def _folded_without_eps(own: nn.BatchNorm2d, x: Tensor) -> Tensor:
    return F.batch_norm(x, own.running_mean, own.running_var, own.weight, own.bias, False, own.momentum or 0.0, 0.0)


def _same_padding(network: nn.Module, chance: random.Random) -> list[str]:
    fit = [
        name
        for name, one in _of(network, nn.Conv2d).items()
        if one.stride[0] > 1 and one.padding != "valid" and one.kernel_size[0] % 2 and int(one.padding[0]) > 0
    ]

    def run(own: nn.Conv2d, x: Tensor) -> Tensor:
        rows, columns = map(int, own.padding)
        padded = F.pad(x, (columns - 1, columns + 1, rows - 1, rows + 1))
        return F.conv2d(padded, own.weight, own.bias, own.stride, 0, own.dilation, own.groups)

    return _replaced(network, chance.choice(sorted(fit)), run) if fit else []


def _stride_elsewhere(network: nn.Module, chance: random.Random) -> list[str]:
    for name, block in network.named_modules():
        convolutions = [getattr(block, f"conv{place}", None) for place in (1, 2)]
        first, second = convolutions
        if not (isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d)):
            continue
        if first.kernel_size == (1, 1) and second.stride == (2, 2):
            first.stride, second.stride = second.stride, (1, 1)
            return [f"{name}.conv1", f"{name}.conv2"]
    return []


def _first_channels(own: nn.Conv2d, weight: Tensor) -> Tensor | None:
    return weight.flip(1) if weight.shape[1] == 3 and own.groups == 1 else None


def _heads(own: nn.Linear, weight: Tensor) -> Tensor | None:
    """Rows of merged projections as (channels of a head, heads) where they are (heads, channels)."""
    width = weight.shape[1]
    if weight.shape[0] != 3 * width or width % 4:
        return None
    return weight.unflatten(0, (3, 4, width // 4)).transpose(1, 2).flatten(0, 2)


def _keys_and_values(own: nn.Linear, weight: Tensor) -> Tensor | None:
    parts = weight.chunk(3) if weight.shape[0] == 3 * weight.shape[1] else ()
    return torch.cat([parts[0], parts[2], parts[1]]) if parts else None


def _query_bias(own: nn.Linear, bias: Tensor) -> Tensor | None:
    third = bias.shape[0] // 3
    is_merged = own.weight.shape[0] == 3 * own.weight.shape[1]
    return torch.cat([bias[:third] * 0, bias[third:]]) if is_merged and bool(bias[:third].any()) else None


def _square(own: nn.Linear, weight: Tensor) -> Tensor | None:
    return weight.T if weight.shape[0] == weight.shape[1] else None


def _read_twice(network: nn.Module, chance: random.Random) -> list[str]:
    found = _of(network, nn.Linear, nn.Conv2d)
    seen: dict[Any, str] = {}
    pairs = []
    for name, one in found.items():
        key = name.rpartition(".")[2], tuple(one.weight.shape)
        if key in seen and not torch.equal(found[seen[key]].weight, one.weight):
            pairs.append((seen[key], name))
        seen[key] = name
    if not pairs:
        return []
    before, after = chance.choice(pairs)
    found[after].weight.data.copy_(found[before].weight)
    return [after]


def _parameter(names: tuple[str, ...], change: Callable[[Tensor], Tensor]) -> Mistake:
    """Another value of a network's own parameter or buffer with such a name; operations that read it are unnamed."""

    def plant(network: nn.Module, chance: random.Random) -> list[str]:
        own = dict(network.named_parameters()) | dict(network.named_buffers())
        fit = [name for name, one in own.items() if name.rpartition(".")[2] in names and one.numel() > 1]
        if not fit:
            return []
        name = chance.choice(sorted(fit))
        value = own[name]
        changed = change(value.detach())
        if torch.equal(changed, value):
            return []
        value.data.copy_(changed.clone())  # it can be a view
        return [name.rpartition(".")[0]]

    return plant


def _whole(run: Callable[[nn.Module, Tensor], Any]) -> Mistake:
    """Another thing done with the inputs or outputs of the whole network."""

    def plant(network: nn.Module, chance: random.Random) -> list[str]:
        own: Any = network.model
        network.model = Written(own, run)
        return ["", "model"]

    return plant


def _first_output(change: Callable[[Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Any]:
    def run(own: nn.Module, x: Tensor) -> Any:
        from conv2attn.convert.inputs import named_tensors

        first, *others = named_tensors(own(x)).values()
        return [change(first) if first.is_floating_point() else first, *others]

    return run


def _image(change: Callable[[Tensor], Tensor]) -> Mistake:
    plant = _whole(lambda own, x: own(change(x)))

    def fitting(network: nn.Module, chance: random.Random) -> list[str]:
        return plant(network, chance) if _of(network, nn.Conv2d) else []

    return fitting


def _layer_scale(network: nn.Module, chance: random.Random) -> list[str]:
    for name, one in network.named_modules():
        gamma = getattr(one, "gamma", None)
        if isinstance(gamma, nn.Parameter) and type(one).__name__.startswith("LayerScale"):
            gamma.data.fill_(1.0)
            return [name]
    return []


_LINEAR, _CONVOLUTION = (nn.Linear,), (nn.Conv2d,)
_POSITIONS = ("pos_embed", "position_embeddings", "position_embedding", "relative_position_bias_table")
MISTAKES: dict[str, Mistake] = {
    "eps outside the root, written out": _one((nn.LayerNorm,), _eps_outside),
    "variance with n - 1, written out": _one((nn.LayerNorm,), _bessel),
    "eps of the first norm, as Keras has it": _first_eps,
    "the last norm left out": _norm_left_out,
    "batch norm without eps": _one((nn.BatchNorm2d,), _folded_without_eps),
    "running variance of n - 1": _tensor((nn.BatchNorm2d,), "running_var", lambda own, v: v * 49 / 48),
    "a norm's bias lost": _tensor(_NORMS, "bias", lambda own, b: b * 0),
    "a norm's weight plus 1": _tensor(_NORMS, "weight", lambda own, w: w + 1),
    "QuickGELU for GELU": _one((nn.GELU,), lambda own, x: x * torch.sigmoid(1.702 * x)),
    "SiLU for GELU": _one((nn.GELU,), lambda own, x: F.silu(x)),
    "hard sigmoid for hard swish": _one((nn.Hardswish,), lambda own, x: F.hardsigmoid(x)),
    "ReLU6 for ReLU": _one((nn.ReLU,), lambda own, x: F.relu6(x * 4) / 4),
    "an activation left out": _one((nn.ReLU, nn.SiLU, nn.GELU), lambda own, x: x),
    "an activation through float16": _one((nn.ReLU, nn.SiLU, nn.GELU), lambda own, x: own(x).half().to(x.dtype)),
    "SAME padding": _same_padding,
    "stride in the other convolution": _stride_elsewhere,
    "kernel turned": _tensor(_CONVOLUTION, "weight", lambda own, w: w.flip(2, 3) if w.shape[2] > 1 else None),
    "BGR for RGB": _tensor(_CONVOLUTION, "weight", _first_channels),
    "a bias through float16": _tensor((nn.Linear, nn.Conv2d), "bias", lambda own, b: b.half().to(b.dtype)),
    "heads in another order": _tensor(_LINEAR, "weight", _heads),
    "keys and values swapped": _tensor(_LINEAR, "weight", _keys_and_values),
    "the queries' bias lost": _tensor(_LINEAR, "bias", _query_bias),
    "a square weight transposed": _tensor(_LINEAR, "weight", _square),
    "a layer read twice": _read_twice,
    "positions off by one": _parameter(_POSITIONS, lambda one: one.roll(1, -2)),
    "positions through bfloat16": _parameter(_POSITIONS, lambda one: one.bfloat16().to(one.dtype)),
    "frequencies through bfloat16": _parameter(("inv_freq",), lambda one: one.bfloat16().to(one.dtype)),
    "frequencies of another base": _parameter(("inv_freq",), lambda one: one * 0.99),
    "layer scale left out": _layer_scale,
    "images of 256 levels": _image(lambda x: x * 255 / 256),
    "a temperature of 0.999": _whole(_first_output(lambda y: y / 0.999)),
    "outputs through bfloat16": _whole(_first_output(lambda y: y.bfloat16().to(y.dtype))),
}
