"""Sizes and training recipes of an experiment's networks: a small default, and the paper's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import nn

from ...convert.errors import OptionError
from ..data.images import ImageData
from ..heads.positions import Positions
from ..kinds import BLOCKS
from ..networks import PAPER, WIDTH, AttentionNetwork, AttentionSizes, ImageKind, resnet
from ..training.recipe import Groups, Recipe, plain_groups

_MOST = 4096  # blocks, heads of each, or pixels of padding


@dataclass(frozen=True)
class Setting:
    """Common setting of an experiment's runs.

    Attributes:
        sizes: Of the networks of attention; each run has its own encoding.
        width: Channels of the first stage of residual networks.
        recipe: Training recipe of all networks; each run has its own seed.
        faster: How many times as fast scores of positions learn as all else.
        rates: Learning rates of networks that do not have the recipe's, by name.
    """

    sizes: AttentionSizes
    width: int
    recipe: Recipe
    faster: float = 1.0
    rates: Mapping[str, float] = field(default_factory=dict)

    def of(self, encoding: str) -> Setting:
        """The setting of one network, with its learning rate as the recipe's."""
        return replace(self, recipe=replace(self.recipe, lr=self.rates.get(encoding, self.recipe.lr)))


SMALL = Setting(
    AttentionSizes(hidden=64, feed_forward=128, spread=1.0, key_dim=16, sharpness=3.0),
    16,
    Recipe(epochs=60, batch_size=32, lr=2e-3, weight_decay=0.01, clip=1.0),
    faster=5.0,
    rates={"learned+content": 1e-3, "absolute": 1e-3},
)
"""For images of a few pixels, on a CPU: about as many parameters in a network of attention as in ResNet10.

Rates and sharpness are those of four that were tried for each network (docs/learning.md).
"""

MEDIUM = replace(
    SMALL,
    sizes=replace(SMALL.sizes, hidden=32, feed_forward=64),
    recipe=replace(SMALL.recipe, epochs=10, batch_size=16),
)
"""For images of 16 x 16 tokens, on a CPU: narrower, and with fewer, smaller steps."""

PAPERS = Setting(
    PAPER, WIDTH, Recipe(epochs=300, batch_size=100, lr=0.1, weight_decay=1e-4, optimizer="sgd", warmup=0.05)
)
"""For CIFAR-10, on a GPU: the paper's widths, epochs and schedule; the weight decay, which it lacks, is ResNet's."""

SETTINGS = {"small": SMALL, "medium": MEDIUM, "paper": PAPERS}


def setting_of(
    name: str, *, depth: int | None = None, heads: int | None = None, padding: int = 0, epochs: int | None = None
) -> Setting:
    """A setting by name, with what is asked for otherwise.

    Raises:
        OptionError: There is no such setting, or a number is not positive or is far too large.
    """
    if name not in SETTINGS:
        raise OptionError(f"there is no recipe {name!r}; there are {', '.join(SETTINGS)}")
    setting = SETTINGS[name]
    for wanted, number, least in (("depth", depth, 1), ("heads", heads, 1), ("padding", padding, 0)):
        if number is not None and not least <= number <= _MOST:
            raise OptionError(f"{wanted} must be {least} to {_MOST}; got {number}")
    depth, heads = depth or setting.sizes.depth, heads or setting.sizes.num_heads
    sizes = replace(setting.sizes, depth=depth, num_heads=heads, padding=padding)
    recipe = setting.recipe if epochs is None else replace(setting.recipe, epochs=epochs)
    return replace(setting, sizes=sizes, recipe=recipe)


def build(name: str, setting: Setting, data: ImageData) -> nn.Module:
    """An untrained network for these images; its weights are drawn from torch's generator.

    Raises:
        GeometryError: The images cannot be cut as the setting wants.
    """
    kind = ImageKind(data.channels, data.size.rows, data.size.columns, len(data.classes))
    if name in BLOCKS:
        return resnet(kind, blocks=BLOCKS[name], width=setting.width)
    return AttentionNetwork(kind, replace(setting.sizes, encoding=name))


def parameter_groups(network: nn.Module, setting: Setting) -> Groups:
    """Weights of at least two dimensions decay; positions, with their own learning rate, biases and scales do not.

    Decay would pull centres to the query and every Gaussian to one size.
    """
    layers = [module for module in network.modules() if isinstance(module, Positions)]
    apart = [parameter for layer in layers for parameter in layer.parameters()]
    recipe = setting.recipe
    return plain_groups(network, weight_decay=recipe.weight_decay, apart=apart, apart_lr=setting.faster * recipe.lr)
