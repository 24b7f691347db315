"""Comparisons, added up. Tallies of different layers can be added in any order, also from files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from ..random_layers import SMALL_SIZE, RandomLayer
from .checks.comparison import Comparison

KEPT_FAILURES = 10  # layers that are named; all are counted


@dataclass(frozen=True, order=True)
class Finding:
    """One comparison of a layer."""

    # error in units of the bound; the largest double where the bound is 0, since JSON has no infinity
    ratio: float = 0.0
    seed: int = -1  # seed of the campaign
    index: int = -1
    what: str = ""  # the comparison, in words
    layer: str = ""  # the layer, in words


@dataclass(frozen=True)
class CheckTally:
    """Tally of one check over many layers."""

    comparisons: int = 0
    violations: int = 0  # number of comparisons that failed
    worst: Finding = Finding()  # the comparison nearest to its bound, or farthest above it

    def __add__(self, other: CheckTally) -> CheckTally:
        comparisons, violations = self.comparisons + other.comparisons, self.violations + other.violations
        return CheckTally(comparisons, violations, max(self.worst, other.worst))


@dataclass(frozen=True)
class Tally:
    """Tally of many layers."""

    layers: int = 0
    options: Mapping[str, int] = field(default_factory=dict)  # number of layers with each option
    checks: Mapping[str, CheckTally] = field(default_factory=dict)  # tally of each check on each kind of attention
    failed: int = 0  # number of layers with a violation
    failures: tuple[Finding, ...] = ()  # the first violation of the first failed layers

    @classmethod
    def of(cls, layer: RandomLayer, comparisons: Sequence[Comparison], *, seed: int, index: int) -> Self:
        """The tally of the comparisons made on one layer."""
        checks: dict[str, CheckTally] = {}
        wrong: list[Finding] = []
        described = str(layer)
        for made in comparisons:
            found = Finding(min(made.ratio, sys.float_info.max), seed, index, made.what, described)
            name = f"{made.check}, {made.kind}"
            one = CheckTally(1, int(not made.holds), found if found.ratio > 0 else Finding())
            checks[name] = checks.get(name, CheckTally()) + one
            if not made.holds:
                wrong.append(Finding(found.ratio, seed, index, str(made), described))
        return cls(1, dict.fromkeys(options(layer), 1), checks, int(bool(wrong)), tuple(wrong[:1]))

    def __add__(self, other: Tally) -> Tally:
        names = dict.fromkeys([*self.checks, *other.checks])
        failures = sorted(self.failures + other.failures, key=lambda failure: (failure.seed, failure.index))
        return Tally(
            self.layers + other.layers,
            dict(Counter(self.options) + Counter(other.options)),
            {name: self.checks.get(name, CheckTally()) + other.checks.get(name, CheckTally()) for name in names},
            self.failed + other.failed,
            tuple(failures[:KEPT_FAILURES]),
        )

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """The sum."""
        return sum(tallies, start=Tally())

    @property
    def all_checks(self) -> CheckTally:
        """The tally of all checks together."""
        return sum(self.checks.values(), start=CheckTally())


def options(layer: RandomLayer) -> list[str]:
    """The options that a layer has, such as "stride > 1", as the summary counts them."""
    spec, size, pads = layer.spec, layer.size, layer.spec.pads
    present = {
        "stride > 1": max(spec.stride) > 1,
        "dilation > 1": max(spec.dilation) > 1,
        "groups > 1": spec.groups > 1,
        "depthwise": spec.groups == spec.in_channels > 1,
        "kernel 1x1": spec.num_heads == 1,
        "kernel even along an axis": any(length % 2 == 0 for length in spec.kernel_size),
        "kernel rectangular": len(set(spec.kernel_size)) > 1,
        "bias": spec.bias,
        "no bias": not spec.bias,
        "channels differ": spec.in_channels != spec.out_channels,
        "input not square": len(set(size)) > 1,
        "input longer than 10": max(size) > SMALL_SIZE,
        "kernel spans more than 256": max(map(max, spec.tap_offsets)) - min(map(min, spec.tap_offsets)) > 256,
        "channels last": layer.memory_format == "channels_last",
        "batch > 1": layer.batch > 1,
        'padding "same"': spec.padding == "same",
        "padding uneven": any(before != after for before, after in pads),
        'padding "valid"': spec.padding == "valid",
        f"padding, {spec.padding_mode}": any(map(any, pads)),
        "no padding": not any(map(any, pads)),
        "one axis": spec.axes == 1,
        "three axes": spec.axes == 3,
        "transposed": spec.transposed,
        "output padding": any(spec.output_padding),
    }
    return [*(name for name, has in present.items() if has), layer.dtype, f"soft alpha {layer.alpha:g}"]
