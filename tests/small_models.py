"""The structures that people try first, each as the smallest network that has them.

All map images [batch, 3, rows, columns] to scores with the classes in dimension 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import SelfAttention, SelfAttention2d

CLASSES = 5
Model = TypeVar("Model", bound=nn.Module)


def conv_norm(in_channels: int, out_channels: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out_channels))


def classifier(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class Bottleneck(nn.Module):
    """ResNet (arXiv 1512.03385), and with groups ResNeXt (arXiv 1611.05431): a strided shortcut beside it.

    With fewer than 16 input channels torch gets the shortcut's gradient wrong on AVX2.
    """

    def __init__(self, in_channels: int, out_channels: int, *, stride: int, groups: int = 1) -> None:
        super().__init__()
        self.reduce = conv_norm(in_channels, 8, 1)
        self.spatial = conv_norm(8, 8, 3, stride=stride, groups=groups)
        self.expand = conv_norm(8, out_channels, 1)
        self.shortcut = conv_norm(in_channels, out_channels, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, in_channels, rows, columns] to [batch, out_channels, ...], strided."""
        y = self.expand(F.relu(self.spatial(F.relu(self.reduce(x)))))
        return F.relu(y + self.shortcut(x))


class InvertedResidual(nn.Module):
    """MobileNetV2 (arXiv 1801.04381): widen, filter each channel by itself, narrow."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm(channels, hidden, 1),
            nn.ReLU6(),
            conv_norm(hidden, hidden, 3, groups=hidden),
            nn.ReLU6(),
            conv_norm(hidden, channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, rows, columns] to the same shape."""
        y: Tensor = x + self.body(x)
        return y


class ConvNeXtBlock(nn.Module):
    """ConvNeXt (arXiv 2201.03545): 7x7 depthwise, LayerNorm over channels last, GELU, layer scale."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.widen, self.narrow = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, rows, columns] to the same shape."""
        features = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y: Tensor = self.scale * self.narrow(F.gelu(self.widen(features)))
        return x + y.permute(0, 3, 1, 2)


class SqueezeExcite(nn.Module):
    """EfficientNet (arXiv 1905.11946): 1x1 convolutions on an image of one pixel weigh the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.expand = nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, rows, columns] to the same shape."""
        return x * torch.sigmoid(self.expand(F.silu(self.reduce(self.pool(x)))))


class DenseLayer(nn.Module):
    """DenseNet (arXiv 1608.06993): what it computes is appended to its input's channels."""

    def __init__(self, in_channels: int, growth: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(in_channels), nn.Conv2d(in_channels, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, in_channels, rows, columns] to [batch, in_channels + growth, rows, columns]."""
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], dim=1)


class ShuffleUnit(nn.Module):
    """ShuffleNet (arXiv 1707.01083): grouped 1x1 convolutions, with channels shuffled between them."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.first = conv_norm(channels, channels, 1, groups=groups)
        self.shuffle = nn.ChannelShuffle(groups)
        self.depthwise = conv_norm(channels, channels, 3, groups=channels)
        self.second = conv_norm(channels, channels, 1, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, rows, columns] to the same shape."""
        y = self.second(self.depthwise(self.shuffle(F.relu(self.first(x)))))
        return F.relu(x + y)


class DilatedHead(nn.Module):
    """DeepLab (arXiv 1706.05587): parallel dilations, and a bilinear way back to the image's size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv_norm(3, 6, 3, stride=2)
        self.branches = nn.ModuleList(nn.Conv2d(6, 4, 3, padding=rate, dilation=rate) for rate in (1, 2, 3))
        self.head = nn.Conv2d(12, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps images [batch, 3, rows, columns] to scores [batch, classes, rows, columns]."""
        features = F.relu(self.stem(x))
        scores = self.head(torch.cat([branch(features) for branch in self.branches], dim=1))
        return F.interpolate(scores, size=x.shape[2:], mode="bilinear", align_corners=False)


class UNet(nn.Module):
    """U-Net (arXiv 1505.04597) with a skip connection, and nearest-neighbour upsampling before a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleDict({"fine": conv_norm(3, 4, 3), "coarse": conv_norm(4, 8, 3)})
        self.pool, self.up = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)
        self.merge = nn.Conv2d(12, CLASSES, (3, 1), padding=(1, 0), padding_mode="replicate")

    def forward(self, x: Tensor) -> Tensor:
        """Maps images [batch, 3, rows, columns] to scores [batch, classes, rows, columns]; both sizes even."""
        fine = F.relu(self.down["fine"](x))
        coarse = F.relu(self.down["coarse"](self.pool(fine)))
        scores: Tensor = self.merge(torch.cat([fine, self.up(coarse)], dim=1))
        return scores


def resnet(stem: int) -> nn.Sequential:
    """A small ResNet with so many channels in front."""
    return nn.Sequential(
        nn.Conv2d(3, stem, 7, 2, 3, bias=False),
        nn.MaxPool2d(3, 2, 1),
        Bottleneck(stem, 10, stride=2),
        Bottleneck(10, 10, stride=1),
        classifier(10),
    )


SMALL_MODELS: dict[str, Callable[[], nn.Module]] = {
    "ResNet": lambda: resnet(16),
    "ResNeXt": lambda: nn.Sequential(conv_norm(3, 16, 3), Bottleneck(16, 10, stride=2, groups=4), classifier(10)),
    "MobileNetV2": lambda: nn.Sequential(conv_norm(3, 4, 3, stride=2), InvertedResidual(4, 12), classifier(4)),
    "ConvNeXt": lambda: nn.Sequential(nn.Conv2d(3, 6, 2, stride=2), ConvNeXtBlock(6), classifier(6)),
    "EfficientNet": lambda: nn.Sequential(conv_norm(3, 6, 3, stride=2), nn.SiLU(), SqueezeExcite(6), classifier(6)),
    "DenseNet": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), DenseLayer(4, 3), DenseLayer(7, 3), classifier(10)),
    "ShuffleNet": lambda: nn.Sequential(conv_norm(3, 6, 3, stride=2), ShuffleUnit(6, 3), classifier(6)),
    "DeepLab": DilatedHead,
    "U-Net": UNet,
}
"""The networks by the name of the architecture they are taken from."""


