"""The example networks: three small architectures, which together use every option of a convolution, and their weights.

They shrink the image early, because the literal attention of a layer costs (heads x queries x keys)
multiplications per channel. Global average pooling lets each take other image sizes too.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from ..errors import CheckpointError, ConversionError
from .images import CLASSES


def plain_cnn() -> nn.Module:
    """Builds a sequence of convolutions: bias, 5x5, stride 2, dilation 2, three padding modes.

    Returns:
        A network from images [batch, 3, height, width] to class scores [batch, 8], untrained.
    """
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        *_norm_relu(16),
        nn.Conv2d(16, 16, 5, padding="same", padding_mode="circular", bias=False),
        *_norm_relu(16),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        *_norm_relu(32),
        nn.Conv2d(32, 48, 3, padding=2, dilation=2, padding_mode="reflect", bias=False),
        *_norm_relu(48),
        *_classifier(48),
    )


def residual_cnn() -> nn.Module:
    """Builds residual blocks (He et al., arXiv 1512.03385), two of them with a strided 1x1 shortcut.

    Returns:
        A network from images [batch, 3, height, width] to class scores [batch, 8], untrained.
    """
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
        *_norm_relu(16),
        ResidualBlock(16, 16),
        ResidualBlock(16, 32, stride=2),
        ResidualBlock(32, 48, stride=2),
        *_classifier(48),
    )


def mobile_cnn() -> nn.Module:
    """Builds inverted residuals (Sandler et al., arXiv 1801.04381) around a grouped convolution.

    Returns:
        A network from images [batch, 3, height, width] to class scores [batch, 8], untrained.
    """
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False),
        *_norm_relu(16),
        InvertedResidual(16, 16, hidden=64),
        InvertedResidual(16, 32, hidden=64, stride=2),
        nn.Conv2d(32, 32, 3, padding=1, groups=4, bias=False),
        *_norm_relu(32),
        InvertedResidual(32, 32, hidden=96),
        nn.Conv2d(32, 64, 1, bias=False),
        *_norm_relu(64),
        *_classifier(64),
    )


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "plain": plain_cnn,
    "residual": residual_cnn,
    "mobile": mobile_cnn,
}
"""The example networks by name: each value builds one, untrained."""


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is a strided 1x1 convolution where the shape changes.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        stride: Stride of the first convolution and of the shortcut.
    """

    def __init__(self, in_channels: int, out_channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
            *_norm_relu(out_channels),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [batch, in_channels, height, width] to [batch, out_channels, ceil(height / stride), ...]."""
        return torch.relu(self.body(x) + self.shortcut(x))


class InvertedResidual(nn.Module):
    """Widens by a 1x1 convolution, filters each channel by itself, narrows again; skips where it can.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        hidden: Channels of the depthwise convolution.
        stride: Stride of the depthwise convolution.
    """

    def __init__(self, in_channels: int, out_channels: int, *, hidden: int, stride: int = 1) -> None:
        super().__init__()
        self.skips = stride == 1 and in_channels == out_channels
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, hidden, 1, bias=False),
            *_norm_relu(hidden),
            nn.Conv2d(hidden, hidden, 3, stride=stride, padding=1, groups=hidden, bias=False),
            *_norm_relu(hidden),
            nn.Conv2d(hidden, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [batch, in_channels, height, width] to [batch, out_channels, ceil(height / stride), ...]."""
        y: torch.Tensor = self.body(x)
        return x + y if self.skips else y


def _norm_relu(channels: int) -> tuple[nn.Module, nn.Module]:
    """Normalisation and rectifier after a convolution."""
    return nn.BatchNorm2d(channels), nn.ReLU()


def _classifier(channels: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Maps features [batch, channels, height, width] of any size to class scores [batch, 8]."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, len(CLASSES))


def load_example(name: str, *, folder: Path | Traversable | None = None) -> nn.Module:
    """Builds an example network and gives it its trained weights.

    Args:
        name: One of `NETWORKS`.
        folder: Where ``<name>.safetensors`` lies; None means those shipped.

    Returns:
        The network in eval mode, from images [batch, 3, height, width] to class scores [batch, 8].

    Raises:
        ConversionError: There is no such network.
        CheckpointError: The file cannot be read, or does not fit the network.
    """
    if name not in NETWORKS:
        raise ConversionError(f"there is no example network {name!r}; there are {', '.join(NETWORKS)}")
    source = files("conv2attn.convert.examples") / "weights" if folder is None else folder
    network = NETWORKS[name]()
    try:
        network.load_state_dict(load((source / f"{name}.safetensors").read_bytes()), strict=True)
    except OSError as error:
        raise CheckpointError(f"cannot read {name}.safetensors in {source}: {error.strerror}") from error
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{name}.safetensors in {source} does not fit the network: {reason}") from error
    return network.eval()


@torch.no_grad()
def accuracy(network: nn.Module, images: torch.Tensor, labels: torch.Tensor, *, batch_size: int = 250) -> float:
    """Counts how often the highest score is the right class.

    Args:
        network: From images to class scores [batch, classes]; its train or eval mode is left alone.
        images: [count, channels, height, width].
        labels: [count], class indices.
        batch_size: Number of images in a batch.

    Returns:
        The share of images that are classified correctly, 0 to 1.
    """
    batches = zip(torch.split(images, batch_size), torch.split(labels, batch_size), strict=True)
    right = sum(int((network(batch).argmax(1) == truth).sum()) for batch, truth in batches)
    return right / len(labels)
