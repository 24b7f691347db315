"""JAX: ported by hand, compiled by XLA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax
from torch import Tensor, nn

from benchmarks.engines.by_hand import by_hand, operations
from benchmarks.engines.port import Calls

PACKAGE = "jax"
VERSION = jax.__version__
DECLARED = {
    "float32": "float32",
    "float32, one by one": "float32",
    "precision bfloat16": "bfloat16 products",
    "bfloat16": "bfloat16 stored",
    "float16": "float16 stored",
}
_TYPES = {"bfloat16": jnp.bfloat16, "float16": jnp.float16}


def _convolution(
    x: Any, weight: Any, shift: Any, stride: Any, padding: Any, dilation: Any, turned: bool, extra: Any, groups: int
) -> Any:
    y = lax.conv_general_dilated(
        x, weight, stride, [(each, each) for each in padding], rhs_dilation=dilation, feature_group_count=groups
    )
    return y if shift is None else y + shift.reshape(1, -1, 1, 1)


def _max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


_TABLE = operations(
    jnp,
    {
        "convolution": _convolution,
        "max_pool": _max_pool,
        "erf": lax.erf,
        "rsqrt": lax.rsqrt,
        "sigmoid": jax.nn.sigmoid,
        "_softmax": lambda x, axis, half: jax.nn.softmax(x, axis),
    },
)


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in JAX."""

    def array(x: Tensor) -> Any:
        made = jnp.asarray(x.detach().numpy())
        return made.astype(_TYPES[way]) if way in _TYPES and x.is_floating_point() else made

    run = by_hand(network, inputs, _TABLE, array)
    run = run if way == "float32, one by one" else jax.jit(run)
    precision = "bfloat16" if way == "precision bfloat16" else "float32"

    def call(x: Tensor) -> tuple[Tensor, ...]:
        with jax.default_matmul_precision(precision):
            return tuple(torch.from_numpy(np.array(one.astype(jnp.float32))) for one in run(array(x)))

    return call
