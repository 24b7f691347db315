"""Proofs about networks on one image: the error of a run, and the bound of every run of a class.

    pip install torchvision
    python benchmarks/certified_networks.py [--networks resnet18,unet] [--hypothesis "any order"] [--threads 2]

Weights are random, and batch normalisation has the statistics of random images. Each line has the proved error of the
run, the part of it that float64 leaves, estimate and bound of the largest output in the class, that output, and the
seconds that all of them take together.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torchvision import models

from conv2attn.convert import certify_images

SEED = 0


class UNet(nn.Module):
    """A U-Net of 18 convolutions, with batch normalisation; its score of a class is the mean over pixels."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64, 128)) -> None:
        super().__init__()
        self.down = nn.ModuleList(map(self._block, (3, *widths[:-1]), widths))
        reversed_widths = widths[::-1]
        self.narrow = nn.ModuleList(nn.Conv2d(wide, narrow, 1) for wide, narrow in pairwise(reversed_widths))
        self.up = nn.ModuleList(self._block(2 * width, width) for width in reversed_widths[1:])
        self.head = nn.Conv2d(widths[0], 12, 1)

    @staticmethod
    def _block(channels: int, width: int) -> nn.Module:
        parts: list[nn.Module] = []
        for read in (channels, width):
            parts += [nn.Conv2d(read, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        return nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [batch, 12] of images [batch, 3, rows, columns]."""
        kept: list[Tensor] = []
        for down in self.down:
            x = down(nn.functional.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for narrow, up, beside in zip(self.narrow, self.up, kept[-2::-1], strict=True):
            x = up(torch.cat((beside, nn.functional.interpolate(narrow(x), scale_factor=2)), 1))
        scores: Tensor = self.head(x).mean((2, 3))
        return scores


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet18": (models.resnet18, 224),
    "mobilenet_v2": (models.mobilenet_v2, 128),
    "convnext_tiny": (models.convnext_tiny, 128),
    "unet": (UNet, 128),
    "resnet50": (models.resnet50, 128),
}


def calibrated(network: nn.Module, side: int) -> nn.Module:
    """The network in eval mode; its batch normalisation has the mean statistics of three batches."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        for _ in range(3):
            network.train()(torch.randn(8, 3, side, side))
    return network.eval()


def main() -> None:
    """Prints a line for each network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--hypothesis", default="once")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("| network, size | error | of float64 | estimate | bound | largest output | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.networks.split(","):
        torch.manual_seed(SEED)
        build, side = NETWORKS[name]
        network = calibrated(build(), side)
        image, start = torch.randn(1, 3, side, side), time.perf_counter()
        (one,) = certify_images(network, image, hypothesis=options.hypothesis, seed=SEED).images
        opens = "" if one.opens is None else f"none: {one.opens.layer}, {one.opens.reason}"
        figures = [one.error, one.reference, one.estimate, one.bound, one.outputs]
        cells = [opens if figure is None else f"{figure:.2g}" for figure in figures]
        print(f"| {name}, {side} | {' | '.join(cells)} | {time.perf_counter() - start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
