"""Tables of the pairs of ``pairs.py``: the threshold, chosen on one half of the families and judged on the other.

The threshold is ``MARGIN`` times the largest honest ratio of the choosing half. Without an alarm in n pairs of the
other half, at most 3 / n of such pairs raise one, at 95 % confidence, if they are independent; pairs of one network are
not quite, so the limit that the number of networks allows stands beside it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from conv2attn.convert.sameness.verdict import INNER, THRESHOLD

MARGIN = 2.0  # how far above the largest honest ratio of one half the threshold is
RULES = ("allclose", "pytorch")
Record = dict[str, Any]


_BESIDE = (" before it", " behind it")


def is_place(name: str, why: str, sites: Sequence[str]) -> bool:
    """Whether an operation is of a changed module, reads its tensor, or is beside what only the other side has."""
    homes = {site.rpartition(".")[0] for site in sites} - {""}
    own = any(name in (site, f"{site}.own") for site in sites)
    return own or any(words in why for words in _BESIDE) or (name in homes and ("elements" in why or "rows" in why))


def table(
    records: Sequence[Record],
    ways: Sequence[str],
    kinds: Sequence[str],
    mistakes: Sequence[str],
    half: Callable[[str], int],
) -> None:
    """Prints honest ratios by half and by way, faults beside other rules, and mistakes in ports, as Markdown."""
    compared = list({key_of(one): one for one in records if "ratio" in one}.values())
    judged = [one for one in compared if one["verdict"] != "cannot say"]
    honest = [one for one in judged if one["way"] in ways]
    _counts(records, compared, honest)
    _halves(honest, half)
    _histogram(honest, half)
    _operations(honest, half)
    _by_way(honest, ways)
    _published([one for one in judged if one["way"] == "published"])
    _undecided(compared)
    faults = [one for one in compared if "limit" in one and one["verdict"] not in ("same bits", "cannot say")]
    for is_limit in (False, True):
        print(f"\nFaults {'as large as allclose passes' if is_limit else 'at natural size'}\n")
        _faults([one for one in faults if one["limit"] is is_limit], kinds)
    print("\nFaults that were missed, in units of rounding:\n")
    for one in sorted((one for one in faults if not _is_found(one)), key=lambda one: one["ratio"]):
        size = f"size {one['size']:.3g}, " if one["size"] else ""
        print(
            f"- {one['way']} in {one['name']}, {size}{one['ratio']:.2g} units{', at the limit' if one['limit'] else ''}"
        )
    made = [one for one in compared if one.get("mistake") and one["verdict"] != "cannot say"]
    for is_narrow in (False, True):
        print(f"\nMistakes that ports had, in {'bfloat16' if is_narrow else 'float32'}\n")
        _mistakes([one for one in made if one["bfloat16"] is is_narrow], mistakes)
    print("\nMistakes that were missed in float32, in units of rounding:\n")
    for one in made:
        if not one["bfloat16"] and one["verdict"] != "same bits" and not _is_found(one):
            print(f"- {one['way']} in {one['name']}, {one['ratio']:.2g} units")
    _errors(records)


def _mistakes(made: list[Record], kinds: Sequence[str]) -> None:
    print("| mistake | pairs | changed a bit | found | place first | also innocents |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind, own in _by_kind(made, kinds):
        changed = [one for one in own if one["verdict"] != "same bits"]
        found = [one for one in changed if _is_found(one)]
        places = [[is_place(name, why, one["sites"]) for name, _, why in one["where"]] for one in found]
        first, innocent = sum(each[:1] == [True] for each in places), sum(not all(each) for each in places)
        print("|", " | ".join(map(str, (kind, len(own), len(changed), len(found), first, innocent))), "|")


def _by_kind(records: list[Record], kinds: Sequence[str]) -> Iterator[tuple[str, list[Record]]]:
    """Those of each kind that there are, and all."""
    for kind in kinds:
        if own := [one for one in records if one["way"] == kind]:
            yield kind, own
    if records:
        yield "all", records


def key_of(one: Record) -> tuple[Any, ...]:
    """Identity of a pair: of one that ran twice, the last line counts."""
    return one["index"], one.get("name"), one["way"], one.get("place"), one.get("limit"), one.get("bfloat16")


def _counts(records: Sequence[Record], compared: list[Record], honest: list[Record]) -> None:
    drawn = [one for one in compared if one["way"] != "published"]
    networks = {one["index"] for one in drawn}
    families = {(one["library"], one["family"]) for one in drawn}
    refused = Counter(one["error"].split(":")[0] for one in records if one["way"] is None)
    print(f"{len(networks)} networks of {len(families)} families, {len(honest)} honest pairs, of which")
    print(f"{sum(one['verdict'] == 'same bits' for one in honest)} have the same bits; not run: {dict(refused)}")


def _halves(honest: list[Record], half: Callable[[str], int]) -> None:
    parts = [[one for one in honest if half(one["family"]) == part] for part in (0, 1)]
    largest = [max((one["ratio"] for one in part), default=0.0) for part in parts]
    chosen = MARGIN * largest[0]
    n, networks = len(parts[1]), len({one["index"] for one in parts[1]})
    alarms = [sum(one["ratio"] > limit for one in parts[1]) for limit in (chosen, THRESHOLD)]
    print(f"\nchoosing half: {len(parts[0])} pairs, largest ratio {largest[0]:.3g}: threshold {chosen:.3g}")
    print(f"judging half: {n} pairs of {networks} networks, largest ratio {largest[1]:.3g}")
    print(f"alarms at {chosen:.3g}: {alarms[0]}; at {THRESHOLD:g}, which is built in: {alarms[1]}")
    print(f"95 % limits without an alarm: {3 / max(n, 1):.2%} of pairs, {3 / max(networks, 1):.1%} of networks")
    for one in sorted(honest, key=lambda one: -one["ratio"])[:12]:
        where = one["where"] or one["reason"]
        print(f"- {one['ratio']:.3g}: {one['name']}, {one['way']}, half {half(one['family'])}, {where}")


def _histogram(honest: list[Record], half: Callable[[str], int]) -> None:
    """The honest ratios by powers of two, a row of stars for each."""
    print("\n| ratio | choosing half | judging half |\n| --- | --- | --- |")
    counted = Counter((half(one["family"]), _power(one["ratio"])) for one in honest)
    powers = sorted({power for _, power in counted})
    for power in powers:
        name = "same bits" if power == -math.inf else f"{2.0**power:.3g} to {2.0 ** (power + 1):.3g}"
        print(f"| {name} | {counted[0, power]} | {counted[1, power]} |")


def _operations(honest: list[Record], half: Callable[[str], int]) -> None:
    """Honest pairs whose operations were compared on the same inputs, by half."""
    own = [one for one in honest if one.get("inner") is not None]
    print(f"\noperations were compared in {len(own)} pairs; limit {INNER:g} where something differs")
    for part in (0, 1):
        inner = [one["inner"] for one in own if half(one["family"]) == part]
        print(f"half {part}: {len(inner)} pairs, largest ratio of an operation {max(inner, default=0.0):.3g}")
    print(f"verdicts that are not rounding: {sum(one['verdict'] == 'not rounding' for one in honest)}")
    for one in sorted(own, key=lambda one: -one["inner"])[:6]:
        print(f"- {one['inner']:.3g}: {one['name']}, {one['way']}, half {half(one['family'])}")


def _power(ratio: float) -> float:
    """The power of two below a ratio; all below 1/16 are one."""
    return -math.inf if not ratio else max(-5, math.floor(math.log2(ratio)))


def _by_way(honest: list[Record], ways: Sequence[str]) -> None:
    print("\n| honest change | pairs | same bits | median | largest |\n| --- | --- | --- | --- | --- |")
    by_way: defaultdict[str, list[float]] = defaultdict(list)
    for one in honest:
        by_way[one["way"]].append(one["ratio"])
    for way in ways:
        if ratios := by_way[way]:
            print(f"| {way} | {len(ratios)} | {ratios.count(0.0)} | {median(ratios):.2g} | {max(ratios):.3g} |")


def _published(records: list[Record]) -> None:
    print("\n| published file | verdict | ratio | largest ratio of an operation |\n| --- | --- | --- | --- |")
    for one in sorted(records, key=lambda one: -one["ratio"]):
        print(f"| {one['name']} | {one['verdict']} | {one['ratio']:.3g} | {one['inner']:.3g} |")


def _undecided(compared: list[Record]) -> None:
    reasons = Counter((one["verdict"], one["reason"][:70]) for one in compared if one["verdict"] == "cannot say")
    print("\nnot judged:", dict(reasons))


def _is_found(one: Record) -> bool:
    return one["verdict"] in ("not rounding", "biased rounding", "coarser rounding")


def _faults(faults: list[Record], kinds: Sequence[str]) -> None:
    print("| fault | changed a bit | found | named | named first | rejected by allclose | by PyTorch's rule |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, own in _by_kind(faults, kinds):
        found = [one for one in own if _is_found(one)]
        named = [sum(one[key] for one in found) for key in ("named", "first")]
        rejected = [sum(not one[rule] for one in own) for rule in RULES]
        print("|", " | ".join(map(str, (kind, len(own), len(found), *named, *rejected))), "|")


def _errors(records: Sequence[Record]) -> None:
    print("\nerrors of other programs, by way:\n")
    for (way, error), count in Counter(
        (one["way"], one["error"][:90]) for one in records if "error" in one
    ).most_common(25):
        print(f"- {count} x {way}: {error}")
