"""Times of training are told in the unit that people would use."""

from __future__ import annotations

import pytest

from conv2attn.learn.timing import duration


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.2, "1 second"),
        (40.4, "40 seconds"),
        (89, "89 seconds"),
        (90, "2 minutes"),
        (720, "12 minutes"),
        (9000, "2 hours"),
    ],
)
def test_a_duration_is_rounded_to_its_unit(seconds: float, told: str) -> None:
    assert duration(seconds) == told
