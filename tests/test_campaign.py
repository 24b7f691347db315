"""The campaign finds planted faults, is a function of its seed, and says what it tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from conv2attn.convert import Certificate, certify
from conv2attn.convert.attention import EXACT_ALPHA
from conv2attn.proofs.campaign import checks
from conv2attn.proofs.campaign.checks import violations
from conv2attn.proofs.campaign.settings import Settings
from tests.test_faults import (
    attend_over_the_unpadded_border,
    drop_a_head,
    misplace_the_odd_pixel,
    shift_centers,
    swap_rows_and_columns,
)

Plant = Callable[[pytest.MonkeyPatch], None]
WITHIN = 200  # layers


def divide_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def boastful(*args: object, **kwargs: object) -> Certificate:
        certificate = certify(*args, **kwargs)  # type: ignore[arg-type]
        return replace(certificate, per_channel=tuple(bound / 100 for bound in certificate.per_channel))

    monkeypatch.setattr(checks, "certify", boastful)


def take_an_alpha_of_12(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in EXACT_ALPHA:
        monkeypatch.setitem(EXACT_ALPHA, dtype, 12.0)


FAULTS = [
    divide_the_bound,
    swap_rows_and_columns,
    attend_over_the_unpadded_border,
    drop_a_head,
    take_an_alpha_of_12,
    shift_centers,
    misplace_the_odd_pixel,
]


def first_failure(limit: int, settings: Settings) -> int | None:
    """The first layer of seed 0 that fails, and the rest is not run."""
    for index in range(limit):
        if violations(settings.layer(0, index), engines=settings.engines):
            return index
    return None


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    index = first_failure(WITHIN, Settings())
    print(plant.__name__, index)
    assert index is not None
