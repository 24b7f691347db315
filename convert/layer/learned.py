"""Attention layers that learn where to look: trained positions, content, and learned tables of scores.

A layer at rest becomes one in place, by ``train_positions``, ``add_content`` or ``set_axis_scores``; ``learn.melt``
does it to a whole network. Its weight and bias stay the very parameters that they were, and so do its hooks and
parametrisations.

Trained positions are two parameters: ``log_alpha``, whose exponential is alpha, positive whatever a step of training
does, and ``centers``. No call reads their values, so a GPU never waits for them. A state dict holds these two; either
kind of layer takes the positions of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..errors import ConversionError
from ..heads.content import ContentTerms
from ..heads.encoding import encoding_dim
from ..heads.regime import Regime, compute_dtype
from ..heads.values import LayerValues
from ..spec import ConvSpec
from .layer import LEARNED, SelfAttention, SelfAttention1d, SelfAttention2d, SelfAttention3d


class LearnedAttention(SelfAttention):
    """A ``SelfAttention`` with trained positions, content terms or learned tables.

    Attributes:
        log_alpha: Logarithm of the locality strength of each head, [num_heads], where positions are trained.
        centers: Centre of each head, [num_heads, axes]; a parameter where positions are trained.
        content: The content terms of the scores, or None.
        axis_scores: Learned tables in place of the quadratic scores, or None.
    """

    @property
    def trains_positions(self) -> bool:  # type: ignore[override]
        """Whether alpha and centers are parameters."""
        return "log_alpha" in self._parameters

    def _alpha(self) -> Tensor:
        log_alpha = self._parameters.get("log_alpha")
        return super()._alpha() if log_alpha is None else log_alpha.exp()

    def _centers(self) -> Tensor:
        centers = self._parameters.get("centers")
        return super()._centers() if centers is None else centers

    @property
    def regime(self) -> Regime:
        """The positions as numbers, and what they allow; reads them where they are trained."""
        if not self.trains_positions:
            return self._regime
        limits = torch.finfo(self._regime.dtype)
        alpha = self._alpha().detach().clamp(limits.tiny, limits.max)  # which an exponential may leave
        centers = self.centers.detach()
        return Regime.of(self.spec, alpha=alpha, centers=centers, dtype=self._regime.dtype)

    def rest_positions(self) -> None:
        """Makes positions that were trained numbers again, which the fastest engines need."""
        if self.trains_positions:
            self._regime, self.alpha_follows_dtype = self.regime, False
            del self._parameters["log_alpha"], self._parameters["centers"]

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As ``nn.Module``'s; trained positions can be replaced."""
        if name in self._parameters and name == "centers":
            self._parameters[name] = param
        else:
            super().register_parameter(name, param)

    def _hold(self, regime: Regime) -> None:
        """Sets positions, also those that are trained."""
        super()._hold(regime)
        if self.trains_positions:
            with torch.no_grad():
                self.get_parameter("log_alpha").copy_(torch.tensor(regime.alpha, dtype=torch.float64).log())
                self._centers().copy_(torch.tensor(regime.centers, dtype=regime.dtype))

    def _train_positions(self) -> None:
        if not self.trains_positions:
            device, regime = self.weight.device, self._regime
            alpha = torch.tensor(regime.alpha, dtype=torch.float64, device=device)
            centers = torch.tensor(regime.centers, dtype=regime.dtype, device=device)
            self._parameters["log_alpha"] = nn.Parameter(alpha.log().to(regime.dtype))
            self._parameters["centers"] = nn.Parameter(centers)

    def _add_content(self, key_dim: int) -> ContentTerms:
        self.content = ContentTerms(
            self.num_heads,
            self.spec.in_channels,
            key_dim=key_dim,
            encoding_dim=encoding_dim(self.spec.axes),
            device=self.weight.device,
            dtype=self.weight.dtype,
        )
        return self.content

    def _is_convolution(self) -> bool:
        learns = self.trains_positions or self.content is not None or self.axis_scores is not None
        return not learns and super()._is_convolution()

    def _values(self, spec: ConvSpec | None = None) -> LayerValues:
        values = super()._values(spec)
        if self.trains_positions:
            dtype = self._alpha().dtype
            if dtype != compute_dtype(dtype):
                raise ConversionError(f"positions must be at least float32; got {dtype}")
            unread = Regime.unread(values.spec, compute_dtype(values.weight.dtype))
            values = values._replace(regime=unread, trained=(self._alpha(), self._centers()))
        return values._replace(content=self.content, axis_scores=self.axis_scores)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.trains_positions:
            del destination[prefix + "alpha"]
            centers = self.centers
            destination[prefix + "centers"] = centers if keep_vars else centers.detach()

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        if not self.trains_positions:
            return super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)
        state = dict(state_dict)
        alpha = state.pop(prefix + "alpha", None)
        if alpha is not None:
            state.setdefault(prefix + "log_alpha", alpha.double().log().to(self._regime.dtype))
        return nn.Module._load_from_state_dict(self, state, prefix, local_metadata, strict, *lists)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As ``nn.Module``'s; positions never get less than float32."""
        precise = [p for p in (self._parameters.get("log_alpha"), self._parameters.get("centers")) if p is not None]
        kept = {id(tensor) for one in precise for tensor in (one, one.grad) if tensor is not None}

        def apply(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            dtype = compute_dtype(moved.dtype)
            if id(tensor) not in kept or moved.dtype == dtype:
                return moved
            return tensor.to(device=moved.device, dtype=dtype)

        return super()._apply(apply, recurse)


class LearnedAttention1d(LearnedAttention, SelfAttention1d):
    """``LearnedAttention`` over sequences."""


class LearnedAttention2d(LearnedAttention, SelfAttention2d):
    """``LearnedAttention`` over images."""


class LearnedAttention3d(LearnedAttention, SelfAttention3d):
    """``LearnedAttention`` over volumes or films."""


def register_learned(resting: type[SelfAttention], learned: type[LearnedAttention]) -> None:
    """Names the class that a layer becomes when it is to learn."""
    LEARNED.update({resting: learned, learned: learned})


register_learned(SelfAttention, LearnedAttention)
register_learned(SelfAttention1d, LearnedAttention1d)
register_learned(SelfAttention2d, LearnedAttention2d)
register_learned(SelfAttention3d, LearnedAttention3d)
