"""A spectrogram whose borders are filled with zeros."""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from blocks import Block, FeedForward, FusedAttention
from editing import edited, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/vllm-project/vllm-metal/pull/729",
    kind="ports",
    question="Whisper hears music where its reference hears speech: what is wrong with its input?",
    truth=Bug("spectrogram: sound is padded with zeros, for reflection", r"mel|pad", ("reflect|pad",)),
    said="Merged: filters, borders, the last frame and the silence behind the sound were all other than Whisper's.",
    read="excerpt; one of the four differences is rebuilt",
)
WINDOW, HOP, MELS = 80, 32, 20


class Mel(nn.Module):
    """Logarithms of the energies in overlapping bands."""

    def __init__(self) -> None:
        super().__init__()
        time, bands = torch.arange(WINDOW), torch.arange(WINDOW // 2 + 1)
        angles = 2 * math.pi / WINDOW * bands[:, None] * time
        waves = torch.hann_window(WINDOW) * torch.cat((angles.cos(), angles.sin()))
        edges = (WINDOW / 2) ** (torch.arange(MELS + 2) / (MELS + 1))
        rising = (bands - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
        falling = (edges[2:, None] - bands) / (edges[2:] - edges[1:-1])[:, None]
        self.register_buffer("waves", waves[:, None])
        self.register_buffer("filters", torch.minimum(rising, falling).clamp(min=0) + 1e-3)
        self.mode = "reflect"

    def forward(self, sound: Tensor) -> Tensor:
        """[batch, MELS, frames]."""
        half = WINDOW // 2
        real, imaginary = F.conv1d(F.pad(sound[:, None], (half, half), self.mode), self.waves, stride=HOP).chunk(2, 1)
        return (self.filters @ (real.square() + imaginary.square())).clamp(min=1e-10).log10()


class Encoder(nn.Module):
    """Two convolutions and two blocks behind the spectrogram."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.mel, self.conv1 = Mel(), nn.Conv1d(MELS, width, 3, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, 2, 1)
        make = (
            Block(width, nn.LayerNorm, FusedAttention(width, 4), FeedForward(width, 4 * width, nn.GELU()))
            for _ in range(2)
        )
        self.blocks, self.norm = nn.Sequential(*make), nn.LayerNorm(width)

    def forward(self, sound: Tensor) -> Tensor:
        """[batch, frames / 2, width]."""
        x = F.gelu(self.conv2(F.gelu(self.conv1(self.mel(sound)))))
        found: Tensor = self.norm(self.blocks(x.transpose(1, 2)))
        return found


def build(folder: Path) -> Sides:
    """Tones in noise."""
    time = torch.arange(1600.0)
    sound = torch.stack([torch.sin(0.2 * time), torch.sin(0.05 * time)]) + 0.1 * torch.randn(2, 1600)
    network = settled(Encoder())
    return Sides(network, edited(network, Mel, mode="constant"), (sound,))
