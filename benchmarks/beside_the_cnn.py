"""Times converted networks beside their CNN, interleaved in one run, with a copy of the CNN as control.

    python benchmarks/beside_the_cnn.py [--rounds 15] [--side 224] [--threads 2] [--networks resnet18,resnet50]

For each network, memory format and compiler it prints the median time of the control, the exact and the soft attention,
forward without gradients and forward plus backward, each divided by the CNN's. It needs torchvision.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torchvision import models

from conv2attn.convert import convert_model

NETWORKS = ("resnet18", "resnet50", "mobilenet_v2")
SOFT_ALPHA = 2.0


def medians(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median time of each call, taken in turn, beginning with another one in each round."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for turn in range(rounds):
        for number in range(len(calls)):
            chosen = (number + turn) % len(calls)
            start = time.perf_counter()
            calls[chosen]()
            times[chosen].append(time.perf_counter() - start)
    return list(map(statistics.median, times))


def forward(model: nn.Module, x: Tensor) -> Callable[[], object]:
    """A forward call without gradients."""

    def call() -> object:
        with torch.no_grad():
            return model(x)

    return call


def step(model: nn.Module, x: Tensor) -> Callable[[], object]:
    """A forward and a backward call."""

    def call() -> object:
        model.zero_grad()
        model(x).square().mean().backward()
        return None

    return call


def main() -> None:
    """Measures and prints every ratio."""
    parser = argparse.ArgumentParser()
    for name, usual in (("rounds", 15), ("side", 224), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"CPU capability {torch.backends.cpu.get_cpu_capability()}, {options.threads} threads")
    for name in options.networks.split(","):
        cnn = getattr(models, name)(weights=None).eval()
        built = [cnn, copy.deepcopy(cnn), convert_model(cnn).model, convert_model(cnn, alpha=SOFT_ALPHA).model]
        for layout in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(4, 3, options.side, options.side).to(memory_format=layout)
            laid = [model.to(memory_format=layout) for model in built]
            for compiled in (False, True):
                torch._dynamo.reset()
                ready: list[nn.Module] = [torch.compile(model) for model in laid] if compiled else laid  # type: ignore
                for phase in (forward, step):
                    times = medians([phase(model, x) for model in ready], options.rounds)
                    ratios = "  ".join(f"{value / times[0]:.3f}" for value in times[1:])
                    mode = "compiled" if compiled else "eager"
                    load = os.getloadavg()[0]
                    where = f"{name:14} {str(layout)[6:]:18} {mode:9} {phase.__name__:8}"
                    print(f"{where} control, exact, soft: {ratios}  load {load:.1f}", flush=True)


if __name__ == "__main__":
    main()
