"""The first layer that failed, made small, and a few lines of Python that show its failure."""

from __future__ import annotations

import pprint
from collections.abc import Sequence
from dataclasses import dataclass

from ..random_layers import RandomLayer
from .checks.all import violations
from .checks.comparison import Comparison
from .result import INTERRUPTED, Campaign
from .settings import Settings
from .shrink import shrink

_WIDTH = 100

_SNIPPET = """\
from conv2attn.convert.spec import ConvSpec
from conv2attn.convert.size import Size
from conv2attn.proofs.evidence.campaign.checks.all import violations
from conv2attn.proofs.evidence.random_layers import RandomLayer

layer = {layer}
for violation in violations(layer, engines={engines}, checks={checks}, device={device!r}):
    print(violation)
"""


@dataclass(frozen=True)
class Counterexample:
    """A simple layer for which a check fails.

    Attributes:
        layer: The layer.
        violations: What does not hold, in words.
        snippet: Python that prints the same.
    """

    layer: RandomLayer
    violations: tuple[str, ...]
    snippet: str


def counterexample(campaign: Campaign) -> Counterexample | None:
    """Shrinks the first layer that failed; None if no layer failed, or the campaign was interrupted."""
    if not campaign.tally.failures or campaign.stopped == INTERRUPTED:
        return None
    first = campaign.tally.failures[0]
    settings, checks = campaign.settings, [first.check]

    def found(layer: RandomLayer) -> list[Comparison]:
        return violations(layer, engines=settings.engines, checks=checks, device=settings.device)

    layer = shrink(settings.layer(first.seed, first.index), lambda candidate: bool(found(candidate)))
    return Counterexample(layer, tuple(map(str, found(layer))), snippet(layer, settings, checks))


def snippet(layer: RandomLayer, settings: Settings, checks: Sequence[str]) -> str:
    """Python that prints what does not hold for a layer."""
    return _SNIPPET.format(
        layer=pprint.pformat(layer, width=_WIDTH),
        engines=list(settings.engines),
        checks=list(checks),
        device=settings.device,
    )
