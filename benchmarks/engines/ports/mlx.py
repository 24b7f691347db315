"""MLX on a processor: ported by hand; its convolutions have channels last."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.engines.by_hand import by_hand, operations
from benchmarks.engines.port import Calls

PACKAGE = "mlx[cpu]"
VERSION = version("mlx")
DECLARED = {"float32": "float32", "bfloat16": "bfloat16 stored", "float16": "float16 stored"}
_TYPES = {"bfloat16": mx.bfloat16, "float16": mx.float16}


def _convolution(
    x: Any, weight: Any, shift: Any, stride: Any, padding: Any, dilation: Any, turned: bool, extra: Any, groups: int
) -> Any:
    last = (0, 2, 3, 1)
    y = mx.conv2d(x.transpose(last), weight.transpose(last), tuple(stride), tuple(padding), tuple(dilation), groups)
    y = y.transpose(0, 3, 1, 2)
    return y if shift is None else y + shift.reshape(1, -1, 1, 1)


def _max_pool(x: Any) -> Any:
    count, channels, height, width = x.shape
    return x.reshape(count, channels, height // 2, 2, width // 2, 2).max((3, 5))


_TABLE = operations(
    mx,
    {
        "convolution": _convolution,
        "max_pool": _max_pool,
        "erf": mx.erf,
        "rsqrt": mx.rsqrt,
        "sigmoid": mx.sigmoid,
        "_softmax": lambda x, axis, half: mx.softmax(x, axis),
    },
)


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in MLX."""

    def array(x: Tensor) -> Any:
        made = mx.array(x.detach().numpy())
        return made.astype(_TYPES[way]) if way in _TYPES and x.is_floating_point() else made

    run = by_hand(network, inputs, _TABLE, array)

    def call(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(np.array(one.astype(mx.float32))) for one in run(array(x)))

    return call
