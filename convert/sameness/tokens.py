"""What a difference does to the tokens that a language model would choose, and to their log-probabilities.

A token changes where its margin over the next one is less than what the difference moves it by. The margin is the
truth's, of float64; rounding moves it by a normal number whose deviation is sqrt(2) times the typical rounding of one
logit, of both sides together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConversionError
from ..inputs import scores_of
from .given import Inputs
from .typical import Scale

REPLY = 100  # tokens of a reply, of which the probability of a change is told


@dataclass(frozen=True)
class Token:
    """A place whose most probable token is another one in B.

    Attributes:
        row: The row of the batch.
        place: Its place in the row, from 0.
        margin: Of A's token over the next, in float64.
        rounding: The deviation that rounding gives this margin.
    """

    row: int
    place: int
    margin: float
    rounding: float


@dataclass(frozen=True)
class Tokens:
    """The effect of a difference on tokens.

    Attributes:
        count: Places.
        changed: Those whose most probable token is another one.
        close: Those that rounding alone changes with a probability of at least 1 %.
        first: The first that changes, or None.
        flip: The probability that rounding alone changes a token of a reply of ``REPLY`` tokens.
        log_probability: The largest difference of the log-probability of a token that is given, or None where no token
            follows another.
        typical: What rounding typically makes that difference, by its root mean square.
    """

    count: int
    changed: int
    close: int
    first: Token | None
    flip: float
    log_probability: float | None
    typical: float

    def lines(self) -> list[str]:
        """What is said of it."""
        found = [f"{self.changed} of {self.count} most probable tokens change; rounding alone may change {self.close}."]
        if self.first is not None:
            one = self.first
            toss = one.margin < 3 * one.rounding
            found[0] += (
                f" The first is token {one.place} of row {one.row}, whose margin is {one.margin:.2g} where rounding "
                f"moves it by {one.rounding:.2g}: {'a coin toss' if toss else 'more than rounding does'}."
            )
        found.append(f"Rounding changes a token of a reply of {REPLY} with a probability of {_percent(self.flip)}.")
        if self.log_probability is not None:
            found.append(
                f"Log-probabilities of the tokens that are given differ by {self.log_probability:.2g} at most; "
                f"rounding typically makes that {self.typical:.2g}."
            )
        return found


def tokens_of(
    inputs: Inputs, sides: tuple[Mapping[str, Tensor], Mapping[str, Tensor]], truth: Mapping[str, Tensor], scale: Scale
) -> Tokens | None:
    """The effect on tokens, where the inputs are token ids and an output is their logits; else None.

    Args:
        inputs: Of the network.
        sides: Outputs of A and B, by the same names.
        truth: In float64.
        scale: Of the difference of the logits.
    """
    ids = next((one for one in inputs.tensors if one.dtype in (torch.int64, torch.int32) and one.ndim == 2), None)
    try:
        a, b, exact = (scores_of(one) for one in (*sides, truth))
    except ConversionError:
        return None
    if ids is None or exact.ndim != 3 or exact.shape[:2] != ids.shape or a.shape != b.shape:
        return None
    deviation = math.sqrt(2) * scale.rms
    rounding = deviation if len(deviation) == exact[..., 0].numel() else deviation.max().expand(exact[..., 0].numel())
    rounding = rounding.view(ids.shape)
    first, second = exact.topk(2, dim=-1).values.unbind(-1)
    margin = first - second
    turned = a.argmax(-1) != b.argmax(-1)
    probability = torch.special.erfc(margin / (rounding * math.sqrt(2)).clamp(min=1e-300)) / 2
    kept = (1 - probability.clamp(max=1 - 1e-12)).log().mean()
    place = turned.nonzero()
    found = None
    if len(place):
        row, column = place[0].tolist()
        found = Token(row, column, float(margin[row, column]), float(rounding[row, column]))
    following = _log_probabilities(ids, a, b)
    return Tokens(
        count=ids.numel(),
        changed=int(turned.sum()),
        close=int((probability >= 0.01).sum()),
        first=found,
        flip=1 - math.exp(REPLY * float(kept)),
        log_probability=following,
        typical=float(rounding.square().mean().sqrt()) / math.sqrt(2),
    )


def _log_probabilities(ids: Tensor, a: Tensor, b: Tensor) -> float | None:
    """The largest difference of the log-probabilities of ids, each behind those before it."""
    if ids.shape[1] < 2 or int(ids.max()) >= a.shape[-1]:
        return None
    chosen = [one[:, :-1].double().log_softmax(-1).gather(-1, ids[:, 1:, None].long()) for one in (a, b)]
    return float((chosen[0] - chosen[1]).abs().max())


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share >= 1e-4 else "less than 0.01 %"
