"""The meaning of ``torch.autocast`` for a layer.

A convolution under autocast rounds its input, kernel and bias to autocast's dtype, and gives a result of that dtype.
The attention in its place does the same, and then computes with autocast off: positions, scores and probabilities are
not values of the network and stay in at least float32, since in bfloat16 a head looks at the wrong pixel.

So under autocast the certificate is that of the layer with rounded parameters on the rounded input, against the
convolution under the same autocast. Against the exact convolution of the numbers before they were rounded, more is
added: with u the unit roundoff of autocast's dtype, w' = w (1 + d_w), x' = x (1 + d_x), b' = b (1 + d_b) and |d| <= u,

    | (sum w' x' + b') - (sum w x + b) |  <=  (2 u + u^2) sum |w||x| + u |b|

if nothing overflows or underflows in that dtype.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype to which autocast rounds on a device now, or None where it is off."""
    kind = device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A tensor as autocast hands it to a convolution: float64 stays as it is."""
    return tensor if tensor.dtype == torch.float64 else tensor.to(dtype)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Switches autocast off on a device, where it is on, for as long as the context lasts."""
    return nullcontext() if autocast_dtype(device) is None else torch.autocast(device.type, enabled=False)
