"""What the values of a layer's centres and locality strengths allow its engines to do.

``regime_cache.py`` keeps a layer's regime until its values change. The thresholds and defaults of alpha are proved in
``proofs/claims/computing/floating_point.py``, the range of exact scores in ``proofs/claims/computing/exact_scores.py``,
and how far apart scores stay beyond it in ``proofs/claims/computing/score_gap.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ..errors import ConversionError
from ..size import Size
from ..spec import ConvSpec
from ..transforms import is_traced, is_transformed
from .encoding import scores_are_exact, smallest_gap

# exp(-alpha) rounds to 0 from here on: 2^-150 (half of the smallest positive number) is exp(-103.97...) in
# binary32, 2^-1075 is exp(-745.13...) in binary64.
ONE_HOT_ALPHA = {torch.float32: 104.0, torch.float64: 746.0}

# Gaps between scores with which exp(-gap) still rounds to 0: 150 ln 2 and 1075 ln 2, and room for the rounding of exp.
_ONE_HOT_GAP = {torch.float32: 103.98, torch.float64: 745.5}

# The default locality strengths: the next powers of two, with which the scores are exact as well.
EXACT_ALPHA = {torch.float32: 128.0, torch.float64: 1024.0}

# Training keeps alpha at least here, where a head reaches over some 90 pixels: never 0, and with a gradient.
SMALLEST_TRAINED_ALPHA = 2.0**-10

# Why an engine that needs the values of alpha and centers refuses.
UNREAD = (
    "the values of alpha and centers cannot be read here: torch.vmap maps over different ones, or they have none, as "
    "on the meta device"
)

# Why an engine that forms the scores r . v refuses, where ``Regime.cancels``.
CANCELS = "a head's centre is so far from its query that the scores r . v of neighbouring keys cannot be told apart"

_REMEMBERED = 64
_REMEMBERED_BYTES = 2**24
_T = TypeVar("_T")


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Precision of attention probabilities for a layer of this dtype: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def _outside_inference_mode(make: Callable[[], _T]) -> _T:
    """What ``make`` returns; its tensors can be used in training later, which those made in inference mode cannot."""
    if not torch.is_inference_mode_enabled():
        return make()
    with torch.inference_mode(False), torch.no_grad():
        return make()


@dataclass(frozen=True)
class Regime:
    """The values of centres and locality strengths, and what follows from them.

    Attributes:
        alpha: Locality strength of each head; NaN where it is not read.
        centers: Centre of each head, in pixels; likewise.
        at_taps: Whether each centre is the offset of the head's kernel tap.
        dtype: Precision of the attention probabilities.
        shared_alpha: The locality strength of all heads, or None where they differ.
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
    _memory: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def remember(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """What ``make`` returns, made once for each key.

        A layer whose positions change gets a new regime, so what depends on positions and the key only is kept here
        as long as it is true, and neither copied nor pickled with the layer. While a layer is traced or transformed,
        nothing is. Images of ever new sizes do not fill the memory: of all but the newest, the oldest are dropped until
        at most 64, of at most 16 MiB together, are left.
        """
        if is_transformed():
            return make()
        if key not in self._memory:
            made = _outside_inference_mode(make)
            self._forget(getattr(made, "nbytes", 0))
            self._memory[key] = made
        return cast(_T, self._memory[key])

    def _forget(self, arriving: int) -> None:
        """Drops what was kept longest, until there is room for something of so many bytes."""
        sizes = {key: getattr(made, "nbytes", 0) for key, made in self._memory.items()}
        held = sum(sizes.values()) + arriving
        for key, size in sizes.items():
            if held <= _REMEMBERED_BYTES and len(self._memory) < _REMEMBERED:
                return
            held -= size
            del self._memory[key]

    @classmethod
    def of(cls, spec: ConvSpec, *, alpha: Tensor, centers: Tensor) -> Regime:
        """Reads the parameters alpha [num_heads] and centers [num_heads, axes] of a layer.

        Raises:
            ConversionError: A locality strength is not positive and finite, a centre is not finite, their shapes are
                wrong, or they are in less than float32, which would round positions.
        """
        if compute_dtype(alpha.dtype) != alpha.dtype or compute_dtype(centers.dtype) != centers.dtype:
            raise ConversionError(
                f"alpha and centers must be at least float32, which {alpha.dtype} and {centers.dtype} are not: "
                "positions would be rounded"
            )
        for name, position, shape in (
            ("alpha", alpha, (spec.num_heads,)),
            ("centers", centers, (spec.num_heads, spec.axes)),
        ):
            if position.shape != shape:
                raise ConversionError(
                    f"{name} must have the shape {list(shape)}, for {spec.num_heads} heads; got {list(position.shape)}"
                )
        alphas = tuple(alpha.detach().tolist())
        centers_read = tuple(map(tuple, centers.detach().tolist()))
        for head, (strength, center) in enumerate(zip(alphas, centers_read, strict=True)):
            if not 0 < strength < math.inf:
                raise ConversionError(f"alpha must be positive and finite; head {head} has {strength:g}")
            if not all(map(math.isfinite, center)):
                raise ConversionError(f"centers must be finite; head {head} has {center}")
        return cls(alpha=alphas, centers=centers_read, at_taps=centers_read == spec.tap_offsets, dtype=alpha.dtype)

    @classmethod
    def unread(cls, spec: ConvSpec, dtype: torch.dtype) -> Regime:
        """The regime of positions whose values are not read: it allows nothing that depends on them.

        Args:
            spec: Geometry of the layer.
            dtype: Precision of the attention probabilities.
        """
        nothing = (math.nan,) * spec.num_heads
        return cls(nothing, ((math.nan,) * spec.axes,) * spec.num_heads, at_taps=False, dtype=dtype)

    @property
    def is_read(self) -> bool:
        """Whether the values are known."""
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
