"""Denoising CNNs, another way of letting a trained one see more, and batches that are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from conv2attn.learn.data.images import Loaders, Pairs
from conv2attn.learn.training.recipe import evaluate

TOKEN = 4  # pixels of a token's side, after two strides
LOOKS = "trunk.9"  # the last layer that sees several tokens
_PEAK = 2.0  # from black to white
_BATCH = 100

Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]
"""Draws so many inputs, and their targets."""


class PageDenoiser(nn.Module):
    """Five convolutions; a token sees 17 x 17 pixels around its corner."""

    def __init__(self) -> None:
        super().__init__()
        alone = [nn.Conv2d(48, 48, 1, bias=False), nn.BatchNorm2d(48), nn.ReLU()]
        self.trunk = nn.Sequential(
            *_seeing(1, 16), *_seeing(16, 32, stride=2), *_seeing(32, 48, stride=2), *_seeing(48, 48), *alone
        )
        self.out = nn.Conv2d(48, TOKEN**2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Cleans pages [batch, 1, rows, columns], whose sides are multiples of 4."""
        return F.pixel_shuffle(self.out(self.trunk(x)), TOKEN)


class PhotographDenoiser(nn.Module):
    """A residual denoiser (DnCNN, arXiv 1608.03981) with one way through tokens and one past them.

    Pixels are seen by 3x3 convolutions; tokens, after two strides, by more; what came of them is added to the pixels'
    features. A token sees 27 x 27 pixels around its corner. The output is the input minus the noise that was found.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_seeing(1, 16))
        self.trunk = nn.Sequential(
            *_seeing(16, 32, stride=2), *_seeing(32, 64, stride=2), *_seeing(64, 64), *_seeing(64, 64)
        )
        self.up = nn.Conv2d(64, 16 * TOKEN**2, 1)
        self.out = nn.Sequential(*_seeing(16, 16), nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Cleans crops [batch, 1, rows, columns], whose sides are multiples of 4."""
        pixels = self.stem(x)
        noise: Tensor = self.out(pixels + F.pixel_shuffle(self.up(self.trunk(pixels)), TOKEN))
        return x - noise


def _seeing(before: int, width: int, *, stride: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(width), nn.ReLU()]


def with_larger_kernel(cnn: nn.Module) -> nn.Module:
    """Gives a trained denoiser a 9x9 kernel in its last layer that sees several tokens, zeros around the trained."""
    small = cnn.get_parameter(f"{LOOKS}.weight").detach()
    large = nn.Conv2d(small.shape[1], len(small), 9, padding=4, bias=False)
    large.weight = nn.Parameter(F.pad(small, ((9 - small.shape[2]) // 2,) * 4))
    cnn.set_submodule(LOOKS, large)
    return cnn


def noised(clean: Tensor, levels: Tensor | float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images with normal noise of a standard deviation in grey levels of 255, and without."""
    return clean + levels / 127.5 * torch.randn(clean.shape, generator=generator), clean


def psnr(network: nn.Module, pairs: tuple[Tensor, Tensor]) -> float:
    """Peak signal-to-noise ratio of cleaned images, in dB, by the mean square over all pairs (noisy, clean)."""
    batches = list(zip(*(part.split(_BATCH) for part in pairs), strict=True))
    return 10 * math.log10(_PEAK**2 / evaluate(network, batches, F.mse_loss)["loss"])


@dataclass(frozen=True)
class DrawnData:
    """Data to train networks with: ``steps`` new batches in each epoch, and always the same ones to choose with.

    A batch is drawn from its number, so that a killed run continues with those it would have had.
    """

    name: str
    draw: Draw
    validation: Callable[[], Pairs]
    steps: int
    batch: int

    def __call__(self, seed: int) -> Loaders:
        """The data of a seed; other seeds have other batches."""
        loader = DataLoader(_Batches(self.draw, self.batch), sampler=_Numbers(seed, self.steps), batch_size=None)
        return Loaders(f"{self.name}, seed {seed}", loader, self.validation())


class _Batches(Dataset[tuple[Tensor, Tensor]]):
    """A batch for each number."""

    def __init__(self, draw: Draw, size: int) -> None:
        self._draw, self._size = draw, size

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self._draw(self._size, torch.Generator().manual_seed(number))


class _Numbers(Sampler[int]):
    """The numbers of an epoch's batches, which no other epoch or seed has."""

    def __init__(self, seed: int, steps: int) -> None:
        self._seed, self._steps, self._epoch = seed, steps, 0

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch; Lightning calls it."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[int]:
        first = (self._seed + 1) * 10**6 + self._epoch * self._steps
        return iter(range(first, first + self._steps))
