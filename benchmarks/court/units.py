"""Roundings of other machines, exactly: operands of products, results that are cut, steps of eight bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

Round = Callable[[Tensor], Tensor]
TF32_BITS, BFLOAT16_BITS, FLOAT32_BITS = 10, 7, 23  # of the mantissa that are stored


def nearest(x: Tensor, bits: int) -> Tensor:
    """Rounds float32 to so many stored bits of the mantissa, to nearest, ties to even."""
    drop = FLOAT32_BITS - bits
    pattern = x.contiguous().view(torch.int32)
    pattern = pattern + ((1 << (drop - 1)) - 1) + (pattern >> drop & 1)
    return (pattern >> drop << drop).view(torch.float32)


def cut(x: Tensor) -> Tensor:
    """Float32 to bfloat16 by dropping 16 bits: towards zero."""
    return (x.float().contiguous().view(torch.int32) >> 16 << 16).view(torch.float32).bfloat16()


def floor(x: Tensor) -> Tensor:
    """Float32 to bfloat16, towards minus infinity."""
    wide, low = x.float(), cut(x).float()
    below = low.contiguous().view(torch.int32) + 0x10000  # the next bfloat16 further from zero
    return torch.where((low > wide) & (wide < 0), below.view(torch.float32), low).bfloat16()


def tf32(x: Tensor) -> Tensor:
    """An operand of a product on tensor cores."""
    return nearest(x, TF32_BITS)


def bfloat16(x: Tensor) -> Tensor:
    """An operand of a product in bfloat16."""
    return nearest(x, BFLOAT16_BITS)


def float16(x: Tensor) -> Tensor:
    """An operand of a product in float16."""
    return x.half().float()


_aten: Any = torch.ops.aten
_OPERANDS = {  # places of the factors
    _aten.mm: (0, 1),
    _aten.bmm: (0, 1),
    _aten.addmm: (1, 2),
    _aten.baddbmm: (1, 2),
    _aten.convolution: (0, 1),
}


class _Products(TorchDispatchMode):
    """Rounds operands, and if asked results, of matrix products and convolutions in float32."""

    def __init__(self, rounded: Round, *, are_results_rounded: bool) -> None:
        super().__init__()
        self.rounded, self.are_results_rounded = rounded, are_results_rounded

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        places = _OPERANDS.get(func.overloadpacket, ())
        factors = [self.rounded(x) if place in places else x for place, x in enumerate(args)]
        result = func(*factors, **(kwargs or {}))
        return self.rounded(result) if places and self.are_results_rounded else result


def with_products(network: nn.Module, rounded: Round, *, are_results_rounded: bool = False) -> Callable[..., Any]:
    """An engine that rounds the operands of the network's products, and sums them in float32."""

    def run(*inputs: Tensor) -> Any:
        with _Products(rounded, are_results_rounded=are_results_rounded):
            return network(*inputs)

    return run


class _Halves(TorchDispatchMode):
    """Sums every matrix product in two halves, each rounded to the network's precision."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket not in (_aten.mm, _aten.bmm):
            return func(*args, **(kwargs or {}))
        a, b = args[:2]
        half = a.shape[-1] // 2
        return func(a[..., :half], b[..., :half, :]) + func(a[..., half:], b[..., half:, :])


def with_halves(function: Callable[..., Any]) -> Callable[..., Any]:
    """An engine whose kernels split the sums of products for these shapes, as GPUs' do in half precision."""

    def run(*inputs: Tensor) -> Any:
        with _Halves():
            return function(*inputs)

    return run


def steps(x: Tensor, scale: Tensor | float, low: int, high: int) -> Tensor:
    """The integers that numbers are quantised to, as float32."""
    return (x / scale).round().clamp(low, high)