class Net(nn.Module):
    """A strided and a grouped convolution, of which one is used twice, normalisations, and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.mix = nn.Conv2d(8, 8, (3, 2), padding="same", groups=2)
        self.again = self.mix
        self.norm = nn.BatchNorm2d(8)
        self.point = nn.Conv2d(8, 4, 1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm(self.mix(self.stem(x))))
        return self.head(self.point(torch.relu(self.again(y))).mean((2, 3)))  # type: ignore[no-any-return]


class Composite(nn.Module):
    """The ways to hold a convolution: in lists, dictionaries, sequences; shared, tied; read outside its forward."""

    def __init__(self) -> None:
        super().__init__()
        shared = nn.Conv2d(4, 4, (3, 2), padding="same", groups=2)
        self.stem = nn.Conv2d(2, 4, (2, 3), stride=(1, 2), padding=(1, 0))
        self.blocks = nn.ModuleList([shared, nn.BatchNorm2d(4), shared])
        self.named = nn.ModuleDict({"a-b": nn.Sequential(nn.Sequential(nn.Conv2d(4, 4, 1)), nn.ReLU())})
        self.tied = nn.Conv2d(4, 4, (3, 2), padding="same", groups=2, bias=False)
        self.tied.weight = shared.weight
        self.head = nn.Linear(self.stem.out_channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 2, rows, columns] to [batch, 3]."""
        x = self.stem(x) * self.stem.kernel_size[1] + self.stem.weight.mean()
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.tied(self.named["a-b"](x)).mean((2, 3)))
        return scores


def composite_input(dtype: torch.dtype = torch.float32) -> Tensor:
    """A batch of images for ``Composite``: [3, 2, 7, 10]."""
    return torch.randn(3, 2, 7, 10, dtype=dtype)


def attention(model: nn.Module, name: str = "") -> SelfAttention2d:
    """The layer of that name."""
    layer = model.get_submodule(name)
    assert isinstance(layer, SelfAttention2d)
    return layer


def assert_same_state(model: nn.Module, expected: nn.Module) -> None:
    """State dicts have the same keys in the same order, dtypes and bits."""
    state, expected_state = model.state_dict(), expected.state_dict()
    assert list(state) == list(expected_state)
    for key, value in expected_state.items():
        assert state[key].dtype == value.dtype
        assert torch.equal(state[key], value), key


def with_trained_heads(model: Model) -> Model:
    """The model, with spare heads that are not at 0."""
    for layer in model.modules():
        if isinstance(layer, SelfAttention):
            for parameter in layer.spare_parameters():
                nn.init.normal_(parameter)
    return model
