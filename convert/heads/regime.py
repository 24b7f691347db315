"""The positions of a layer's heads as numbers, and what these numbers allow its engines to do.

The thresholds and defaults of alpha are proved in ``proofs/claims/computing/floating_point.py``, the range of exact
scores in ``proofs/claims/computing/exact_scores.py``, and how far apart scores stay beyond it in
``proofs/claims/computing/score_gap.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..arguments import Size
from ..context import is_traced
from ..errors import ConversionError
from ..spec import ConvSpec
from .encoding import scores_are_exact, smallest_gap
from .sharpness import ONE_HOT

ONE_HOT_ALPHA = {torch.float32: ONE_HOT["float32"], torch.float64: ONE_HOT["float64"]}

# Gaps between scores with which exp(-gap) still rounds to 0: 150 ln 2 and 1075 ln 2, and room for the rounding of exp.
_ONE_HOT_GAP = {torch.float32: 103.98, torch.float64: 745.5}

# The default values of alpha: the next powers of two, with which the scores are exact as well.
EXACT_ALPHA = {torch.float32: 128.0, torch.float64: 1024.0}

# Why an engine that forms the scores r . v refuses, where ``Regime.cancels``.
CANCELS = "a head's centre is so far from its query that the scores r . v of neighbouring keys cannot be told apart"


class Positions(NamedTuple):
    """Where the heads of a layer look, and how sharply.

    Attributes:
        alpha: Sharpness of each head, positive and finite.
        centers: Centre of each head, its offset from the query in pixels along each axis.
    """

    alpha: tuple[float, ...]
    centers: tuple[tuple[float, ...], ...]


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Precision of attention probabilities for a layer of this dtype: at least float32."""
    return torch.promote_types(dtype, torch.float32)


@dataclass(frozen=True)
class Regime:
    """The positions of a layer, and what follows from them.

    Attributes:
        alpha: As ``Positions.alpha``; NaN while the positions are trained, which no engine reads.
        centers: As ``Positions.centers``; likewise.
        at_taps: Whether each centre is the offset of the head's kernel tap.
        dtype: Precision of the attention probabilities.
        shared_alpha: The sharpness of all heads, or None where they differ.
        is_exact: Whether every attention probability is exactly 0 or 1, and 1 at the head's kernel tap.
        cancels: Whether it is not if computed from scores r . v, even in double precision: a centre is so far from its
            query that large terms cancel, and the gap between the scores of two keys is lost (``smallest_gap``).
    """

    alpha: tuple[float, ...]
    centers: tuple[tuple[float, ...], ...]
    at_taps: bool
    dtype: torch.dtype
    shared_alpha: float | None = field(init=False)
    is_exact: bool = field(init=False)
    cancels: bool = field(init=False)

    @classmethod
    def of(cls, spec: ConvSpec, *, alpha: Any, centers: Any, dtype: torch.dtype) -> Regime:
        """Checks positions, and rounds them to the precision in which they are stored.

        Args:
            spec: Geometry of the layer.
            alpha: A number for all heads, or one for each: [num_heads].
            centers: Numbers [num_heads, axes], as a tensor or nested sequences.
            dtype: float32 or float64.

        Raises:
            ConversionError: A sharpness is not positive and finite, a centre is not finite, their shapes are
                wrong, or they are in less than float32, which would round positions.
        """
        alphas, places = _numbers("alpha", alpha, dtype), _numbers("centers", centers, dtype)
        if alphas.ndim == 0:
            alphas = alphas.expand(spec.num_heads)
        _check_shape("alpha", alphas, (spec.num_heads,))
        _check_shape("centers", places, (spec.num_heads, spec.axes))
        strengths, read = tuple(alphas.tolist()), tuple(map(tuple, places.tolist()))
        for head, (strength, center) in enumerate(zip(strengths, read, strict=True)):
            if not 0 < strength < math.inf:
                raise ConversionError(f"alpha must be positive and finite in {dtype}; head {head} has {strength:g}")
            if not all(map(math.isfinite, center)):
                raise ConversionError(f"centers must be finite; head {head} has {center}")
        return cls(strengths, read, at_taps=read == spec.tap_offsets, dtype=dtype)

    @classmethod
    def unread(cls, spec: ConvSpec, dtype: torch.dtype) -> Regime:
        """The regime of positions that are trained: it allows nothing that depends on their values."""
        nothing = (math.nan,) * spec.num_heads
        return cls(nothing, ((math.nan,) * spec.axes,) * spec.num_heads, at_taps=False, dtype=dtype)

    @property
    def is_read(self) -> bool:
        """Whether the positions are known as numbers."""
        return not math.isnan(self.alpha[0])

    def __post_init__(self) -> None:
        first, threshold = self.alpha[0], ONE_HOT_ALPHA[self.dtype]
        shared = all(value == first for value in self.alpha)
        exact = self.at_taps and all(value >= threshold for value in self.alpha)
        object.__setattr__(self, "shared_alpha", first if shared else None)
        object.__setattr__(self, "is_exact", exact)
        gap, heads = _ONE_HOT_GAP[self.dtype], zip(self.alpha, self.centers, strict=True)
        object.__setattr__(self, "cancels", exact and any(smallest_gap(*head) < gap for head in heads))

    def score_dtype(self, padded: Size) -> torch.dtype:
        """Precision of the scores on a key grid of this size: float32 only where it is known to make no error."""
        if self.dtype != torch.float32 or not self.is_read or is_traced():
            return torch.float64
        exact = scores_are_exact(torch.float32, padded, alpha=self.alpha, centers=self.centers)
        return torch.float32 if exact else torch.float64


def _numbers(name: str, values: Any, dtype: torch.dtype) -> Tensor:
    """Positions that a caller passes, on the CPU in the precision in which they are stored."""
    if isinstance(values, Tensor) and values.is_floating_point() and compute_dtype(values.dtype) != values.dtype:
        raise ConversionError(
            f"{name} must be at least float32, which {values.dtype} is not: positions would be rounded"
        )
    try:
        return torch.as_tensor(values, dtype=torch.float64, device="cpu").detach().to(dtype)
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise ConversionError(f"{name} must be numbers; got {values!r:.60}") from error


def _check_shape(name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise ConversionError(
            f"{name} must have the shape {list(shape)}, for {shape[0]} heads; got {list(values.shape)}"
        )
