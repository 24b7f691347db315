"""Training images, shifted and mirrored at random, where chance depends on a seed and the epoch alone.

So an epoch is the same whether a run was resumed before it or not, and whichever process takes which images.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

DRAWS = 3  # numbers from 0 to 1 for each image: shifts along rows and columns, mirror
_SHIFT = 8  # an image is shifted by up to this part of its sides


def augmented(images: Tensor, draws: Tensor, *, flips: bool) -> Tensor:
    """Each image shifted by up to an eighth of its sides, its border repeated, and perhaps mirrored.

    Args:
        images: [batch, channels, rows, columns].
        draws: [batch, ``DRAWS``], from 0 to 1.
        flips: Mirror half of the images.
    """
    rows, columns = images.shape[2:]
    most = rows // _SHIFT, columns // _SHIFT
    padded = F.pad(images, (most[1], most[1], most[0], most[0]), mode="replicate")
    shifts = [(draws[:, axis] * (2 * far + 1)).long().clamp(max=2 * far) for axis, far in enumerate(most)]
    at_rows = shifts[0][:, None] + torch.arange(rows)
    at_columns = shifts[1][:, None] + torch.arange(columns)
    if flips:
        mirrored = (draws[:, 2] < 0.5)[:, None]
        at_columns = torch.where(mirrored, at_columns.flip(1), at_columns)
    batch = torch.arange(len(images))[:, None, None]
    taken = padded.permute(0, 2, 3, 1)[batch, at_rows[:, :, None], at_columns[:, None, :]]
    return taken.permute(0, 3, 1, 2).contiguous()  # as ``pictures`` gives them
