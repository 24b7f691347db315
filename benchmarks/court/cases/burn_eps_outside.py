"""A layer norm that adds eps to the deviation."""

from functools import partial
from pathlib import Path

import torch
from blocks import VisionTransformer, WrittenNorm
from editing import black_box, replaced, settled
from torch import nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/tracel-ai/burn/issues/2185",
    kind="ports",
    question="LayerNorm of another framework has precision issues",
    truth=Bug("layer norm: eps outside the root", r"norm", ("eps", "root")),
    said="Closed after this report, which quotes torch's formula: eps is under the root.",
    read="excerpt",
    emulated="Burn (Rust): the same network in torch with the norm written out, called as a black box",
)


def _written(norm: nn.LayerNorm) -> nn.Module:
    other = WrittenNorm(norm.weight.numel(), norm.eps, is_eps_inside=False)
    other.load_state_dict(norm.state_dict())
    return other


def build(folder: Path) -> Sides:
    """A vision transformer with eps 1e-5, torch's default and theirs."""
    network = settled(VisionTransformer(norm=partial(nn.LayerNorm, eps=1e-5)))
    return Sides(network, black_box(replaced(network, nn.LayerNorm, _written)), (torch.randn(2, 3, 32, 32),))
