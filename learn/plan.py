"""Plan of a comparison on images: batches, epochs, rates and seeds, by the numbers of images.

Steps, not epochs, decide whether a network learns. A step of Adam changes a weight by at most about the learning rate
(Kingma & Ba, Adam, 2015, section 2.1), and the schedule's mean is half its peak. So N steps at the peak rate r change a
weight by up to N r / 2. A 3x3 layer of 48 channels, the widest of ``small_cnn``, starts with weights of deviation
1 / sqrt(3 * 432) = 0.028. To change one by that much at 0.001, the rate that is tried first, takes 56 steps.

Few validation images cannot choose among many rates: an accuracy on V images has a standard error of up to
0.5 / sqrt(V), 16 points with 10 and 7 with 50. Nor do more seeds help where test images are few: every seed is tested
on the same ones.
"""

from __future__ import annotations

from typing import NamedTuple

RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
_FIRST = (1e-3, 3e-3, 3e-4, 1e-2, 1e-4)  # the same, in the order in which more images add them
LEAST_STEPS = 60
"""Steps of a training; the least that the module's docstring asks for, rounded up."""
EPOCHS, START_EPOCHS = 10, 15
"""Epochs at least: of the fine-tuning, and of a small CNN that is trained first."""
SEEDS, FEW_SEEDS = 5, 3
"""Seeds, and seeds where the images choose no rate."""
A_RATE = 10
"""Validation images for each rate that is tried."""
_BATCH, _LEAST_BATCH, _BATCHES = 64, 8, 8  # the most and the fewest images of a batch; batches of an epoch


class Plan(NamedTuple):
    """Plan of a comparison.

    Attributes:
        batch_size: Images of a step.
        epoch_steps: Steps of an epoch.
        epochs: Epochs of the fine-tuning.
        start_epochs: Epochs of a small CNN that is trained first.
        rates: Learning rates to choose from.
        follows_ends: Whether a best rate at an end of the list is followed further.
        seeds: Number of seeds.
    """

    batch_size: int
    epoch_steps: int
    epochs: int
    start_epochs: int
    rates: tuple[float, ...]
    follows_ends: bool
    seeds: int


def plan_of(train: int, validation: int, *, batch_size: int | None = None) -> Plan:
    """Plans a comparison by the numbers of images.

    * A batch has an eighth of the training images, at least 8 and at most 64.
    * A training has at least 10 epochs, a small CNN's own at least 15, and each at least ``LEAST_STEPS`` steps.
    * One learning rate is tried for every 10 validation images, at least 1 and at most 5. Only where all five are
      tried, a best rate at an end of the list is followed further.
    * Where a single rate is tried there are three seeds, else five.

    Args:
        train: Number of training images.
        validation: Number of images that choose the rate and the epoch.
        batch_size: Images of a step, if they are given.
    """
    size = batch_size or min(_BATCH, max(_LEAST_BATCH, train // _BATCHES))
    steps = train // min(size, train)  # those that do not fill a batch are left out, as Order does
    least = -(-LEAST_STEPS // steps)
    rates = tuple(sorted(_FIRST[: max(1, validation // A_RATE)]))
    return Plan(
        size,
        steps,
        max(EPOCHS, least),
        max(START_EPOCHS, least),
        rates,
        rates == RATES,
        SEEDS if rates[1:] else FEW_SEEDS,
    )
