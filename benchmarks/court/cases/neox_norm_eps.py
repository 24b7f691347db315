"""A root mean square norm that adds eps to the root."""

from pathlib import Path

import torch
from blocks import LanguageModel, RMSNorm
from editing import replaced, settled
from torch import Tensor, nn
from truth import Bug, Case, Sides

CASE = Case(
    thread="https://github.com/EleutherAI/gpt-neox/pull/1345",
    kind="ports",
    question="A Llama that was converted to NeoX has other losses: what besides the order of its heads?",
    truth=Bug("root mean square norm: eps is added to the root, not to the mean of squares", r"norm", ("eps",)),
    said="Merged, so that the norm agrees with others. A user found both differences again on the way back.",
    read="excerpt",
)


class Outside(nn.Module):
    """The norm before it was mended."""

    def __init__(self, norm: RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        return self.weight * (x / (x.pow(2).mean(-1, keepdim=True).sqrt() + self.eps))


def build(folder: Path) -> Sides:
    """Embeddings are small in front of the first norm, as trained ones are."""
    network = settled(LanguageModel(64, 3))
    with torch.no_grad():
        network.embedding.weight.mul_(0.02)
    return Sides(network, replaced(network, RMSNorm, Outside), (torch.randint(97, (1, 32)),))
