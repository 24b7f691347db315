"""Verifies a user's network: each attention layer beside its convolution, and the whole beside the CNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from conv2attn.convert.attention import SelfAttention2d
from conv2attn.convert.engines import AUTO
from conv2attn.convert.errors import ArchitectureError, ConversionError
from conv2attn.convert.folder import Architecture, load_converted
from conv2attn.convert.model import convert_model, restore_model
from conv2attn.convert.network import load_network
from conv2attn.convert.spec import Size
from conv2attn.proofs.agreement import Agreement, compare
from conv2attn.proofs.campaign.arithmetic import certified_arithmetic, check_device
from conv2attn.proofs.image_folder import read_images

# "separable" shares no step with the convolution and never forms all pairs; "auto" is what a user runs.
DEFAULT_ENGINES = ("separable", AUTO)
DEFAULT_IMAGES = 8
DEFAULT_SIZE = Size(224, 224)
BATCH = 4  # images at a time


@dataclass(frozen=True)
class Pair:
    """A CNN and its attention, both in eval mode."""

    cnn: nn.Module
    attention: nn.Module

    @property
    def first(self) -> SelfAttention2d:
        """The first attention layer, whose channels a network's input mostly has."""
        return next(module for module in self.attention.modules() if isinstance(module, SelfAttention2d))


def load_pair(
    path: Path,
    architecture: Architecture | None,
    *,
    ema: bool = False,
    alpha: float | None = None,
    skip_unsupported: bool = False,
    device: str = "cpu",
    dtype: torch.dtype | None = None,
) -> Pair:
    """Both networks, from the CNN's checkpoint or from a folder that ``convert`` wrote.

    Args:
        path: The checkpoint, whose network is converted, or the folder, whose network is restored.
        architecture: How to build the CNN; a folder of an example network needs none.
        ema: Take a checkpoint's moving average of the weights.
        alpha: Locality strength of a conversion.
        skip_unsupported: Leave a checkpoint's unsupported layers as they are.
        device: Where to.
        dtype: Precision; None keeps the network's.

    Raises:
        ConversionError: The networks cannot be loaded, converted or restored.
    """
    check_device(device)
    if path.is_dir():
        attention = load_converted(path, architecture=architecture).to(torch.device(device), dtype)
        return Pair(restore_model(attention, tolerance=math.inf).eval(), attention.eval())
    if architecture is None:
        raise ArchitectureError(f"{path} holds weights only: --arch says how to build the network")
    cnn = load_network(path, architecture, ema=ema, device=device, dtype=dtype).model
    return Pair(cnn, convert_model(cnn, alpha=alpha, skip_unsupported=skip_unsupported).model.eval())


def choose_inputs(pair: Pair, *, folder: Path | None, count: int | None, size: Size | None, seed: int) -> Tensor:
    """Images [count, channels, rows, columns] from a folder, or of normal numbers, as the networks take them.

    Raises:
        CheckpointError: The folder's images cannot be read.
    """
    channels, weight = pair.first.in_channels, pair.first.weight
    if folder is not None:
        return read_images(folder, channels=channels, size=size).to(weight)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count or DEFAULT_IMAGES, channels, *(size or DEFAULT_SIZE), generator=generator).to(weight)


def verify_network(
    pair: Pair,
    images: Tensor,
    *,
    engines: Sequence[str] = DEFAULT_ENGINES,
    progress: Callable[[int], None] = lambda _: None,
) -> Agreement:
    """Runs both networks on all images, see ``compare``.

    Raises:
        ConversionError: The networks do not run on such images, or give no scores.
    """
    try:
        with certified_arithmetic(threads=None):
            return compare(pair.cnn, pair.attention, images, None, engines=engines, batch_size=BATCH, progress=progress)
    except ConversionError:
        raise
    except (RuntimeError, TypeError, AttributeError) as error:
        shape = list(images.shape[1:])
        raise ConversionError(
            f"the network does not give scores for images {shape}: {str(error).splitlines()[0]}"
        ) from error


def passes(agreement: Agreement) -> bool:
    """Whether some layer ran, and every one stayed within its bound; what is NaN does not."""
    layers = [layer for engine in agreement.engines for layer in engine.layers]
    return bool(layers) and all(layer.difference <= layer.bound for layer in layers)


def verdict(agreement: Agreement) -> str:
    """The result in a sentence or two."""
    layers = [(engine.engine, layer) for engine in agreement.engines for layer in engine.layers]
    beyond = [f"{layer.name} ({engine})" for engine, layer in layers if not layer.difference <= layer.bound]
    if not layers:
        return "No attention layer ran: nothing is verified."
    if beyond:
        return f"Beyond the bound, or not finite: {', '.join(beyond)}."
    ratio, engine, layer = max(
        ((found.difference / found.bound if found.bound else 0.0, name, found) for name, found in layers),
        key=lambda one: one[0],
    )
    count = len(layers) // len(agreement.engines)
    return (
        f"All {count} layers are within their bounds; largest difference / bound {ratio:.2g}, {layer.name} ({engine})."
    )
