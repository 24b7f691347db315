"""From a checkpoint, and an architecture where one is needed, to a network that is ready to be converted."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from conv2attn.convert.checkpoint import Checkpoint, Progress, load_into, non_finite_keys, read_checkpoint
from conv2attn.convert.errors import ArchitectureError, ArchitectureNeededError, ConversionError
from conv2attn.convert.folder import Architecture, is_converted
from conv2attn.convert.layers import layer_tree
from conv2attn.convert.restore import restored_checkpoint

LARGE = 2**28  # bytes of weights from which on they are not copied
_LISTED = 20


@dataclass(frozen=True)
class Network:
    """A network with the weights of a checkpoint.

    Attributes:
        model: In eval mode. Without an architecture, a ``Layers`` tree of the convolutions alone. With a large
            checkpoint, its weights lie in the mapped file, and what is not in the checkpoint is on the meta device.
        checkpoint: Where the weights came from.
        non_finite: Names of tensors with a NaN or an infinity.
        notes: What the user should know of the weights of layers that the checkpoint describes, by their names.
    """

    model: nn.Module
    checkpoint: Checkpoint
    non_finite: tuple[str, ...]
    notes: Mapping[str, str] = field(default_factory=dict)


def load_network(
    path: str | Path,
    architecture: Architecture | None = None,
    *,
    ema: bool = False,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
    progress: Progress | None = None,
) -> Network:
    """Builds the architecture, or the layers that the checkpoint describes, with the checkpoint's weights.

    Args:
        path: The checkpoint, or a folder that a conversion wrote.
        architecture: How to build the network; None takes the convolutions by the geometry in the checkpoint.
        ema: Take the moving average of the weights.
        device: Where to.
        dtype: Convert floating-point weights to this precision; None keeps the architecture's.
        progress: Called with the number of bytes that were read since the last call.

    Raises:
        ArchitectureNeededError: No architecture is given, and the checkpoint describes no geometry.
        CheckpointError: The file cannot be read or does not fit.
        ArchitectureError: The network cannot be built.
        ConversionError: There is no such device here, or a dtype is asked for that complex weights do not fit.
    """
    checkpoint = open_checkpoint(path, ema=ema, progress=progress)
    model = _layers(checkpoint) if architecture is None else _with_weights(architecture, checkpoint)
    if dtype is not None and any(parameter.is_complex() for parameter in model.parameters()):
        raise ConversionError(f"the network has complex weights, whose imaginary parts {dtype} would lose")
    try:
        model = model.to(device=torch.device(device), dtype=dtype).eval()
        non_finite = tuple(non_finite_keys(model.state_dict()))  # here, since the meta device has no values
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ConversionError(f"the device {device!r} cannot be used: {str(error).splitlines()[0]}") from error
    described = checkpoint.convolutions.items() if architecture is None else ()
    return Network(model, checkpoint, non_finite, {name: stored.note for name, stored in described if stored.note})


def open_checkpoint(path: str | Path, *, ema: bool = False, progress: Progress | None = None) -> Checkpoint:
    """Reads a checkpoint of any kind; of a folder that a conversion wrote, the CNN that was converted.

    Raises:
        CheckpointError: As ``read_checkpoint``.
        NotAConvolutionError: The folder's layers are convolutions no longer.
    """
    return restored_checkpoint(path) if is_converted(Path(path)) else read_checkpoint(path, ema=ema, progress=progress)


def _layers(checkpoint: Checkpoint) -> nn.Module:
    if not checkpoint.convolutions:
        raise ArchitectureNeededError(_what_is_needed(checkpoint))
    return layer_tree(checkpoint.convolutions, checkpoint.state_dict)


def _what_is_needed(checkpoint: Checkpoint) -> str:
    found = [f"{key} {list(value.shape)}" for key, value in checkpoint.state_dict.items() if value.ndim == 4]
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    listed = ", ".join(found[:_LISTED]) + more if found else "none"
    return (
        f"{checkpoint.path} holds weights, but not the strides and paddings of its convolutions: --arch (in Python, "
        f"architecture=) must name the code that builds the network; weights with 4 dimensions: {listed}"
    )


def _with_weights(architecture: Architecture, checkpoint: Checkpoint) -> nn.Module:
    """The network with the checkpoint's weights, copied unless they are large."""
    if sum(tensor.nbytes for tensor in checkpoint.state_dict.values()) >= LARGE:
        with suppress(ArchitectureError):  # code that reads the values it draws cannot run without them
            with torch.device("meta"):
                model = architecture.build()
            load_into(model, checkpoint, assign=True)
            if not any(tensor.is_meta for tensor in model.state_dict().values()):
                return model
    model = architecture.build()
    load_into(model, checkpoint)
    return model
