"""Chooses which mutants run. Cosmic-ray's own Python runs this file.

    python -m tests.mutation.choose SESSION COUNT LINES

Left out is what says nothing about the tests:

* annotations are never evaluated, so the | in them can become anything;
* the identity of small integers, strings and None is their equality;
* a sum that becomes a bit operation or a remainder is noticed where one that becomes a difference is;
* ``*`` in a list of arguments is no product;
* texts are equal or not, and none comes before another;
* how many letters of a name a message shows is taste;
* a dataclass that is not frozen, and an abstract method that is not said to be one, compute the same.

Of the rest, those that begin in one of LINES, a list in JSON, or null for all lines; and of these, COUNT are drawn at
random, always the same ones; 0 takes all.
"""

from __future__ import annotations

import json
import random
import re
import sys
from pathlib import Path

from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, WorkerOutcome, WorkResult

_BITS_AND_REMAINDERS = "FloorDiv|Mod|Pow|RShift|LShift|BitOr|BitAnd|BitXor"
_ORDER = "Eq|NotEq|Lt|LtE|Gt|GtE"
_IDENTITY = "Is|IsNot"
_EXCLUDED = re.compile(
    "core/Replace("
    "BinaryOperator_BitOr_.*"
    f"|BinaryOperator_.*_({_BITS_AND_REMAINDERS})"
    f"|ComparisonOperator_({_ORDER})_({_IDENTITY})"
    f"|ComparisonOperator_({_IDENTITY})_({_ORDER})"
    ")"
)

_BETWEEN_TEXTS = re.compile(r"(==|!=) (\"|AUTO\b)")
_ORDERING = re.compile("core/ReplaceComparisonOperator_(Eq|NotEq)_(Lt|LtE|Gt|GtE)")
_SHOWN = re.compile(r"\d+\](!r|\})")  # where the number is the end of what a message shows
_FORMAL = re.compile(r"\s*@(dataclass\(frozen=True|abstractmethod)")


def choose(session: str, count: int, lines: list[int] | None) -> None:
    """Marks the mutants of a new session that do not run as skipped."""
    with use_db(session) as database:
        items = [(item.job_id, item.mutations[0]) for item in database.pending_work_items]
        found = ((job, mutation) for job, mutation in items if lines is None or mutation.start_pos[0] in lines)
        meant = sorted((key(mutation), job) for job, mutation in found if says_something(mutation))
        if count and count < len(meant):
            meant = random.Random(0).sample(meant, count)
        kept = {job for _, job in meant}
        for job, _ in items:
            if job not in kept:
                database.set_result(job, WorkResult(output="Not chosen", worker_outcome=WorkerOutcome.SKIPPED))


def key(mutation: MutationSpec) -> tuple[int, int, str, int]:
    """What orders the mutants, in every session alike."""
    return (*mutation.start_pos, mutation.operator_name, mutation.occurrence)


def says_something(mutation: MutationSpec) -> bool:
    """Whether a mutant is not left out."""
    if _EXCLUDED.fullmatch(mutation.operator_name):
        return False
    row, column = mutation.start_pos
    line = Path(mutation.module_path).read_text(encoding="utf-8").splitlines()[row - 1]
    if line[:column].endswith("[:") and _SHOWN.match(line[column:]):
        return False
    if _BETWEEN_TEXTS.match(line[column:]) and _ORDERING.fullmatch(mutation.operator_name):
        return False
    return not line[column:].startswith("*,") and not _FORMAL.match(line)


if __name__ == "__main__":
    choose(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
