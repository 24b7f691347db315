"""Convolutions that transformers and diffusers define are converted as what they compute, or refused by name.

The classes here are stand-ins under the libraries' names, with their arithmetic; the libraries' own were tried by hand
(docs/architectures.md says with which versions).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv, conv_from_attention, convert_model
from conv2attn.convert.errors import UnsupportedLayerError
from conv2attn.convert.subclasses.readers import reader_of
from tests.convert.subclasses.standardised import convolved, normalised, padded_same


def named(place: str) -> Any:
    """Gives a class the qualified name of a library's."""

    def rename(cls: type) -> type:
        cls.__module__, _, name = place.rpartition(".")
        cls.__name__ = cls.__qualname__ = name
        return cls

    return rename


class Pad(nn.Module):
    """TensorFlow's SAME, in a module that a convolution holds."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.dilation = conv.kernel_size, conv.stride, conv.dilation

    def forward(self, x: Tensor) -> Tensor:
        return padded_same(x, self)  # type: ignore[arg-type]


@named("transformers.models.bit.modeling_bit.WeightStandardizedConv2d")
class Standardized(nn.Conv2d):
    """As transformers'."""

    def __init__(self, *args: Any, dynamic: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pad, self.eps = Pad(self) if dynamic else None, 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return convolved(x if self.pad is None else self.pad(x), normalised(self, self.eps), self)


@named("transformers.models.efficientnet.modeling_efficientnet.EfficientNetDepthwiseConv2d")
class Depthwise(nn.Conv2d):
    """As transformers'."""

    def __init__(self, channels: int, multiplier: int, kernel_size: int) -> None:
        super().__init__(channels, channels * multiplier, kernel_size, groups=channels)


@named("transformers.models.gemma4.modeling_gemma4.Gemma4AudioCausalConv1d")
class Causal(nn.Conv1d):
    """As transformers'."""

    def forward(self, x: Tensor) -> Tensor:
        reach = (self.kernel_size[0] - 1) * self.dilation[0] + 1
        return super().forward(F.pad(x, (reach - self.stride[0], 0)))


@named("transformers.models.perceiver.modeling_perceiver.Conv2dSamePadding")
class SamePadding(nn.Conv2d):
    """As transformers'."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        pads = [n for k in self.kernel_size[::-1] for n in (k // 2 + (k - 2 * (k // 2)) - 1, k // 2)]
        self.zero_pad_2d = nn.ZeroPad2d(tuple(pads))  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self._conv_forward(self.zero_pad_2d(x), self.weight, self.bias)
        return y


@named("diffusers.models.autoencoders.autoencoder_kl_cogvideox.CogVideoXSafeConv3d")
class Parts(nn.Conv3d):
    """As diffusers', with parts of four planes where a film has more than 3,000 numbers."""

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() <= 3000:
            return super().forward(x)
        reach, parts = self.kernel_size[0] - 1, x.split(4, dim=2)
        joined = [torch.cat([a[:, :, a.shape[2] - reach :], b], 2) for a, b in itertools.pairwise(parts)]
        return torch.cat([super(Parts, self).forward(part) for part in (parts[0], *joined)], 2)


@named("diffusers.models.autoencoders.autoencoder_kl_cosmos.CosmosCausalConv3d")
class Cosmos(nn.Conv3d):
    """As diffusers'."""

    def __init__(self, channels: int, kernel: tuple[int, int, int], padding: int, pad_mode: str = "constant") -> None:
        super().__init__(channels, channels + 1, kernel)
        self.pad_mode, self.temporal_pad, self.spatial_pad = pad_mode, kernel[0] - 1, (padding,) * 4

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x[:, :, :1].repeat(1, 1, self.temporal_pad, 1, 1), x], dim=2)
        return super().forward(F.pad(x, (*self.spatial_pad, 0, 0), mode=self.pad_mode, value=0.0))


@named("diffusers.models.autoencoders.autoencoder_kl_minimax_h3.MiniMaxH3VideoCausalConv3d")
class MiniMax(nn.Conv3d):
    """As diffusers'."""

    def __init__(self, channels: int, kernel: int, space: int, time: int, mode: str) -> None:
        super().__init__(channels, channels + 1, kernel, stride=(1, 2, 2))
        self.spatial_padding, self.temporal_padding, self.spatial_padding_mode = space, time, mode

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (self.spatial_padding,) * 4 + (0, 0), mode=self.spatial_padding_mode)
        x = F.pad(x, (0, 0, 0, 0, self.temporal_padding, 0))
        return F.conv3d(x, self.weight, self.bias, stride=self.stride, padding=0, dilation=self.dilation)


@named("diffusers.models.lora.LoRACompatibleConv")
class WithoutLora(nn.Conv2d):
    """As diffusers'."""

    lora_layer = None

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return super().forward(x)


@named("diffusers.models.autoencoders.autoencoder_kl_wan.WanCausalConv3d")
class Wan(nn.Conv3d):
    """Takes earlier frames, so it has no reader."""


@pytest.mark.parametrize(
    "conv",
    [
        Standardized(4, 6, 3, stride=2, padding=1, groups=2, bias=False, dynamic=False),
        Standardized(4, 6, (3, 2), stride=(2, 3), dilation=(1, 2), dynamic=True),
        Depthwise(3, 2, 3),
        Causal(2, 4, 3, dilation=2, groups=2),
        SamePadding(2, 4, (4, 3), stride=2, groups=2),
        Parts(2, 3, (3, 2, 1), padding=(0, 1, 0), stride=(1, 2, 1)),
        Cosmos(2, (1, 3, 3), 1),
        MiniMax(2, 3, 0, 2, "reflect"),
        MiniMax(2, 3, 1, 2, "constant"),
        WithoutLora(2, 4, (2, 3), padding=1, padding_mode="reflect", groups=2),
    ],
    ids=lambda conv: type(conv).__name__,
)
def test_a_library_s_convolution_is_converted_and_comes_back_as_itself(conv: nn.Conv2d) -> None:
    assert reader_of(type(conv)) is not None
    if isinstance(conv, Parts):  # which adds the sums of a part in another order
        conv.weight.data.mul_(8).round_()
        nn.init.zeros_(conv.get_parameter("bias"))
    layer = attention_from_conv(conv)
    size = (9, 11, 12)[-len(conv.kernel_size) :]
    x = torch.randint(-4, 5, (2, conv.in_channels, *size)).float()
    assert torch.equal(layer(x), conv(x))
    back = conv_from_attention(layer)
    assert type(back) is type(conv)
    assert torch.equal(back(x), conv(x))


@pytest.mark.parametrize(
    ("conv", "why"),
    [
        (Parts(2, 3, 3, padding=1), "it convolves a long film in parts, which are not the whole"),
        (Cosmos(2, (3, 1, 1), 0), "it copies 2 planes and pads with 'constant', which no layer does"),
        (MiniMax(2, 3, 1, 2, "reflect"), "it pads space with 'reflect' and time with zeros"),
        (Causal(2, 3, 2, stride=3), "padding must be"),
        (Wan(2, 3, 3), "WanCausalConv3d has none"),
    ],
)
def test_what_no_layer_computes_is_refused_by_name(conv: nn.Module, why: str) -> None:
    with pytest.raises(UnsupportedLayerError) as caught:
        convert_model(nn.Sequential(conv))
    assert why in str(caught.value)
    assert type(conv).__name__ in str(caught.value)
