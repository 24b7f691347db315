"""What the values of a layer's centres and locality strengths allow its engines to do.

The values are read once and kept until the parameters change, because reading them costs a synchronisation
on a GPU and a decision per forward call everywhere. The thresholds and defaults of alpha are proved in
``proofs/floating_point.py``, the range of exact scores in ``proofs/exact_scores.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from conv2attn.convert.encoding import scores_are_exact
from conv2attn.convert.spec import ConvSpec, Size

# exp(-alpha) rounds to 0 from here on: 2^-150 (half of the smallest positive number) is exp(-103.97...) in
# binary32, 2^-1075 is exp(-745.13...) in binary64.
ONE_HOT_ALPHA = {torch.float32: 104.0, torch.float64: 746.0}

# The default locality strengths: the next powers of two, with which the scores are exact as well.
EXACT_ALPHA = {torch.float32: 128.0, torch.float64: 1024.0}


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Precision of attention probabilities for a layer of this dtype: at least float32."""
    return torch.promote_types(dtype, torch.float32)


@dataclass(frozen=True)
class Regime:
    """The values of centres and locality strengths, and what follows from them.

    Attributes:
        alpha: Locality strength of each head.
        centers: Centre of each head, in pixels.
        at_taps: Whether each centre is the offset of the head's kernel tap.
        dtype: Precision of the attention probabilities.
    """

    alpha: tuple[float, ...]
    centers: tuple[tuple[float, float], ...]
    at_taps: bool
    dtype: torch.dtype

    @classmethod
    def of(cls, spec: ConvSpec, *, alpha: Tensor, centers: Tensor) -> Regime:
        """Reads the parameters alpha [num_heads] and centers [num_heads, 2] of a layer."""
        centers_read = tuple((row, column) for row, column in centers.detach().tolist())
        return cls(
            alpha=tuple(alpha.detach().tolist()),
            centers=centers_read,
            at_taps=centers_read == spec.tap_offsets,
            dtype=compute_dtype(alpha.dtype),
        )

    @property
    def shared_alpha(self) -> float | None:
        """The locality strength of all heads, or None where they differ or are not finite."""
        first = self.alpha[0]
        return first if math.isfinite(first) and all(value == first for value in self.alpha) else None

    @property
    def is_exact(self) -> bool:
        """Whether every attention probability is exactly 0 or 1, and 1 at the head's kernel tap."""
        return self.at_taps and all(ONE_HOT_ALPHA[self.dtype] <= value < math.inf for value in self.alpha)

    def score_dtype(self, padded: Size) -> torch.dtype:
        """Precision of the scores on a key grid of this size: float32 only where it makes no error."""
        if self.dtype == torch.float32 and scores_are_exact(
            torch.float32, padded, alpha=self.alpha, centers=self.centers
        ):
            return torch.float32
        return torch.float64


class RegimeCache:
    """Keeps a layer's regime until the values of its positions change.

    On the CPU a change is seen by comparing values, which costs microseconds; elsewhere by the identity and the
    version of the tensors, because reading values would wait for the device.
    """

    def __init__(self) -> None:
        self._regime: Regime | None = None
        self._seen: tuple[Tensor, ...] = ()
        self._versions: tuple[int, ...] = ()

    def __reduce__(self) -> tuple[type[RegimeCache], tuple[()]]:
        """A copy of the layer, or a pickled one, starts with an empty cache."""
        return RegimeCache, ()

    def get(self, spec: ConvSpec, *, alpha: Tensor, centers: Tensor) -> Regime:
        """The regime of a layer with these parameters."""
        if self._regime is None or not self._is_current((alpha, centers)):
            self._regime = Regime.of(spec, alpha=alpha, centers=centers)
            self._versions = (alpha._version, centers._version)
            self._seen = (alpha.detach(), centers.detach())
            if alpha.device.type == "cpu":
                self._seen = tuple(tensor.clone() for tensor in self._seen)
        return self._regime

    def _is_current(self, tensors: tuple[Tensor, ...]) -> bool:
        pairs = list(zip(tensors, self._seen, strict=True))
        if any(now.dtype != seen.dtype or now.device != seen.device for now, seen in pairs):
            return False
        if tensors[0].device.type == "cpu":
            return all(torch.equal(now, seen) for now, seen in pairs)
        unmoved = all(now.data_ptr() == seen.data_ptr() for now, seen in pairs)
        return unmoved and self._versions == tuple(tensor._version for tensor in tensors)
