"""The heads of one layer in the order of its weight's taps, and its weight as the forms multiply it.

A transposed convolution's weight lies flipped beside its kernel. ONNX has no operator that flips, and needs none: its
heads are listed in the order of the weight instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ...heads.encoding import is_power_of_two
from ...heads.values import LayerValues
from ...spec import ConvSpec
from .nodes import Nodes


@dataclass(frozen=True)
class Heads:
    """Centres and locality strengths of the heads.

    Attributes:
        spec: Geometry of the layer.
        alpha: Locality strength of each, [num_heads], in the order of the weight's taps.
        centers: Centre of each, [num_heads, axes].
        dtype: Precision of the attention probabilities.
    """

    spec: ConvSpec
    alpha: tuple[float, ...]
    centers: tuple[tuple[float, ...], ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, layer: LayerValues) -> Heads:
        """The heads of a layer."""
        regime, step = layer.regime, -1 if layer.spec.transposed else 1
        return cls(layer.spec, regime.alpha[::step], regime.centers[::step], regime.dtype)

    @property
    def at_taps(self) -> bool:
        """Whether each centre is the offset of the head's kernel tap."""
        return self.centers == self.spec.tap_offsets[:: -1 if self.spec.transposed else 1]

    @property
    def scores_are_exact(self) -> bool:
        """Whether scores are integers times a power of two, which binary32 does not round (``exact_scores.py``)."""
        return all(map(is_power_of_two, self.alpha)) and all(
            coordinate.is_integer() for center in self.centers for coordinate in center
        )

    @property
    def score_dtype(self) -> torch.dtype:
        """Precision in which all scores are made: double, unless single is as good."""
        return self.dtype if self.scores_are_exact else torch.float64

    def along(self, axis: int) -> list[tuple[float, float]] | None:
        """Alpha and centre of the heads of each tap along an axis, if they depend on nothing else."""
        taps = np.indices(self.spec.kernel_size).reshape(self.spec.axes, -1)[axis].tolist()
        named = {(tap, alpha, center[axis]) for tap, alpha, center in zip(taps, self.alpha, self.centers, strict=True)}
        return [(alpha, center) for _, alpha, center in sorted(named)] if len(named) == len(set(taps)) else None

    @property
    def are_a_grid(self) -> bool:
        """Whether the heads' tables along each axis are those of the kernel's taps along it."""
        return all(self.along(axis) is not None for axis in range(self.spec.axes))

    def tables(self, axis: int) -> list[tuple[float, float]]:
        """Alpha and centre of each table along an axis: one for each tap, or for each head."""
        own = [(alpha, center[axis]) for alpha, center in zip(self.alpha, self.centers, strict=True)]
        return (self.along(axis) or own) if self.are_a_grid else own


def value_weight(nodes: Nodes, spec: ConvSpec, weight: str) -> str:
    """W_val of every head, [groups, num_heads, in_channels / groups, out_channels / groups].

    The weight is the name of that which the node holds (``ConvSpec.weight_shape``).
    """
    first, second = _channels(spec)
    apart = nodes.reshaped(weight, spec.groups, first, second, spec.num_heads)
    order = [0, 3, 1, 2] if spec.transposed else [0, 3, 2, 1]
    return nodes.add("Transpose", apart, perm=order, name="value_weight", description="W_val of every head.")


def mixing_weight(nodes: Nodes, heads: Heads, weight: str, *, joined: bool) -> str:
    """The weight that mixes what all tables of the last axes read into what those of the first axis read.

    Where the heads are a grid, tap (m, n) reads by table m along the first axis and table n along the second, so it is
    the weight itself. Else each head has its own tables, and it is zero where two of them do not belong to one head.

    Returns:
        [groups, out_channels / groups * first tables, other tables * in_channels / groups] where the first axis's
        tables come after it (``joined``), else with all tables in the last dimension.
    """
    spec = heads.spec
    first, second = _channels(spec)
    ends = (2, 1) if spec.transposed else (1, 2)  # where output and input channels are
    inputs, outputs = spec.in_channels // spec.groups, spec.out_channels // spec.groups
    if heads.are_a_grid:
        apart = nodes.reshaped(weight, spec.groups, first, second, *spec.kernel_size)
        taps = list(range(3, 3 + spec.axes))
        ordered = nodes.add("Transpose", apart, perm=[0, ends[0], *taps, ends[1]])
        counts = spec.kernel_size
    else:
        apart = nodes.reshaped(weight, spec.groups, first, second, spec.num_heads)
        ordered = nodes.add("Transpose", apart, perm=[0, ends[0], 3, ends[1]])
        spread = [spec.groups, outputs, spec.num_heads, *[1] * (spec.axes - 1), inputs]
        counts = (spec.num_heads,) * spec.axes
        together = np.zeros(counts)
        together[(np.arange(spec.num_heads),) * spec.axes] = 1
        one_head = nodes.constant(together[..., None], str(heads.dtype).removeprefix("torch."), name="one_head")
        ordered = nodes.add("Mul", nodes.reshaped(ordered, *spread), one_head)
    rows = outputs * counts[0] if joined else outputs
    return nodes.reshaped(ordered, spec.groups, rows, -1, name="mixing_weight")


def _channels(spec: ConvSpec) -> tuple[int, int]:
    """Channels of a group in the weight's first and second dimension."""
    pair = spec.out_channels // spec.groups, spec.in_channels // spec.groups
    return pair[::-1] if spec.transposed else pair
