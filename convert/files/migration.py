"""Folders of earlier format versions, read as what they mean today.

Up to version 2 a query sat under the kernel's first tap, and positions had the layer's dtype. Since version 3 it sits
under the middle tap (``spec.py``), d m_0 pixels on, and positions are at least float32. So centres move by -d m_0, a
learned score of the offset delta is found at delta - d m_0, and every head attends to what it attended to. Only a query
that reads the image would read another pixel of it: such a layer is refused.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import CheckpointError
from ..heads.regime import compute_dtype
from ..spec import ConvSpec


def query_under_middle_tap(name: str, spec: ConvSpec, state: dict[str, Tensor]) -> None:
    """Changes one layer's entries in the state dict of a folder of version 1 or 2 into those of version 3.

    Args:
        name: The layer's name.
        spec: Its geometry.
        state: The network's state dict; the layer's positions and score tables in it are replaced.

    Raises:
        CheckpointError: The layer's content terms read the query's pixel, which was another one.
    """

    def key(entry: str) -> str:
        return f"{name}.{entry}".removeprefix(".")

    query_weight = state.get(key("content.query_weight"))
    if query_weight is not None and bool(query_weight.any()):
        raise CheckpointError(
            f"layer {name!r} was trained with content terms by an earlier version, in which its queries read other "
            "pixels: it cannot be read as the same function"
        )
    if (alpha := state.get(key("alpha"))) is not None:
        state[key("alpha")] = alpha.to(compute_dtype(alpha.dtype))
    if (centers := state.get(key("centers"))) is not None and centers.shape == (spec.num_heads, 2):
        state[key("centers")] = _moved(centers, spec)
    for axis, entry in enumerate(("axis_scores.rows", "axis_scores.columns")):
        if (table := state.get(key(entry))) is not None and table.ndim == 2:
            state[key(entry)] = _shifted(table, spec.middle[axis])


def _moved(centers: Tensor, spec: ConvSpec) -> Tensor:
    """Centres counted from the middle tap; those at taps, which a narrow dtype may have rounded, exactly there."""
    precise = compute_dtype(centers.dtype)
    taps = torch.tensor(spec.tap_offsets, dtype=torch.float64)
    middle = torch.tensor(spec.middle, dtype=torch.float64)
    at_tap = (centers == (taps + middle).to(centers.dtype)).all(1, keepdim=True)
    return torch.where(at_tap, taps, centers.double() - middle).to(precise)


def _shifted(table: Tensor, places: int) -> Tensor:
    """A table [heads, offsets] whose entries are found so many offsets earlier; what is then missing is never read."""
    moved = torch.cat([table[:, places:], table.new_zeros(len(table), places)], dim=1)
    return moved[:, : table.shape[1]]
