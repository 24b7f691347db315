"""Time and memory of ``same`` on ResNet-50 at 224, two images: an honest change, and a fault that is named.

    python benchmarks/same_costs.py

Needs torchvision. Prints a table; peak memory is above that of the network and one forward in float32.
"""

from __future__ import annotations

import copy
import os
import resource
import time
from collections.abc import Callable

import torch
import typer
from torch import Tensor, nn

from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.sameness.same import same


def peak() -> float:
    """The largest resident memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def activations(network: nn.Module, image: Tensor) -> float:
    """The outputs of all innermost modules in float64, MiB."""
    sizes = list[int]()
    leaves = [module for module in network.modules() if not list(module.children())]
    handles = [leaf.register_forward_hook(lambda *given: sizes.append(given[-1].numel())) for leaf in leaves]
    with torch.no_grad():
        network(image)
    for handle in handles:
        handle.remove()
    return sum(sizes) * 8 / 2**20


def channels_last(network: nn.Module) -> nn.Module:
    """The same numbers, which lie otherwise in memory."""
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def wrong_eps(network: nn.Module) -> nn.Module:
    """Another eps in one batch norm."""
    norm = network.get_submodule("layer3.2.bn2")
    assert isinstance(norm, nn.BatchNorm2d)
    norm.eps = 1e-3
    return network


def main() -> None:
    """Prints the costs."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network, image = Architecture("torchvision.models:resnet50").build().eval(), torch.randn(2, 3, 224, 224)
    held = activations(network, image)
    before = peak()
    changes: dict[str, Callable[[nn.Module], nn.Module]] = {"channels last": channels_last, "eps 1e-3": wrong_eps}
    print(f"Activations in float64: {held:.0f} MiB; load {os.getloadavg()[0]:.1f}")
    print("| pair | verdict | seconds of processor | peak MiB | beside activations |\n| --- | --- | --- | --- | --- |")
    for name, change in changes.items():
        start = time.process_time()
        found = same(network, change(copy.deepcopy(network)), image)
        seconds, memory = time.process_time() - start, peak() - before
        print(f"| {name} | {found.verdict} | {seconds:.0f} | {memory:.0f} | {memory / held:.1f} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
