"""A case of the court: a public question, both sides of it, and the answer that was found there.

The truth of a case is written before any tool is asked, and so is the rule by which every tool is scored (``score``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

Kind = Literal["ports", "compilers", "precision", "batches", "quantised", "one-sided"]
Unit = Literal["float32", "tf32", "bfloat16", "float16", "int8"]
Answer = Literal["accept", "reject", "undecided"]
Score = Literal["right", "miss", "false alarm", "undecided", "not scored"]

KINDS: dict[Kind, str] = {
    "ports": "ports and converters",
    "compilers": "compilers and exporters",
    "precision": "lower precision by default",
    "batches": "batch, layout, cache",
    "quantised": "quantised",
    "one-sided": "one-sided rounding",
}


@dataclass(frozen=True)
class Bug:
    """The difference is a bug.

    Attributes:
        operation: The wrong operation and its constant, in words.
        where: Regular expression of the place that a tool should name first: a module's name, or a kind of operation.
        cause: Words that a sentence with the cause contains, all of them; "scale|divi" is either.
    """

    operation: str
    where: str
    cause: tuple[str, ...]

    def is_named(self, place: str) -> bool:
        """Whether a place is the right one."""
        return re.search(self.where, place) is not None

    def is_explained(self, sentence: str) -> bool:
        """Whether a sentence says the cause."""
        return all(any(word in sentence.lower() for word in words.lower().split("|")) for words in self.cause)


@dataclass(frozen=True)
class Rounding:
    """The difference is rounding.

    Attributes:
        reason: What rounds otherwise, in words.
        unit: The unit that explains it.
        declared: The unit in which the network says that it computes.
        is_amplified: Whether the network enlarges the last bit so much that its outputs decide nothing.
    """

    reason: str
    unit: Unit = "float32"
    declared: Unit = "float32"
    is_amplified: bool = False

    @property
    def is_coarser(self) -> bool:
        """Whether the unit is coarser than the declared one."""
        return self.unit != self.declared


@dataclass(frozen=True)
class Open:
    """Nobody knows, or said; such a case is not scored.

    Attributes:
        reason: Why.
    """

    reason: str


Truth = Bug | Rounding | Open


@dataclass(frozen=True)
class Case:
    """A thread, made again.

    Attributes:
        thread: Its address.
        kind: One of ``KINDS``.
        question: In one line.
        truth: The answer.
        said: What maintainers said, or what the thread ended with, in other words.
        read: What of the thread was read: "thread" is description and resolution, "excerpt" is parts of them, cut by
            the store that was searched.
        emulated: How an engine that does not run here is stood for; "" where the real one runs.
    """

    thread: str
    kind: Kind
    question: str
    truth: Truth
    said: str
    read: str
    emulated: str = ""


@dataclass(frozen=True)
class Sides:
    """What the asker had.

    Attributes:
        a: The reference network, in eval mode.
        b: The other side: a network, a callable (a black box), a compiled network, or the path of an ONNX file.
        inputs: Inputs of both.
    """

    a: nn.Module
    b: nn.Module | Callable[..., Any] | Path
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Said:
    """What a tool said of a case.

    Attributes:
        answer: Accept (no bug), reject (a bug), or undecided.
        words: Its own verdict, with its number.
        unit: The coarser unit by which it explains the difference, if it names one.
        named: Whether it names the right operation first; None if it names none.
        explained: Whether it says the cause; None if it names no operation.
        seconds: Time of the processor that it took, without building both sides.
        details: Its sentence, if it makes one.
    """

    answer: Answer
    words: str
    unit: str = ""
    named: bool | None = None
    explained: bool | None = None
    seconds: float = 0.0
    details: str = field(default="", compare=False)


def score(truth: Truth, said: Said) -> Score:
    """Scores an answer; the rule is the same for every tool.

    ======================  =====================  ===========  ===========================
    truth                   accept                 reject       undecided, refused
    ======================  =====================  ===========  ===========================
    bug                     miss                   right        undecided
    rounding                right                  false alarm  undecided
    rounding, amplified     right                  false alarm  right: outputs decide nothing
    ======================  =====================  ===========  ===========================

    Where the unit is coarser than the declared one, "accept" is right from a tool that names no unit: it says that
    nothing is broken, as the maintainers do. A tool that names a unit must name the right one; else it is undecided. A
    verdict of biased rounding counts as "reject": someone must look.
    """
    if isinstance(truth, Open):
        return "not scored"
    if isinstance(truth, Bug):
        decided: dict[Answer, Score] = {"accept": "miss", "reject": "right", "undecided": "undecided"}
        return decided[said.answer]
    if said.answer == "accept":
        return "right" if said.unit in ("", truth.unit) else "undecided"
    if said.answer == "reject":
        return "false alarm"
    return "right" if truth.is_amplified else "undecided"
