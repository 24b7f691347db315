"""Trains the example networks, and writes the files that ``load_example`` reads.

    python benchmarks/train_examples.py --out convert/examples/weights   # made the shipped weights

The same command on the same machine gives the same bytes; another processor may round differently.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import nn

from conv2attn.convert.examples.images import HELD_OUT_SEED, draw_images
from conv2attn.convert.examples.networks import NETWORKS, accuracy

NUM_THREADS = 2  # the order of sums, and so the weights' last digits, depends on it
NUM_HELD_OUT = 1000


def train(
    name: str, *, epochs: int = 30, images_per_epoch: int = 2048, batch_size: int = 64, seed: int = 0
) -> nn.Module:
    """Trains one network with Adam and a cosine schedule; every epoch draws new images.

    Args:
        name: One of ``NETWORKS``.
        epochs: Number of epochs; epoch e draws its images from seed e, never from ``HELD_OUT_SEED``.
        images_per_epoch: Number of images drawn per epoch.
        batch_size: Images per step.
        seed: Seed of the initial weights. The caller's random state is left alone.

    Returns:
        The trained network in eval mode.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = NETWORKS[name]()
    steps = epochs * -(-images_per_epoch // batch_size)
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    for epoch in range(epochs):
        images, labels = draw_images(images_per_epoch, seed=epoch)
        for batch, truth in zip(torch.split(images, batch_size), torch.split(labels, batch_size), strict=True):
            optimizer.zero_grad()
            torch.autograd.backward(F.cross_entropy(network(batch), truth))
            optimizer.step()
            schedule.step()
    return network.eval()


def write_network(network: nn.Module, name: str, *, folder: Path) -> None:
    """Writes ``<name>.safetensors`` into a folder, which is made, over a file of this name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.safetensors").write_bytes(save(network.state_dict()))


def main() -> None:
    """Trains the networks that the command line names, prints their accuracies, writes them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/examples"), help="folder (default: %(default)s)")
    parser.add_argument("--network", choices=list(NETWORKS), help="train this one only (default: all)")
    options = parser.parse_args()
    torch.set_num_threads(NUM_THREADS)
    torch.use_deterministic_algorithms(True)
    images, labels = draw_images(NUM_HELD_OUT, seed=HELD_OUT_SEED)
    for name in [options.network] if options.network else NETWORKS:
        network = train(name)
        write_network(network, name, folder=options.out)
        print(f"{name}: {accuracy(network, images, labels):.1%} of {NUM_HELD_OUT} held-out images", flush=True)


if __name__ == "__main__":
    main()
