"""What a difference does to the tokens that a language model would choose, and to their log-probabilities.

A token changes where its margin over the next one is less than what the difference moves it by. The margin is the
truth's, of float64; rounding moves it by a normal number whose deviation is sqrt(2) times the typical rounding of one
logit, of both sides together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import ConversionError
from ..inputs import name_of_scores
from .given import Inputs
from .padding import Padding
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
    inputs: Inputs,
    sides: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    truth: Mapping[str, Tensor],
    scales: tuple[Mapping[str, Scale], Mapping[str, Scale]],
    padding: Padding | None = None,
) -> Tokens | None:
    """The effect on tokens, where the inputs are token ids and an output is their logits; else None.

    Args:
        inputs: Of the network.
        sides: Outputs of A and B, by the same names.
        truth: In float64.
        scales: Of the outputs of A and B.
        padding: What was left out of the outputs.
    """
    try:
        name = name_of_scores(list(truth))
    except ConversionError:
        return None
    a, b, exact = (one[name] for one in (*sides, truth))
    ids = _ids_of(inputs, exact, padding)
    if ids is None or not exact.is_floating_point() or a.shape != b.shape or exact.shape[-1] < 2:
        return None
    seen = torch.ones_like(ids, dtype=torch.bool) if exact.ndim == 3 or padding is None else padding.seen
    places = seen.nonzero()
    a, b, exact = (one.reshape(len(places), one.shape[-1]) for one in (a, b, exact))
    deviation = math.sqrt(2) * scales[0][name].beside(scales[1][name]).rms
    rounding = deviation if len(deviation) == len(places) else deviation.max().expand(len(places))
    first, second = exact.topk(2, dim=-1).values.unbind(-1)
    margin = first - second
    turned = a.argmax(-1) != b.argmax(-1)
    probability = torch.special.erfc(margin / (rounding * math.sqrt(2)).clamp(min=1e-300)) / 2
    kept = (1 - probability.clamp(max=1 - 1e-12)).log().mean()
    found = None
    if bool(turned.any()):
        place = int(turned.nonzero()[0])
        row, column = places[place].tolist()
        found = Token(row, column, float(margin[place]), float(rounding[place]))
    return Tokens(
        count=len(places),
        changed=int(turned.sum()),
        close=int((probability >= 0.01).sum()),
        first=found,
        flip=1 - math.exp(REPLY * float(kept)),
        log_probability=_log_probabilities(ids, seen, a, b),
        typical=float(rounding.square().mean().sqrt()) / math.sqrt(2),
    )


def chosen_tokens(inputs: Inputs, sides: tuple[Mapping[str, Tensor], Mapping[str, Tensor]]) -> str | None:
    """How the token ids that two sides give differ, where they give nothing else; None where they do not.

    Args:
        inputs: Token ids [batch, tokens], among others.
        sides: Outputs of A and B.
    """
    if not _integers(inputs.tensors) or not all(len(one) == 1 and _integers([*one.values()]) for one in sides):
        return None
    a, b = (next(iter(one.values())) for one in sides)
    if a.shape[0] != b.shape[0] or torch.equal(a, b):
        return None
    length = min(a.shape[1], b.shape[1])
    apart = a[:, :length] != b[:, :length]
    if not bool(apart.any()):
        return f"A gives {a.shape[1]} tokens and B {b.shape[1]}, and the first {length} are equal"
    column = int(apart.any(0).nonzero()[0])
    row = int(apart[:, column].nonzero()[0])
    counts = f"{int(apart.sum())} of {apart.numel()} tokens differ, first token {column} of row {row}"
    return f"{counts}, and token ids do not say how close the choice was"


def _integers(values: Sequence[Tensor]) -> list[Tensor]:
    """Those that may be token ids, [batch, tokens]."""
    return [one for one in values if one.dtype in (torch.int64, torch.int32) and one.ndim == 2]


def _ids_of(inputs: Inputs, logits: Tensor, padding: Padding | None) -> Tensor | None:
    """The token ids that logits [batch, tokens, vocabulary] or, without padding, [rows, vocabulary] belong to."""
    first = [one for name, one in inputs.kwargs.items() if name.startswith("decoder_") and isinstance(one, Tensor)]
    for ids in _integers([*first, *inputs.tensors]):
        if logits.ndim == 3 and ids.shape == logits.shape[:2]:
            return ids
        if logits.ndim == 2 and padding is not None and ids.shape == padding.seen.shape:
            return ids if len(logits) == int(padding.seen.sum()) else None
    return None


def _log_probabilities(ids: Tensor, seen: Tensor, a: Tensor, b: Tensor) -> float | None:
    """The largest difference of the log-probabilities of ids, each behind those before it."""
    follows = torch.zeros_like(seen)
    follows[:, :-1] = seen[:, 1:]
    following, known = ids.roll(-1, 1)[seen].long(), follows[seen]
    if not bool(known.any()) or int(ids.max()) >= a.shape[-1] or int(ids.min()) < 0:
        return None
    chosen = [one[known].double().log_softmax(-1).gather(-1, following[known, None]) for one in (a, b)]
    return float((chosen[0] - chosen[1]).abs().max())


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share >= 1e-4 else "less than 0.01 %"
