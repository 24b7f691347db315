"""Converts random integer convolutions to attention over patches, and counts the outputs that differ in a bit.

    python benchmarks/patch_layers.py --layers 100000 --seed 0

Weights, biases and pixels are small integers, so that every sum is exact, in every order: attention over patches must
give the convolution's very bits. Each layer is computed by the next engine in turn.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

import torch
from torch import Tensor, nn

from conv2attn.convert import attention_from_conv

ENGINES = ("auto", "literal", "separable", "factored", "sdpa")


def drawn(draw: random.Random) -> tuple[nn.Conv2d, int, Tensor]:
    """A convolution, a patch size that suits it, and an input."""
    patch = draw.choice((1, 2, 3, 4, 5, 6))
    stride = draw.choice([number for number in range(1, patch + 1) if patch % number == 0])
    groups = draw.choice((1, 1, 2))
    channels = [groups * draw.randint(1, 2) for _ in range(2)]
    taps, dilation, padding = [], [], []
    for _ in range(2):
        while True:  # floor((N + 2 p - d (K - 1) - 1) / s) + 1 = N / s
            k, d = draw.randint(1, 7), draw.choice((1, 1, 1, 2, 3))
            suited = [p for p in range(d * (k - 1) + 1) if 0 <= d * (k - 1) - 2 * p < stride]
            if suited:
                break
        taps.append(k)
        dilation.append(d)
        padding.append(draw.choice(suited))
    size = [patch * draw.randint(1, 3) for _ in range(2)]
    fits = all(p <= length for p, length in zip(padding, size, strict=True))
    mode = draw.choice(("zeros", "circular")) if fits else "zeros"
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    conv = nn.Conv2d(*channels, taps, **options, bias=draw.random() < 0.7, padding_mode=mode)
    for parameter in conv.parameters():
        parameter.data = torch.randint(-8, 9, parameter.shape).float()
    return conv, patch, torch.randint(-8, 9, (1, channels[0], *size)).float()


def main() -> None:
    """Runs the layers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    draw, start = random.Random(options.seed), time.monotonic()
    counts: Counter[str] = Counter()
    for number in range(options.layers):
        conv, patch, x = drawn(draw)
        with torch.no_grad():
            expected = conv(x)
            found = attention_from_conv(conv, patch=patch, engine=ENGINES[number % len(ENGINES)])(x)
        counts["layers"] += 1
        counts["numbers"] += expected.numel()
        counts["shapes that differ"] += int(found.shape != expected.shape)
        counts["numbers that differ"] += int((found != expected).sum()) if found.shape == expected.shape else 0
    print(*(f"{name} {count:,}" for name, count in counts.items()), f"{time.monotonic() - start:.0f} s", sep="; ")


if __name__ == "__main__":
    main()
