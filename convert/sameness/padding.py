"""Tokens that a mask leaves out, whose outputs are no part of a comparison.

Short rows of a batch are padded, and ``attention_mask`` [batch, tokens] is 0 there. Nobody reads what is computed at
padding, and implementations of attention may differ there. So outputs [batch, tokens] and [batch, tokens, channels]
are taken without those rows, as [rows, ...], on both sides, in the truth, and with noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .given import Inputs

_MASKS = ("attention_mask", "decoder_attention_mask")
_DECODED = "decoder_input_ids"  # the outputs are then of these


@dataclass(frozen=True)
class Padding:
    """The padding of a batch.

    Attributes:
        seen: Whether each token is compared, [batch, tokens].
    """

    seen: Tensor

    @classmethod
    def of(cls, inputs: Inputs) -> Padding | None:
        """The padding that a mask among the inputs, by name, leaves out; None where it leaves out nothing."""
        mask = inputs.kwargs.get(_MASKS[_DECODED in inputs.kwargs])
        if not isinstance(mask, Tensor) or mask.ndim != 2 or not bool((mask == 0).any()) or not bool(mask.any()):
            return None
        return cls(mask != 0)

    def fits(self, value: Tensor) -> bool:
        """Whether an output has a row for each token."""
        return value.ndim in (2, 3) and value.shape[:2] == self.seen.shape

    def taken(self, outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Outputs without the rows of padding, [rows, ...]; those that have no rows of tokens as they are."""
        return {name: self._without(one) for name, one in outputs.items()}

    def _without(self, value: Tensor) -> Tensor:
        if not self.fits(value):
            return value
        places = self.seen.reshape(-1).nonzero()[:, 0].to(value.device)
        return torch.index_select(value.flatten(0, 1), 0, places)

    @property
    def note(self) -> str:
        """Sentence on what is not compared."""
        left, count = int((~self.seen).sum()), self.seen.numel()
        return f"{left} of {count} tokens are padding by the mask, and their outputs were not compared."
