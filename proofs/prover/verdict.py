"""The verdict on one check, and on claims that their checks could not show."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from .claim import Check, Claim, Status


class Outcome(StrEnum):
    """What became of a check or a claim."""

    HOLDS = "holds"
    FAILS = "fails"  # it found a case in which the claim is false
    TIMED_OUT = "timed out"
    ERROR = "error"  # it broke, or there was nothing to check


@dataclass(frozen=True)
class Verdict:
    """What became of one check.

    Attributes:
        check: Its name.
        outcome: Everything but "holds" is a failure.
        failures: Why it does not hold; empty if it does.
        seconds: How long it took.
    """

    check: str
    outcome: Outcome
    failures: tuple[str, ...] = ()
    seconds: float = 0.0


def refused(claim: Claim) -> list[Verdict]:
    """The verdict on a claim whose checks could pass and show nothing, or less than its status says; else none."""
    repeated = [name for name, count in Counter(check.name for check in claim.checks).items() if count > 1]
    partial = [check.name for check in claim.checks if check.cases and claim.status is Status.ALGEBRA]
    reasons = (
        *([] if claim.checks else ["it has no checks, so nothing would be shown"]),
        *(f"two checks have the name {name!r}" for name in repeated),
        *(f"the check {name!r} covers instances, but the claim says '{claim.status}'" for name in partial),
        *(["it names no theorem in Coq"] if claim.status is Status.COQ and not claim.coq else []),
    )
    return [Verdict("the claim itself", Outcome.ERROR, reasons)] if reasons else []


def decide(check: Check) -> Verdict:
    """Runs one check."""
    try:
        found = check.run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: nothing that a check does may look like a pass
        return Verdict(check.name, Outcome.ERROR, (f"it raised {type(error).__name__}: {error}",))
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        return Verdict(check.name, Outcome.ERROR, (f"it returned {found!r}, not a list of texts",))
    return Verdict(check.name, Outcome.FAILS if found else Outcome.HOLDS, tuple(found))
