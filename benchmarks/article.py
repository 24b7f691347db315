"""The data of the article: a photograph, stamps, and a denoiser before and after a spare head was trained in it.

    python benchmarks/article.py build/article    # ten minutes on one core

writes data.safetensors of the article. A small denoising CNN of pages of stamps (``stamps.py``) is trained; then it
goes on for 1,000 steps, as it is and with one spare head in front of its last 3x3 layer. Rates are those of two tried,
2e-2 and 4e-2, that were better on validation pages. Networks are stored with batch norms folded into the convolutions,
rounded to float16: these weights, not the unrounded ones, are what the page runs and what is tested.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import stamps
import torch
import torch.nn.functional as F
from denoisers import TOKEN, DrawnData, _seeing
from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn import graft, parameter_groups
from conv2attn.learn.data.datasets import digits
from conv2attn.learn.training.fit import fit, last_epoch
from conv2attn.learn.training.recipe import Recipe

OUT = Path(__file__).parents[1] / "show" / "article" / "static" / "data.safetensors"
LOOKS = "trunk.9"
WIDTH = 16  # of the spare head
RATE = 4e-2
PHOTOGRAPH = (
    70,
    10,
    270,
    40,
)  # of scikit-image's cat: left, top and side of the square that is cut out, and pixels to scale it to
STAMPS = 120
_SPARE = ("query", "query_bias", "key", "value", "out")


class SmallDenoiser(nn.Module):
    """Five convolutions; a page [batch, 1, 36, 48] is 9 x 12 tokens of 32 channels in front of ``LOOKS``."""

    def __init__(self) -> None:
        super().__init__()
        alone = [nn.Conv2d(32, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
        seen = [*_seeing(1, 12), *_seeing(12, 20, stride=2), *_seeing(20, 32, stride=2), *_seeing(32, 32)]
        self.trunk = nn.Sequential(*seen, *alone)
        self.out = nn.Conv2d(32, TOKEN**2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Cleans pages [batch, 1, rows, columns], whose sides are multiples of 4."""
        return F.pixel_shuffle(self.out(self.trunk(x)), TOKEN)


def with_head(network: nn.Module) -> nn.Module:
    """The network with a spare head in front of its last 3x3 layer, W_out = 0."""
    return graft(network, where=LOOKS, heads=1, key_dim=WIDTH, value_dim=WIDTH).model


def trained(folder: Path) -> dict[str, nn.Module]:
    """The denoiser with an untrained head, and after more training with a head and without one."""

    def data(seed: int) -> DrawnData:
        return DrawnData("stamps", stamps.training_pages, lambda: [stamps.validation_pages()], steps=100, batch=32)(
            seed
        )

    torch.manual_seed(0)
    fit(SmallDenoiser(), data(0), Recipe(epochs=8, lr=5e-3, clip=1.0), folder / "start", loss=F.mse_loss)
    start = last_epoch(folder / "start", SmallDenoiser())
    onward = Recipe(epochs=10, lr=RATE, clip=1.0)
    groups = partial(parameter_groups, lr=RATE, weight_decay=onward.weight_decay)
    found = {"start": with_head(start)}
    for name, network in (("alone", start), ("grafted", found["start"])):
        result = fit(network, data(1000), onward, folder / name, loss=F.mse_loss, groups=groups)
        found[name] = result.network
    return found


def folded(network: nn.Module) -> dict[str, Tensor]:
    """The weights of a denoiser with its batch norms folded into its convolutions, and its spare head's, in float16."""
    state = {key: value.double() for key, value in network.state_dict().items()}
    found = {}
    for number, place in enumerate(range(0, 15, 3)):
        norm = f"trunk.{place + 1}"
        scale = state[f"{norm}.weight"] / (state[f"{norm}.running_var"] + nn.BatchNorm2d(1).eps).sqrt()
        found[f"{number}.weight"] = state[f"trunk.{place}.weight"] * scale.view(-1, 1, 1, 1)
        found[f"{number}.bias"] = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * scale
    found |= {f"5.{name}": state[f"out.{name}"] for name in ("weight", "bias")}
    found |= {name: state[f"{LOOKS}.spare_{name}"] for name in _SPARE if f"{LOOKS}.spare_{name}" in state}
    return {name: value.half() for name, value in found.items()}


def photograph() -> Tensor:
    """The cat's face, [rows, columns, 3] of bytes."""
    from PIL import Image
    from skimage import data

    left, top, side, pixels = PHOTOGRAPH
    cut = Image.fromarray(data.chelsea()).crop((left, top, left + side, top + side))
    return torch.from_numpy(np.array(cut.resize((pixels, pixels), Image.Resampling.LANCZOS)))


def main() -> None:
    """Trains the networks in the folder that is the only argument, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="new folder of the runs")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    networks = trained(folder)
    for name, network in networks.items():
        print(name, stamps.score_pages(network))
    unseen = digits().test.pictures()[:STAMPS, 0]  # 16 steps of grey: bytes of them
    tensors = {"cat": photograph(), "stamps": unseen.add(1).mul(8).round().to(torch.uint8)}
    tensors |= {f"{name}.{key}": value for name, network in networks.items() for key, value in folded(network).items()}
    save_file({name: tensors[name].contiguous() for name in sorted(tensors)}, OUT)


if __name__ == "__main__":
    main()
