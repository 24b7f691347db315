"""What rounding turns in the choices of two sides, as of a token's expert; the rest is judged without it.

A choice amplifies the last bit of its scores without limit, and of a few tokens in a thousand the scores tie. So noise
runs through a program whose choices are those that its side made. Where the other side chose otherwise, at ties alone,

    b' = b - t(choices of B) + t(choices of A)

is what it would have given with A's choices, but for rounding, and is judged in its place. What a black box chose is
searched for: each tie is turned, and stays so where the outputs become more like the box's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx

from ..errors import ConversionError
from ..programs.program import Program
from .choices import Choice, Held, choices_of, held, run_with
from .given import Inputs
from .outputs import THRESHOLD
from .typical import Scale, Typical

_OTHERWISE = 2.0  # roundings of a gap: of two scores, on two sides
_TRIED = 16  # ties of a black box
_NEARER = 0.9  # of the distance: a turned choice that explains nothing leaves it as it is

Outputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Turned:
    """Rows of a choice on two sides.

    Attributes:
        choice: That of the side which says the truth.
        other: Whether the other side chose otherwise, [rows].
        ties: Whether that is rounding of the scores, [rows].
        near: Whether rounding may turn the choice, [rows].
    """

    choice: Choice
    other: Tensor
    ties: Tensor
    near: Tensor

    @property
    def is_rounding(self) -> bool:
        """Whether the other side chose otherwise at ties alone."""
        return bool((self.ties | ~self.other).all())

    def told(self, names: tuple[str, str], *, is_known: bool) -> str | None:
        """A sentence, if there is something to tell.

        Args:
            names: Those of the side that says the truth, and of the other.
            is_known: Whether the other's choices are known.
        """
        rows, turned, near = len(self.other), int(self.other.sum()), int(self.near.sum())
        if turned:
            far = int((self.other & ~self.ties).sum())
            which = (
                f"{far} of them no ties"
                if far
                else "where scores tie but for rounding; the rest is judged without that"
            )
            return f"{names[1]} chooses otherwise than {names[0]} in {turned} of {rows} rows at {self.choice}, {which}."
        if not near:
            return None
        known = (
            "they are the same in both" if is_known else f"the outputs do not show that {names[1]} chooses otherwise"
        )
        return f"Rounding may turn {near} of {rows} choices at {self.choice}; {known}."


@dataclass(frozen=True)
class Routed:
    """What follows from the choices of two sides.

    Attributes:
        told: Sentences.
        gained: What the other side's outputs gain by its own choices, by name, or None.
    """

    told: tuple[str, ...]
    gained: Outputs | None = None


@dataclass(frozen=True)
class Routes:
    """The choices of two sides.

    Attributes:
        programs: The one that says the truth, and the other side's, or None.
        given: The inputs of both.
        mine: The choices of the first.
        theirs: The other's, where they are the same operations one by one; else None.
        held: The first program with its own choices held.
    """

    programs: tuple[Program, Program | None]
    given: tuple[Inputs, Inputs]
    mine: list[Choice]
    theirs: list[Choice] | None
    held: Held

    @classmethod
    def of(cls, programs: tuple[Program, Program | None], given: tuple[Inputs, Inputs]) -> Routes | None:
        """The choices of the program that says the truth and of the other, or None where there are none."""
        program, other = programs
        mine = choices_of(program, given[0])
        if not mine:
            return None
        theirs = None
        if other is not None:
            with suppress(ConversionError):  # it has an operation without doubles
                theirs = choices_of(other, given[1])
        if theirs is not None and [_form(one) for one in theirs] != [_form(one) for one in mine]:
            theirs = None
        return cls(programs, given, mine, theirs, held(program, mine, [one.taken for one in mine]))

    def watched(self) -> frozenset[fx.Node]:
        """The scores, in the program with held choices."""
        return frozenset(self.held.of[node] for node in map(_source, self.mine))

    def named(self, found: Typical) -> Typical:
        """What is known of the program with held choices, by the nodes of the one that chooses."""
        back = {own: node for node, own in self.held.of.items()}
        return replace(found, inner={back[node]: one for node, one in found.inner.items() if node in back})

    def routed(self, found: Typical, other: Outputs, names: tuple[str, str], *, is_beyond: bool) -> Routed:
        """What the other side chose.

        Args:
            found: What is known of the program with held choices.
            other: The other side's outputs, by the names of the first's.
            names: Of both sides.
            is_beyond: Whether its outputs are beyond rounding of the same choices.
        """
        scales = [found.inner[_source(one)][1] if _source(one) in found.inner else None for one in self.mine]
        own, gained = [one.taken for one in self.mine], None
        if self.theirs is not None:
            taken = [one.taken for one in self.theirs]
            known = self._turned(taken, self._scores_with(taken), scales)
            if any(bool(one.other.any()) for one in known) and all(one.is_rounding for one in known):
                gained = self._gained(taken)
        else:
            taken, gained = self._searched(other, scales) if is_beyond else (own, None)
            known = self._turned(taken, self._scores_with(taken), scales)
        told = dict.fromkeys(one.told(names, is_known=self.theirs is not None) for one in known)
        return Routed(tuple(one for one in told if one is not None), gained)

    def _turned(
        self, taken: Sequence[Tensor], scores: Sequence[Tensor], scales: Sequence[Scale | None]
    ) -> list[Turned]:
        found = []
        for choice, places, context, scale in zip(self.mine, taken, scores, scales, strict=True):
            differ = (choice.sets(choice.taken) != choice.sets(places)).any(-1)
            gaps, allowed = choice.gaps(choice.taken, choice.scores), _allowed(scale, len(differ))
            found.append(Turned(choice, differ, choice.gaps(places, context) >= -allowed, gaps.abs() <= allowed))
        return found

    def _scores_with(self, taken: Sequence[Tensor]) -> list[Tensor]:
        """The scores of the first program in float64, with these choices: a turned one changes the scores behind it."""
        try:
            return run_with(self.programs[0], self.mine, taken, self.given[0]).scores
        except ConversionError:
            return [one.scores for one in self.mine]

    def _gained(self, taken: Sequence[Tensor]) -> Outputs | None:
        """What its own choices change in the other's outputs, by its own program, or by the first."""
        for program, choices, given in (
            (self.programs[1], self.theirs or [], self.given[1]),
            (self.programs[0], self.mine, self.given[0]),
        ):
            try:
                runs = [run_with(program, choices, one, given).outputs for one in (taken, [x.taken for x in self.mine])]  # type: ignore[arg-type]
            except ConversionError:
                continue
            return {name: one - runs[1][name] for name, one in runs[0].items() if one.is_floating_point()}
        return None

    def _searched(self, other: Outputs, scales: Sequence[Scale | None]) -> tuple[list[Tensor], Outputs | None]:
        """The choices, with ties turned, whose outputs are most like the other's; what they change."""
        program, given, own = self.programs[0], self.given[0], [one.taken for one in self.mine]
        first = best = run_with(program, self.mine, own, given)
        tried = 0
        for number, (choice, scale) in enumerate(zip(self.mine, scales, strict=True)):
            gaps = choice.gaps(best.taken[number], best.scores[number]).abs()
            for row in gaps.argsort().tolist():
                allowed = _allowed(scale, len(gaps))
                if tried >= _TRIED or not gaps[row] <= (allowed if allowed.ndim == 0 else allowed[row]):
                    break
                tried += 1
                places = choice.turned(best.taken[number], best.scores[number], row)
                try:
                    one = (
                        None if places is None else run_with(program, self.mine, [*best.taken[:number], places], given)
                    )
                except ConversionError:
                    one = None
                if one is not None and _squares(one.outputs, other) < _NEARER * _squares(best.outputs, other):
                    best = one
        if best is first:
            return own, None
        return best.taken, {
            name: one - first.outputs[name] for name, one in best.outputs.items() if one.is_floating_point()
        }


def _form(one: Choice) -> tuple[str, torch.Size]:
    return one.name, one.taken.shape


def _source(one: Choice) -> fx.Node:
    return one.node.all_input_nodes[0]


def _allowed(scale: Scale | None, rows: int) -> Tensor:
    """The gap of two scores that rounding explains: of each row, or of all; 0 where scores do not round."""
    if scale is None:
        return torch.zeros(())
    return THRESHOLD * _OTHERWISE * (scale.rms if len(scale.rms) == rows else scale.rms.max())


def _squares(one: Outputs, other: Outputs) -> float:
    """The squared distance of two sides' outputs."""
    apart = (value - lifted for value, lifted in zip(one.values(), map(_wide, other.values()), strict=True))
    return sum(float(each.double().nan_to_num(0.0, 0.0, 0.0).square().sum()) for each in apart)


def _wide(value: Tensor) -> Tensor:
    return value.double() if value.is_floating_point() else value.long()
