"""What a tensor without values answers as the one with values would, and what it cannot know.

Its shape and its dtype are true. Its text and where it lies in memory are not what they would be, and neither is
whether gradients are kept for it, so a network that asks for these is not followed. It raises errors that a tensor with
values would not raise, so a network that catches one of those is not followed either.

Python itself is not watched. A network that asks whether inference mode is on, that hands its tensors to code in other
languages (``torch.utils.dlpack.to_dlpack``), that asks a question where torch's function modes do not look, that
writes through ``.data`` in another thread, whose autograd functions ask for ``ctx.needs_input_grad``, or that looks for
what follows it, is taken to compute what it computes while it is followed. So is one that falls back on other code
where a ``view`` fails for the memory format of an image.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...errors import ConversionError
from .tracked import replaced

# Asked of another tensor, on the network's own device.
DEVICES = frozenset(
    {"device", "get_device", "is_cpu", "is_cuda", "is_hpu", "is_ipu", "is_maia", "is_meta", "is_mps", "is_mtia"}
    | {"is_vulkan", "is_xla", "is_xpu"}
)
# Asked of the network's own parameters and buffers.
GRADIENTS = frozenset({"is_leaf", "requires_grad"})
# What shapes and dtypes tell.
FACTS = frozenset(
    {"__len__", "can_cast", "dim", "dtype", "element_size", "is_complex", "is_conj", "is_floating_point"}
    | {"is_mkldnn", "is_neg", "is_nested", "is_quantized", "is_same_size", "is_signed", "is_sparse", "is_sparse_csr"}
    | {"itemsize", "layout", "nbytes", "ndim", "ndimension", "nelement", "numel", "result_type", "shape", "size"}
)


def is_shared(error: Exception, func: Callable[..., Any], args: Any, kwargs: Any, device: torch.device) -> bool:
    """Whether a call that raised an error on tensors without values raises one of its kind on tensors with values.

    Args:
        error: The error.
        func: What was called.
        args: Its arguments.
        kwargs: Its keyword arguments.
        device: Where the network is.
    """

    def raised(zeros: Callable[[Tensor, torch.device], Tensor]) -> type[Exception] | None:
        def valued(tensor: Tensor) -> Tensor:
            return zeros(tensor, device) if tensor.is_meta else tensor.clone()

        try:
            with torch.enable_grad():
                func(*replaced(args, Tensor, valued), **replaced(kwargs, Tensor, valued))
        except Exception as other:
            return type(other)
        return None

    return not names_meta(error) and all(raised(zeros) is type(error) for zeros in (_zeros, _zeros_with_gradients))


def names_meta(error: Exception) -> bool:
    """Whether an error names the device of tensors without values, as torch's own do."""
    return re.search(r"\bmeta\b", str(error), re.IGNORECASE) is not None


def told(error: Exception) -> str:
    """What an error that the network raised on tensors without values says of the network."""
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, ConversionError):
        return said
    if names_meta(error):
        return "it reads values of tensors, and only their shapes are followed"
    return f"it does not run on them: {type(error).__name__}{': ' if said else ''}{said}"


def _zeros(tensor: Tensor, device: torch.device) -> Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=device)


def _zeros_with_gradients(tensor: Tensor, device: torch.device) -> Tensor:
    zeros = _zeros(tensor, device)
    return zeros.requires_grad_().clone() if zeros.is_floating_point() else zeros
