"""From a checkpoint and an architecture to a network, ready to be converted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from conv2attn.convert.checkpoint import Checkpoint, load_into, non_finite_keys, read_checkpoint
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.folder import Architecture


@dataclass(frozen=True)
class Network:
    """A network with the weights of a checkpoint.

    Attributes:
        model: In eval mode.
        checkpoint: Where the weights came from.
        non_finite: Names of tensors with a NaN or an infinity.
    """

    model: nn.Module
    checkpoint: Checkpoint
    non_finite: tuple[str, ...]


def load_network(
    path: str | Path,
    architecture: Architecture,
    *,
    ema: bool = False,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
) -> Network:
    """Builds the architecture and loads the checkpoint's weights into it.

    Args:
        path: The checkpoint.
        architecture: How to build the network.
        ema: Take the moving average of the weights.
        device: Where to.
        dtype: Convert floating-point weights to this precision; None keeps the architecture's.

    Raises:
        CheckpointError: The file cannot be read or does not fit.
        ArchitectureError: The network cannot be built.
        ConversionError: There is no such device here, or a dtype is asked for that complex weights do not fit.
    """
    checkpoint = read_checkpoint(path, ema=ema)
    model = architecture.build()
    load_into(model, checkpoint)
    if dtype is not None and any(parameter.is_complex() for parameter in model.parameters()):
        raise ConversionError(f"the network has complex weights, whose imaginary parts {dtype} would lose")
    try:
        model = model.to(device=torch.device(device), dtype=dtype).eval()
        non_finite = tuple(non_finite_keys(model.state_dict()))  # here, since the meta device has no values
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ConversionError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from error
    return Network(model, checkpoint, non_finite)
