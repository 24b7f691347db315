"""The last stage of a network, where content attention costs least and sees most.

The last stage is what comes after the last layer that makes the image smaller, a stride or a pooling: there pixels are
fewest, so all pairs of them are, and features are those of the largest parts of the image. Of its layers those count
that look at more than one pixel. Modules are taken in the order in which the network holds them.
"""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from ...convert.attention.layer import SelfAttention
from ...convert.errors import ConversionError
from ...convert.model.convert import is_convolution

_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)


def last_stage(model: nn.Module) -> tuple[str, ...]:
    """Names of the layers of the last stage; of the last layer that sees several pixels, where the stage has none.

    Args:
        model: A CNN, or a network that ``convert_model`` made of one.

    Raises:
        ConversionError: No layer of the model sees several pixels.
    """
    seeing = _seeing(model)
    if not seeing:
        raise ConversionError("no layer of the model sees more than one pixel; choose layers by filter_fn (--include)")
    stage: list[str] | None = None  # until something makes the image smaller
    for name, module in model.named_modules():
        if _makes_smaller(module):
            stage = []
        elif stage is not None and name in seeing:
            stage.append(name)
    return tuple(stage or seeing[-1:])


def last_layers(model: nn.Module, count: int) -> tuple[str, ...]:
    """Names of the last layers that see several pixels.

    Args:
        model: As for ``last_stage``.
        count: How many.

    Raises:
        ConversionError: There are fewer.
    """
    seeing = _seeing(model)
    if len(seeing) < count:
        raise ConversionError(f"last must be at most {len(seeing)}, the layers that see several pixels; got {count}")
    return tuple(seeing[-count:])


def _seeing(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if _is_layer(module) and math.prod(_shape(module)[0]) > 1]


def _makes_smaller(module: nn.Module) -> bool:
    if isinstance(module, _POOLS):
        stride = module.stride if isinstance(module.stride, tuple) else (module.stride,)
        return max(stride) > 1
    return _is_layer(module) and max(_shape(module)[1]) > 1


def _is_layer(module: nn.Module) -> bool:
    return isinstance(module, SelfAttention) or is_convolution(module)


def _shape(module: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Kernel size and stride; a transposed layer's stride makes images larger and counts as 1."""
    spec = module.spec if isinstance(module, SelfAttention) else module
    kernel, stride = tuple(spec.kernel_size), tuple(spec.stride)
    return kernel, tuple(1 for _ in stride) if getattr(spec, "transposed", False) else stride
