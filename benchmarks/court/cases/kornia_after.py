"""The same vision transformer with the right eps."""

from functools import partial
from pathlib import Path

import torch
from blocks import FusedAttention, VisionTransformer
from editing import replaced, settled
from torch import nn
from truth import Case, Rounding, Sides

CASE = Case(
    thread="https://github.com/kornia/kornia/pull/2786",
    kind="ports",
    question="After the mend, 23.9 % of the elements still fail assert_close, by 8.5e-5 at most: is that a bug?",
    truth=Rounding("four projections in place of one, and attention by products in place of a kernel"),
    said="Merged as it was, the loaded weights taken as correct.",
    read="excerpt",
)


def build(folder: Path) -> Sides:
    """timm's fused attention, and kornia's own with separate projections; features are as large as theirs."""
    make = partial(VisionTransformer, norm=partial(nn.LayerNorm, eps=1e-6), attention=FusedAttention, depth=12)
    network = settled(make())
    with torch.no_grad():
        network.norm.weight.mul_(20)
    return Sides(network, replaced(network, FusedAttention, FusedAttention.split), (torch.randn(1, 3, 32, 32),))
