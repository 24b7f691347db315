"""Subnormal numbers: those below the smallest normal number, which a processor may take for zero.

Flags of the processor (``torch.set_flush_denormal``, compilers' fast mathematics) and some instructions (bfloat16's dot
products on x86) read subnormal operands as 0 and write subnormal results as 0. The same may happen to the arithmetic of
a certificate, so numbers are told apart by their bits here, and never by comparing them with 0.

float16 is computed with in float32, where its numbers are normal; no processor that torch runs on drops them unasked.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BITS = {torch.float32: (torch.int32, 23), torch.float64: (torch.int64, 52)}  # and those of the fraction


def is_subnormal(values: Tensor) -> Tensor:
    """Mask of the numbers that are subnormal in their computing precision, which is at least float32."""
    bits, fraction = _below(values)
    return bits < fraction


def magnitudes(values: Tensor) -> Tensor:
    """|values| in double precision on the CPU, the smallest normal number in place of subnormal ones."""
    computed, absolute = torch.promote_types(values.dtype, torch.float32), values.detach().cpu().abs().double()
    bits, fraction = _below(values)
    if not bits.numel() or int(bits.min()) >= fraction:
        return absolute
    return absolute.masked_fill_((bits < fraction).cpu(), torch.finfo(computed).smallest_normal)


def _below(values: Tensor) -> tuple[Tensor, int]:
    """The bits of |values| less 1, where 0 becomes the largest integer, and those of the largest subnormal number."""
    computed = values.detach().to(torch.promote_types(values.dtype, torch.float32))
    integers, fraction = _BITS[computed.dtype]
    sign = torch.iinfo(integers).max
    bits = (computed.contiguous().view(integers) & sign).sub_(1).bitwise_and_(sign)
    return bits, 2**fraction - 1
