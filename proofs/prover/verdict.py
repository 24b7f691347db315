"""Runs the checks of one claim, here and now, without a time limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from .claim import Check, Claim, Kind


@dataclass(frozen=True)
class Verdict:
    """What became of one check.

    Attributes:
        check: Its name.
        failures: Why it does not hold; empty if it does.
        is_error: Whether it broke instead of finding something.
    """

    check: str
    failures: tuple[str, ...]
    is_error: bool = False


def run_checks(claim: Claim) -> Iterator[Verdict]:
    """Runs the checks one after the other; a claim that its checks could not prove is refused before."""
    refused = _refusals(claim)
    if refused:
        yield Verdict("the claim itself", refused, is_error=True)
        return
    for check in claim.checks:
        yield _run(check)


def failures_of(claim: Claim) -> list[str]:
    """What the checks of a claim find against it, each text with the name of its check; empty if it is proved."""
    return [f"{verdict.check}: {failure}" for verdict in run_checks(claim) for failure in verdict.failures]


def _refusals(claim: Claim) -> tuple[str, ...]:
    """Why the checks of a claim could pass and prove nothing."""
    if not claim.checks:
        return ("it has no checks, so nothing would be proved",)
    repeated = [name for name, count in Counter(check.name for check in claim.checks).items() if count > 1]
    listless = [check.name for check in claim.checks if check.kind is Kind.INSTANCES and not check.cases]
    return (
        *(f"two checks have the name {name!r}" for name in repeated),
        *(f"the check {name!r} covers instances and lists none" for name in listless),
    )


def _run(check: Check) -> Verdict:
    try:
        found = check.run()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: nothing that a check does may look like a pass
        return Verdict(check.name, (f"it raised {type(error).__name__}: {error}",), is_error=True)
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        return Verdict(check.name, (f"it returned {found!r}, not a list of texts",), is_error=True)
    return Verdict(check.name, tuple(found))
