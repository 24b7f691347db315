"""Which convolutions can be converted, and what stands in the way of the others."""

from __future__ import annotations

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..spec import ConvSpec

OVERRIDABLE = ("forward", "_conv_forward")  # methods that an instance of nn.Conv2d can replace
SUPPORTED_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class ForeignConvolution(nn.Module):
    """A convolution in a file that no ``nn.Conv2d`` computes.

    Args:
        reason: Why not.
    """

    def __init__(self, reason: str) -> None:
        super().__init__()
        self.reason = reason


def unsupported_reason(module: nn.Module) -> str | None:
    """Why a convolution cannot be converted, or None if it can.

    Only an exact ``nn.Conv2d`` is converted: a subclass may compute something else in its own ``forward``.
    """
    if isinstance(module, ForeignConvolution):
        return module.reason
    kind = type(module).__name__
    if parametrize.is_parametrized(module):
        return f"the weights of this {kind} are parametrised; remove the parametrisation first"
    if isinstance(module, LazyModuleMixin):
        return f"{kind} is lazy and has no weights yet; run it once first"
    if isinstance(module, torch.ao.nn.quantized.Conv2d):
        return f"{kind} is quantised; convert the float model"
    if type(module) is not nn.Conv2d:
        family = "a subclass of nn.Conv2d, which may compute something else" if isinstance(module, nn.Conv2d) else kind
        return f"it is {family}; only nn.Conv2d itself is supported" if family != kind else f"{kind} is not nn.Conv2d"
    for name in ("weight", "bias"):
        if name not in module._parameters:
            return f"its {name} is not a plain parameter (weight_norm, spectral_norm or pruning computes it)"
    replaced = [name for name in OVERRIDABLE if name in vars(module)]
    if replaced:
        return f"its {replaced[0]} method was replaced on the instance"
    if isinstance(module.weight, FakeTensor) or is_traceable_wrapper_subclass(module.weight):  # such as DTensor
        kind = type(module.weight).__name__
        return f"its weight is a {kind}; convert the model before it is sharded, quantised or made fake"
    if module.weight.dtype not in SUPPORTED_DTYPES:
        return f"its dtype {module.weight.dtype} is not one of float64, float32, bfloat16, float16"
    if module.weight.is_meta:
        return "it is on the meta device and has no values yet"
    return _contradiction(module)


def _contradiction(conv: nn.Conv2d) -> str | None:
    """How attributes that were changed after construction contradict what the convolution computes, if they do."""
    try:
        spec = ConvSpec.from_conv(conv)
    except (TypeError, ValueError) as error:
        return f"its geometry is not one that nn.Conv2d computes: {error}"
    shape = (spec.out_channels, spec.in_channels // spec.groups, *spec.kernel_size)
    if conv.weight.shape != shape:
        return f"its weight has shape {list(conv.weight.shape)}, but its attributes say {list(shape)}"
    top, bottom, left, right = spec.pads
    if spec.padding_mode != "zeros" and list(conv._reversed_padding_repeated_twice) != [left, right, top, bottom]:
        return f"its padding was changed to {conv.padding}, which padding_mode {spec.padding_mode!r} ignores"
    return None
