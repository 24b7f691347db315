"""Keeps what was read of a layer's positions as long as it is true, without waiting for a GPU.

Reading numbers from a GPU waits until everything before them is computed, so a layer reads its positions once, and has
to notice when they change. On the CPU the numbers are compared at each call, which costs microseconds. On a GPU

- positions at rest, which require no gradients, are taken as unchanged while the tensors and their versions are the
  same. PyTorch counts no version for writes through ``.data``, by fused optimizers, replayed CUDA graphs and other
  people's kernels. So the GPU compares the numbers itself, and an assertion fails where they changed unseen: CUDA
  reports it at some later call.
- while positions are trained, nothing is chosen by their values (``Regime.unread``), and they are not read. The GPU
  asserts that alpha is positive. One-hot attention without content has no gradient, so its positions rest meanwhile.
- positions that require gradients, in a call without gradients: an optimizer may have moved them since the last call.
  They are compared, and the call waits; ``requires_grad_(False)`` ends that.

Only CUDA has such assertions at all times: AMD's builds leave them out, and other devices may lack them. There the
numbers are compared at each call, as on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch._C._functorch import maybe_current_level

from ..spec import ConvSpec
from ..transforms import common_values, is_transformed
from .regime import Regime, compute_dtype

_CHANGED = (
    "conv2attn: alpha or centers changed in a way that PyTorch does not count (.data, a fused optimizer, a graph). "
    "Write to them under torch.no_grad(), or call torch.autograd.graph.increment_version on them"
)
_NOT_POSITIVE = "conv2attn: alpha must be positive and finite"
_ASSERTING = {"cuda"}


def asserts(device: torch.device) -> bool:
    """Whether an assertion on this device fails loudly, and without the CPU waiting for it."""
    return device.type in _ASSERTING and torch.version.hip is None


@dataclass(frozen=True)
class _Known:
    """A regime, and the positions that it was read from.

    Attributes:
        regime: What their values allow.
        unread: The regime while they are trained and not read.
        alpha: The tensor that was read; it keeps its memory, which therefore no other tensor takes.
        centers: Likewise.
        values: Copies of both, where they are.
        versions: Their versions, if they were at rest ever since.
    """

    regime: Regime
    unread: Regime
    alpha: Tensor
    centers: Tensor
    values: tuple[Tensor, Tensor]
    versions: tuple[int, int] | None

    @classmethod
    def of(cls, spec: ConvSpec, alpha: Tensor, centers: Tensor, *, at_rest: bool) -> _Known:
        """Reads the positions of a layer, which waits for the device."""
        regime = Regime.of(spec, alpha=alpha, centers=centers)
        alpha, centers = alpha.detach(), centers.detach()
        versions = (alpha._version, centers._version) if at_rest and _are_watched(alpha, centers) else None
        unread = Regime.unread(spec, regime.dtype)
        return cls(regime, unread, alpha, centers, (alpha.clone(), centers.clone()), versions)

    def fits(self, alpha: Tensor, centers: Tensor) -> bool:
        """Whether these positions are of the dtypes and on the devices of those that were read."""
        dtypes = alpha.dtype == self.alpha.dtype and centers.dtype == self.centers.dtype
        return dtypes and alpha.device == self.alpha.device and centers.device == self.centers.device

    def holds(self, alpha: Tensor, centers: Tensor, *, at_rest: bool) -> bool:
        """Whether these positions have the values that were read; without waiting, if they are at rest and counted."""
        if not self.fits(alpha, centers):
            return False
        if not (at_rest and _are_watched(alpha, centers)):
            return torch.equal(alpha, self.values[0]) and torch.equal(centers, self.values[1])
        same = alpha.data_ptr() == self.alpha.data_ptr() and centers.data_ptr() == self.centers.data_ptr()
        if not same or (alpha._version, centers._version) != self.versions:
            return False
        torch._assert_async((_flat(alpha, centers) == _flat(*self.values)).all(), _CHANGED)
        return True


class RegimeCache:
    """Keeps a layer's regime until the values of its positions change."""

    def __init__(self) -> None:
        self._known: _Known | None = None

    def __reduce__(self) -> tuple[type[RegimeCache], tuple[()]]:
        """A copy of the layer, or a pickled one, starts with an empty cache."""
        return RegimeCache, ()

    def get(self, spec: ConvSpec, *, alpha: Tensor, centers: Tensor) -> Regime:
        """The regime of a layer with these parameters; while it is traced, the one seen last."""
        return self._get(spec, alpha, centers, at_rest=not (alpha.requires_grad or centers.requires_grad))

    def get_in_training(self, spec: ConvSpec, *, alpha: Tensor, centers: Tensor, content: bool) -> Regime:
        """As ``get``, for a call that gives gradients to the positions of a layer with or without content terms."""
        known = self._known
        if (
            torch.compiler.is_compiling()
            or not asserts(alpha.device)
            or known is None
            or not known.fits(alpha, centers)
        ):
            return self.get(spec, alpha=alpha, centers=centers)
        if known.regime.is_exact and not content:
            return self._get(spec, alpha, centers, at_rest=True)
        self._expect_changes(known)
        strengths = alpha.detach()
        torch._assert_async(((strengths > 0) & strengths.isfinite()).all(), _NOT_POSITIVE)
        return known.unread

    def _get(self, spec: ConvSpec, alpha: Tensor, centers: Tensor, *, at_rest: bool) -> Regime:
        known = self._known
        unread = Regime.unread(spec, compute_dtype(alpha.dtype)) if known is None else known.unread
        if torch.compiler.is_compiling():
            return unread if known is None else known.regime
        try:
            if maybe_current_level() is not None:  # inside torch.func
                alpha, centers = common_values(alpha), common_values(centers)
            if known is None or not known.holds(alpha, centers, at_rest=at_rest):
                if is_transformed():
                    return Regime.of(spec, alpha=alpha, centers=centers)
                known = _Known.of(spec, alpha, centers, at_rest=at_rest)
                self._known = known
            elif not at_rest:
                self._expect_changes(known)
        except (RuntimeError, AssertionError):  # what torch raises where a tensor has no values, or several at once
            if alpha.is_meta or is_transformed():
                return unread
            raise
        return known.regime

    def _expect_changes(self, known: _Known) -> None:
        """Versions that stay the same mean nothing any more: once the positions rest again, they are read."""
        if known.versions is not None:
            self._known = replace(known, versions=None)


def _are_watched(alpha: Tensor, centers: Tensor) -> bool:
    """Whether their device asserts and PyTorch counts their versions, as it does not for tensors of inference mode."""
    return asserts(alpha.device) and not (alpha.is_inference() or centers.is_inference())


def _flat(alpha: Tensor, centers: Tensor) -> Tensor:
    return torch.cat([alpha.detach(), centers.detach().flatten()])
