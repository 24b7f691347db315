"""Convolutions that can be converted, and the obstacles of the others."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..heads.values import OWN_NAMES
from ..spec import CONVOLUTIONS, Convolution, ConvSpec, reversed_pads
from ..subclasses import libraries  # noqa: F401 - whose readers are built in
from ..subclasses.computed import class_of, is_computed, uncomputable, value
from ..subclasses.methods import CALLED, replaced_method
from ..subclasses.padded import PADDED
from ..subclasses.readers import disagreement, geometry, reader_of
from .layer import SelfAttention

_QUANTIZED = torch.ao.nn.quantized.modules.conv._ConvNd
SUPPORTED_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

_TAKEN = (  # attributes of an attention layer that its class does not have
    "alpha",
    "spec",
    "memory_limit",
    "alpha_follows_dtype",
    "origin",
    *OWN_NAMES,
)


class ForeignConvolution(nn.Module):
    """A convolution in a file that no class of PyTorch computes.

    Args:
        reason: Why not.
    """

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def unsupported_reason(module: nn.Module) -> str | None:
    """Why a convolution cannot be converted, or None if it can.

    Exactly the classes of ``CONVOLUTIONS`` and ``PADDED`` are converted, and those that have a reader (``readers.py``):
    another subclass may compute something else in its own ``forward``.
    """
    if isinstance(module, ForeignConvolution):
        return module.reason
    cls = class_of(module)
    kind = cls.__name__
    if isinstance(module, LazyModuleMixin):
        return f"{kind} is lazy and has no weights yet; run it once first"
    if isinstance(module, _QUANTIZED):
        return f"{kind} is quantised; convert the float model"
    reader = reader_of(cls)
    if cls not in (*CONVOLUTIONS.values(), *PADDED.values()) and reader is None:
        family = next((known.__name__ for known in CONVOLUTIONS.values() if isinstance(module, known)), None)
        if family is None:
            return f"{kind} is not one of PyTorch's convolutions"
        return (
            f"it is a subclass of nn.{family}, which may compute something else; only nn.{family} itself is supported, "
            f"and classes with a reader (register_reader): {kind} has none"
        )
    reason = uncomputable(module)
    if reason is not None:
        return reason
    if reader is not None and is_computed(module):
        return f"its weights are parametrised, which the reader of {kind} does not know of"
    replaced = [name for name in CALLED if name in vars(module)]
    if replaced:
        return f"its {replaced[0]} method was replaced on the instance"
    if (method := replaced_method(cls)) is not None:
        return f"{method} was replaced for the whole class, so it may compute something else"
    weight = cast(Tensor, value(module, "weight"))
    if isinstance(weight, FakeTensor) or is_traceable_wrapper_subclass(weight):  # such as DTensor
        kind = type(weight).__name__
        return f"its weight is a {kind}; convert the model before it is sharded, quantised or made fake"
    if weight.dtype not in SUPPORTED_DTYPES:
        return f"its dtype {weight.dtype} is not one of float64, float32, bfloat16, float16"
    if weight.is_meta:
        return "it is on the meta device and has no values yet"
    conv = cast(Convolution, module)
    reason = _contradiction(conv, weight)
    if reason is None and reader is not None:
        reason = _unreadable(conv) or disagreement(conv, reader)
    return reason


def _contradiction(conv: Convolution, weight: Tensor) -> str | None:
    """How attributes that were changed after construction contradict what the convolution computes, if they do."""
    try:
        spec = geometry(conv)
    except (AttributeError, TypeError, ValueError) as error:
        return f"its geometry is not one that {type(conv).__name__} computes: {error}"
    if weight.shape != spec.weight_shape:
        return f"its weight has shape {list(weight.shape)}, but its attributes say {list(spec.weight_shape)}"
    if type(conv) in PADDED.values() and ConvSpec.from_conv(conv) != replace(spec, padding=()):
        return "its attributes were changed after it was made, and its own padding ignores them"
    if spec.padding_mode != "zeros" and list(conv._reversed_padding_repeated_twice) != reversed_pads(spec.pads):
        return f"its padding was changed to {conv.padding}, which padding_mode {spec.padding_mode!r} ignores"
    return None


def _unreadable(conv: nn.Module) -> str | None:
    """Names what an attention layer cannot keep of a convolution, or None if it can keep all."""
    held = [name for name, module in conv._modules.items() if module is not None and module.state_dict(keep_vars=True)]
    if held:
        return f"it holds modules with tensors ({', '.join(held)}), which a reader cannot keep"
    own = [name for name in (*conv._parameters, *conv._buffers) if name not in ("weight", "bias")]
    taken = [name for name in own if name in _TAKEN or hasattr(SelfAttention, name)]
    return f"its {taken[0]} has the name of a part of the attention layer" if taken else None
